"""Every test of a study runs in a folder of its own."""

from pathlib import Path

import pytest
from written_runs import WrittenRuns


@pytest.fixture
def written(tmp_path: Path) -> WrittenRuns:
    return WrittenRuns(tmp_path / "study")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
