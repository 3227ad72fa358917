"""A program that runs heedful with a fault.

    python faulty.py REQUEST

The request is a JSON object: `fault` (the fields of `Fault`), `arguments` (of the `heedful` command), and `log` (the
file for its output). The number of file operations goes to `<log>.count`. Production code has no hook for this: Python
reports file operations to an audit hook, and calls without such a report are wrapped here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any, Literal

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.truncate")

Kind = Literal["none", "kill", "full", "clock"]

JUMP_S = -3 * 86_400.0
"""A clock that is set back by three days."""


@dataclass(frozen=True)
class Fault:
    kind: Kind = "none"
    """`kill`: SIGKILL. `full`: the disk is full from then on. `clock`: the clock jumps."""
    moment: int = 0
    """The file operation at which it happens, counted from 1. Only operations below `watched` count."""
    watched: str = ""


def apply(fault: Fault) -> Callable[[], int]:
    """Install the fault in this process. Returns a function that tells how many file operations there were."""
    seen = 0
    full = False

    def happens(path: object) -> None:
        nonlocal seen, full
        if not os.path.abspath(str(path)).startswith(fault.watched):
            return
        seen += 1
        if seen == fault.moment:
            if fault.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            full = fault.kind == "full"
            if fault.kind == "clock":
                _jump()
        if full:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if (event in CHANGES and not (full and event in ("os.remove", "os.rmdir", "shutil.rmtree"))) or (
            event == "open" and isinstance(arguments[0], str | os.PathLike) and _writes(arguments[2])
        ):
            happens(arguments[0])

    sync = os.fsync

    def fsync(descriptor: int) -> None:
        happens(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    os.fsync = fsync
    sys.addaudithook(heard)
    return lambda: seen


def _writes(flags: object) -> bool:
    """Reading changes nothing, a full disk can still be read, and a study reads as often as it has time to."""
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _jump() -> None:
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + JUMP_S
    time.time_ns = lambda: now_ns() + int(JUMP_S * 1e9)


def run(request: dict[str, Any]) -> int:
    """The exit code of one command. The number of its file operations is written beside the log."""
    from heedful import cli

    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    told = apply(Fault(**request["fault"]))
    try:
        code = cli.run(request["arguments"])
    finally:
        moments = told()
        sys.stdout.flush()
        sys.stderr.flush()
    if request["fault"]["kind"] != "full":
        Path(request["log"] + ".count").write_text(str(moments))
    return code


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1])))
