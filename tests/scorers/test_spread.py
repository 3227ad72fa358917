"""FSDP2 with settings of its own: shards over a part of the ranks, and passes in half precision."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import spread_worker

from processes import found_in_two


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 of four finds."""
    return found_in_two(spread_worker.__file__, tmp_path_factory.mktemp("four"), count=4)[0]


def test_layers_that_are_split_over_two_of_four_ranks_are_scored_and_trained_on(four: dict[str, Any]) -> None:
    found = four["over two of four"]
    for scores_MN in found["found"]:
        assert np.allclose(scores_MN, found["expected"], rtol=0, atol=1e-4)
    assert found["norms"][0] == pytest.approx(found["norms"][1]) != 0


def test_passes_in_half_precision_are_packed_as_in_one_process(four: dict[str, Any]) -> None:
    """FSDP2 hands layers copies of every dataclass among their arguments, and casts the tensors in it."""
    found = four["in bfloat16"]
    assert found["way"] in ("packed", "trie")
    for scores_MN in found["found"]:
        assert np.allclose(scores_MN, found["expected"], rtol=0, atol=0.2)
