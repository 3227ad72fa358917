"""`python -m lockbox`: status and output of the program; a terminal gets no control characters."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from lockbox.__main__ import _show, main


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_escapes_and_a_file_gets_the_bytes() -> None:
    printed = "\x1b]0;title\x07 é\n".encode() + b"\xff"
    terminal, file = Terminal(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    _show(printed, terminal)
    _show(printed, file)
    assert terminal.buffer.getvalue() == "\\x1b]0;title\\x07 é\n\\xff".encode()  # type: ignore[attr-defined]
    assert file.buffer.getvalue() == printed  # type: ignore[attr-defined]


@pytest.mark.parametrize("flags", ["--memory 99999999999", "--memory 0", "--seconds 9999999", "--wall nan", ""])
def test_a_limit_or_a_file_that_is_none_ends_in_a_sentence(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lockbox", str(tmp_path / "none.py"), *flags.split()])
    assert main() == 2
    assert capsys.readouterr().err.startswith("lockbox: ")


def test_the_command_runs_a_file_and_passes_its_status_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(input() * 2)\nsys.exit(3)")
    command = [sys.executable, "-m", "lockbox", str(program), "--level", "strict", "--wall", "60"]
    done = subprocess.run(command, input=b"ab", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"abab\n")
    assert done.stderr.startswith(b"ended (level strict): ")
