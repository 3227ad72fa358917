"""One short run on a nano seedling, grown once per session, for all tests of the commands."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful import cli


@pytest.fixture(scope="session")
def cache(shared_cache: Path) -> Path:
    return shared_cache


@pytest.fixture(autouse=True)
def own_place(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in a folder of its own and with the session's cache of seedlings."""
    monkeypatch.setenv("HEEDFUL_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def echo_run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps on Echo, evaluated before and after, with a checkpoint after each step. Do not write into it."""
    folder = tmp_path_factory.mktemp("runs") / "echo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(cache))
        code = cli.run(
            f"train echo --out {folder} --steps 2 --groups 4 --group-size 4 --checkpoint-every 1 --seedling.steps 120 "
            "--evaluation.tasks 12 --evaluation.samples 2 --evaluation.times 2".split()
        )
    assert code == 0
    return folder


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`typed("down", "quit")`: what a person will type, line by line; then the input ends."""

    def type_lines(*lines: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return type_lines
