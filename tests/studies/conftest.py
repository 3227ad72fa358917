"""Every test of a study runs in a folder of its own."""

import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.studies.running import processes, runner
from heedful.studies.running.processes import Child
from warm import in_place_of_popen
from written_runs import WrittenRuns


@pytest.fixture
def written(tmp_path: Path) -> WrittenRuns:
    return WrittenRuns(tmp_path / "study")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The processes that the runner starts. They have torch loaded; `tests/cli/test_several_seeds.py` starts cold."""
    children: list[Child] = []
    start = Child.start

    def remember(child: Child) -> None:
        start(child)
        children.append(child)

    warm = SimpleNamespace(Popen=in_place_of_popen, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(processes, "subprocess", warm)
    monkeypatch.setattr(runner, "warm_server", lambda keep_open: nullcontext())
    monkeypatch.setattr(Child, "start", remember)
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.1)
    return children
