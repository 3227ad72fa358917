"""One model for all tests of the integrations; its folder is made where TRL is installed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def without_triton() -> None:
    """TRL 1.15 computes its loss without Triton."""
    if find_spec("trl") is not None:
        import tiny_trl  # noqa: F401


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from tiny_trl import save_model

    folder = save_model(tmp_path_factory.mktemp("tiny") / "model")
    # Each train() collects garbage: without the packages' own objects that takes a hundredth of the time.
    gc.collect()
    gc.freeze()
    yield folder
    gc.unfreeze()
