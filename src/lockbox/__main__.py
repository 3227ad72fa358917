"""`python -m lockbox FILE`: run one program in the sandbox, with standard input passed on."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TextIO

from lockbox.outcome import Limits, SandboxError
from lockbox.proof import LEVELS, opened

_EXIT = {"ended": None, "error": 1, "cpu": 124, "waited": 124, "output": 125, "forbidden": 126, "crashed": 126}

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def _show(output: bytes, stream: TextIO) -> None:
    """What the program printed, byte for byte. A terminal would obey its control characters, so it gets escapes."""
    if stream.isatty():
        text = output.decode("utf-8", "backslashreplace")
        output = _CONTROL.sub(lambda sign: ascii(sign[0])[1:-1], text).encode()
    stream.buffer.write(output)
    stream.flush()


def main() -> int:
    """Run the program named on the command line. Returns its exit status, or 2 if it could not be run safely."""
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
        source = typed.file.read_bytes()
        given = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
        with opened(typed.level, limits) as sandbox:
            outcome = sandbox.run(source, given)
    except (SandboxError, OSError, ValueError) as error:
        print(f"lockbox: {error}", file=sys.stderr)
        return 2
    _show(outcome.stdout, sys.stdout)
    _show(outcome.stderr, sys.stderr)
    told = f"{outcome.ending} (level {sandbox.level}): {outcome.cpu:.3f} s of CPU, {outcome.memory >> 20} MiB"
    print(told, file=sys.stderr)
    code = _EXIT[outcome.ending]
    return outcome.status if code is None else code


if __name__ == "__main__":
    sys.exit(main())
