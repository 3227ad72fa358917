"""`python -m heedful.sandbox`: what a program prints reaches a terminal without its control characters."""

import io
import sys

import pytest

from heedful.sandbox.__main__ import _show, main


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
    assert main() == 2
    assert "found a pipe or a device" in capsys.readouterr().err
