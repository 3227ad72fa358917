"""A program that runs heedful with a fault: it imports everything once and forks for each run.

    python faulty.py

Each line on standard input is a request, a JSON object with the fields of `Fault`, `arguments` (of the `heedful`
command), `folder` (where it runs) and `log` (where its output goes). Each line on standard output answers one request:
the exit code and the number of file operations of the run. Production code has no hook for this: Python reports file
operations to an audit hook, and calls without such a report are wrapped here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
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


def run(request: dict[str, Any]) -> tuple[int, int]:
    """Exit code (negative: the signal) and file operations (-1 where it was killed) of one run, in a fork."""
    count = Path(request["log"] + ".count")
    count.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _run_here(request, count)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(count.read_text()) if count.exists() else -1


def _run_here(request: dict[str, Any], count: Path) -> int:
    from heedful import cli

    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.chdir(request["folder"])
    told = apply(Fault(**request["fault"]))
    try:
        code = cli.run(request["arguments"])
    finally:
        moments = told()
        sys.stdout.flush()
        sys.stderr.flush()
    if request["fault"]["kind"] != "full":
        count.write_text(str(moments))
    return code


def main() -> None:
    import torch

    torch.set_num_threads(1)
    import heedful.auditing
    import heedful.report
    import heedful.run.loop
    import heedful.studies.runner  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
