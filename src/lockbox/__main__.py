"""`python -m lockbox FILE`: run one program in the sandbox, with standard input passed on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from heedful.boundary import clean, complain
from heedful.boundary.open_files import open_file, read_up_to
from heedful.command_process import prepare_streams, run_command
from lockbox.outcome import Limits, SandboxError
from lockbox.proof import LEVELS, opened

_EXIT = {"ended": None, "error": 1, "cpu": 124, "waited": 124, "output": 125, "forbidden": 126, "crashed": 126}

_MOST_READ = 1 << 26
"""Bytes of a program, and of its standard input. Both are held in memory."""


def _show(output: bytes, stream: TextIO) -> None:
    """What the program printed, byte for byte. A terminal would obey its control characters, so it gets escapes."""
    shown = clean(output.decode("utf-8", "backslashreplace")).encode() if stream.isatty() else output
    stream.buffer.write(shown)
    stream.flush()


def _whole(stream: BinaryIO, what: str) -> bytes:
    """All that a stream holds. Raises ValueError for more than `_MOST_READ`."""
    content = read_up_to(stream, _MOST_READ + 1)
    if len(content) > _MOST_READ:
        raise ValueError(f"Expected {what} of at most {_MOST_READ >> 20} MiB, found more.")
    return content


def main() -> int:
    """Run the program named on the command line. Returns its exit status, or 2 if there is no safe sandbox."""
    usual = Limits()
    parser = argparse.ArgumentParser(
        "python -m lockbox",
        description="Run a Python program where it can open no file, start no process and reach no network.",
        epilog="Exit codes: the program's own; 1 uncaught error, 2 no safe sandbox here, 124 out of time, 125 too much "
        "output, 126 ended by the kernel.",
    )
    parser.add_argument("file", type=Path, help="the program, in Python")
    parser.add_argument(
        "--level", choices=("auto", *LEVELS), default="auto", help="the walls to use (auto: all there are)"
    )
    parser.add_argument("--seconds", type=int, default=usual.cpu, help="CPU time")
    parser.add_argument("--wall", type=float, default=usual.wall, help="seconds in all")
    parser.add_argument("--memory", type=int, default=usual.memory >> 20, help="address space, in MiB")
    typed = parser.parse_args()
    try:
        limits = Limits(typed.seconds, typed.wall, typed.memory << 20)
        with open_file(typed.file) as file:
            source = _whole(file, "a program")
        given = b"" if sys.stdin.isatty() else _whole(sys.stdin.buffer, "standard input")
        with opened(typed.level, limits) as sandbox:
            outcome = sandbox.run(source, given)
    except SandboxError as error:
        complain(str(error))
        return 2
    _show(outcome.stdout, sys.stdout)
    _show(outcome.stderr, sys.stderr)
    complain(f"{outcome.ending} (level {sandbox.level}): {outcome.cpu:.3f} s of CPU, {outcome.memory >> 20} MiB")
    code = _EXIT[outcome.ending]
    return outcome.status if code is None else code


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run_command(main))
