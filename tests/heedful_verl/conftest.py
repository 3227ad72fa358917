"""Tests with a real verl have the marker `verl`. They are skipped, with the reason, where verl is not installed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOUND = find_spec("verl")
INSTALLED = FOUND is not None and FOUND.origin is not None
"""The folder of these tests has the same name. Python takes it for a package without a file."""

if INSTALLED:
    sys.path.insert(0, str(ROOT / "examples" / "verl_on_a_cpu"))
    from cpu_session import prepare

    ENVIRONMENT = prepare(["heedful_verl.register"])  # before anything imports verl


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if INSTALLED:
        return
    for item in items:
        if item.get_closest_marker("verl") is not None:
            item.add_marker(pytest.mark.skip(reason="verl is not installed here: make test-verl has its environment"))


if INSTALLED:

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
        """End at once. Where ray and torch are unloaded together, Python may crash, after all tests have passed."""

        def end() -> None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(session.exitstatus))

        session.config.add_cleanup(end)
