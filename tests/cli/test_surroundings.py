"""The process that a command finds itself in: the folder, the streams and the variables that others have prepared."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import cli
from heedful.command_process import run_command
from heedful.pixels import damage
from patience import PATIENCE

SOURCE = str(Path(heedful.__file__).parents[1])

TAKEN = ("__future__", "dataclasses", "json", "re", "rich", "shutil", "torch", "typing")
"""Modules that heedful imports, the first of them in its first lines."""


def _ended(words: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`python WORDS` in `folder`, as an installed heedful is started: its source alone is on the path."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, **more}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A folder whose files have the names of libraries."""
    for name in (*TAKEN, "heedful"):
        (tmp_path / f"{name}.py").write_text("open('ran.txt', 'w').write(__name__)\n")
    return tmp_path


@pytest.mark.parametrize("words", ["-m heedful", "-um heedful"])
def test_python_m_takes_no_library_from_the_working_directory(words: str, taken: Path) -> None:
    (taken / "heedful.py").unlink()  # -m itself takes this one, which nothing in heedful can change
    ended = _ended([*words.split(), "--help"], taken)
    assert ended.returncode == 0, ended.stderr
    assert "usage" in ended.stdout
    assert not (taken / "ran.txt").exists()


def test_a_module_of_somebody_else_that_imports_heedful_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("import heedful")
    (tmp_path / "theirs" / "main.py").write_text("import beside")
    (tmp_path / "beside.py").write_text("print('found')")
    assert _ended(["-m", "theirs.main"], tmp_path).stdout == "found\n"


def test_the_other_processes_of_a_check_take_nothing_from_the_working_directory(taken: Path) -> None:
    ended = _ended(["-P", "-m", "heedful", "check-env", "echo", "--quick"], taken)
    assert not (taken / "ran.txt").exists()
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_deleted_working_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.run(["train", "echo", "--out", str(tmp_path / "run")]) == 2
    assert "Expected a working directory that exists, found a deleted one" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)


def test_a_closed_standard_input_ends_a_game_as_its_end_does(tmp_path: Path) -> None:
    words = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'heedful', 'play', 'echo'])"
    ended = _ended(["-c", words], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


def test_nothing_is_opened_under_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    words = (
        "import os; from heedful.command_process import open_closed_streams; [os.close(stream) for stream in (0, 1, 2)]"
        "; open_closed_streams(); file = os.open('kept', os.O_RDWR | os.O_CREAT); os._exit(file)"
    )
    assert _ended(["-P", "-c", words], tmp_path).returncode > 2


PROGRAMS = (
    "heedful_verl.doctor",
    "heedful_verl.tasks echo --tasks 3 --out tasks.parquet",
)
"""Programs beside `heedful`. Each prints something."""


@pytest.mark.parametrize("line", PROGRAMS)
def test_programs_beside_heedful_treat_their_streams_as_it_does(line: str, tmp_path: Path) -> None:
    python = f"{sys.executable} -P -m {line}"
    full, closed = ("<&- >/dev/full", "Expected room on the disk to write the output"), ("<&- >&-", None)
    for redirected, expected in (full, closed) if line == PROGRAMS[0] else (full,):
        ended = _ended(["-c", f"import os; os.execv('/bin/sh', ['sh', '-c', '{python} {redirected}'])"], tmp_path)
        assert "Traceback" not in ended.stderr
        if expected:
            assert ended.returncode == 2
            assert expected in ended.stderr


def test_a_number_of_processes_that_is_none_ends_in_a_sentence(tmp_path: Path) -> None:
    ended = _ended(["-m", "heedful", "envs"], tmp_path, WORLD_SIZE="many", RANK="0")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "many" in ended.stderr


def test_a_warning_that_is_an_error_ends_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def warns() -> int:
        raise UserWarning("old words")

    assert run_command(warns) == 2
    assert capsys.readouterr().err == "heedful: old words\n"


def test_an_error_that_nobody_foresaw_is_told_as_a_fault_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command: Any = partial(damage, 5)  # bytes are expected
    assert run_command(command, "the first steps are safe") == 1
    told = capsys.readouterr().err
    assert "heedful: an error that heedful did not foresee: TypeError: " in told
    assert re.search(r"\(at pixels\.py, line \d+, called at pixels\.py, line \d+", told)
    assert "The first steps are safe. This is a fault of heedful. Please report it" in told
    assert "Traceback" not in told
    assert told.count("\n") == 1
    monkeypatch.setenv("HEEDFUL_TRACEBACK", "1")
    with pytest.raises(TypeError):
        run_command(command)


def test_an_error_of_code_outside_of_heedful_is_raised_with_its_traceback() -> None:
    def of_a_user() -> int:
        raise KeyError("a slip")

    with pytest.raises(KeyError, match="a slip"):
        run_command(of_a_user)
