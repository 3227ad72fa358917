"""A run of ours to audit, grown and trained once per session."""

from pathlib import Path

import pytest
from audit_watching import Witness

from heedful import cli


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps on Echo, every one fully measured, with a checkpoint after each. Do not write into it."""
    folder = tmp_path_factory.mktemp("runs") / "echo"
    code = cli.run(
        f"train echo --out {folder} --steps 3 --groups 6 --group-size 4 --checkpoint-every 1 --seed 5 "
        "--seedling.steps 30 --evaluation.times 0 --diagnostics.every 1 --diagnostics.full-every 1".split()
    )
    assert code == 0
    return folder
