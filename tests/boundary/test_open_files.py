"""Pipes and devices in folders of somebody else: no reader waits for a pipe's writer."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from heedful import cli
from heedful.auditing.logs.files import is_parquet, open_parquet
from heedful.boundary import parse
from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import open_file, refuse_pipes
from heedful.models.cache import cache_root
from heedful.storage import RunFolder, read_rollouts
from heedful.storage.scores import read_scores
from patience import PATIENCE

OLD_RUN = Path(__file__).parents[1] / "fixtures" / "run_of_0_1_0"


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """A reader that waits ends in an error of the test, and not of the whole suite."""

    def waited(number: int, frame: FrameType | None) -> None:
        raise AssertionError("waited for the writer of a pipe")

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize(
    "read",
    [open_file, refuse_pipes, read_json, read_rollouts, read_scores, is_parquet, open_parquet],
    ids=lambda read: read.__name__,
)
def test_no_reader_waits_for_a_pipe(read: Callable[[Path], object], pipe: Path) -> None:
    with pytest.raises((OSError, ValueError), match="found a pipe or a device"):
        read(pipe)


def test_a_device_is_no_file_and_a_folder_keeps_its_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="found a pipe or a device"):
        open_file(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)
    (tmp_path / "endless.safetensors").symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"endless\.safetensors"):
        refuse_pipes(tmp_path)


def test_a_typed_configuration_may_be_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """As `--config <(program)` is one."""
    reader, writer = os.pipe()
    os.write(writer, b'{"seed": 41}')
    os.close(writer)
    assert cli.run(["train", "echo", "--config", f"/dev/fd/{reader}", "--print-config"]) == 0
    os.close(reader)
    assert '"seed": 41' in capsys.readouterr().out


@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_a_report_of_a_run_with_a_pipe_in_it_ends(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD_RUN, run)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert cli.run(["report", str(run)]) == 2
    assert "found a pipe or a device" in capsys.readouterr().err
    assert RunFolder(run).path == run


UNKNOWN_HOME = "~nobody-of-this-name/p"


@pytest.mark.parametrize(
    "line",
    [
        "play math --by random --env.path",
        "play remote --by random --env.token-file",
        "play echo --by",
        "index",
    ],
)
def test_a_home_of_nobody_is_a_path_that_is_not_there(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    assert cli.run([*line.split(), UNKNOWN_HOME]) == 2
    assert UNKNOWN_HOME in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("folder", ["", "~nobody-of-this-name", "here"])
def test_the_trusted_cache_is_never_looked_for_in_the_current_folder(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.delenv("HEEDFUL_CACHE", raising=False)
    if folder:
        with pytest.raises(ValueError, match="cache directory as a whole path, found"):
            cache_root()
    else:
        assert cache_root() == tmp_path / "home" / ".cache" / "heedful"


def test_a_typed_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Words:
        out: Path = Path("runs")

    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse(Words, None, ["--out=~/runs"], "heedful", "").out == tmp_path / "runs"
