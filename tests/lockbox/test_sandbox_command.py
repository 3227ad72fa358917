"""`python -m lockbox`: what a program prints reaches a terminal without its control characters."""

import io
import sys
from pathlib import Path

import pytest

from heedful.command_process import run_command
from lockbox import __main__ as command
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


def test_a_device_is_no_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sandbox", "/dev/zero"])
    assert run_command(main) == 2
    assert "found a pipe or a device" in capsys.readouterr().err


def test_more_input_than_fits_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text("print(1)")
    monkeypatch.setattr(command, "_MOST_READ", 1 << 20)
    monkeypatch.setattr(sys, "argv", ["sandbox", str(tmp_path / "program.py")])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(3 << 20))))
    assert run_command(main) == 2
    assert sys.stdin.buffer.tell() < 2 << 20
    assert "Expected standard input of at most 1 MiB, found more" in capsys.readouterr().err


@pytest.mark.parametrize("flags", ["--memory 99999999999", "--memory 0", "--seconds 9999999", "--wall nan"])
def test_a_limit_that_is_none_is_refused(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sandbox", str(tmp_path), *flags.split()])
    assert run_command(main) == 2
    told = capsys.readouterr().err
    assert "must be" in told or "memory must be between 64 and 134,217,728 MiB, found " in told
