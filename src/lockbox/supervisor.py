"""The trusted process that starts programs: one fork each, from an interpreter that is ready.

It is started with an empty environment by `lockbox.pool`, and speaks over one socket. It never reads a program
or its input. When the socket closes, it ends every program and itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import platform
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from lockbox import program, seccomp, walls
from lockbox.messages import LARGEST_REQUEST, Report, Request

MODULES = (
    *("abc", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath", "codecs", "collections"),
    *("collections.abc", "contextlib", "copy", "copyreg", "csv", "dataclasses", "datetime", "decimal", "difflib"),
    *("dis", "enum", "errno", "fractions", "functools", "gc", "graphlib", "hashlib", "heapq", "hmac", "html"),
    *(
        "inspect",
        "io",
        "ipaddress",
        "itertools",
        "json",
        "keyword",
        "linecache",
        "locale",
        "logging",
        "math",
        "numbers",
    ),
    *("operator", "os", "pathlib", "pickle", "platform", "pprint", "queue", "random", "re", "reprlib", "secrets"),
    *("select", "selectors", "shlex", "shutil", "signal", "socket", "stat", "statistics", "string", "struct"),
    *("sysconfig", "tempfile", "textwrap", "threading", "time", "timeit", "token", "tokenize", "traceback", "types"),
    *("typing", "unicodedata", "unittest", "unittest.mock", "urllib.parse", "uuid", "warnings", "weakref", "zlib"),
    *(
        "zoneinfo",
        "_strptime",
        "_pydecimal",
        "encodings.ascii",
        "encodings.latin_1",
        "encodings.utf_16",
        "encodings.idna",
    ),
    *("encodings.utf_8_sig", "encodings.cp1252", "encodings.raw_unicode_escape", "encodings.unicode_escape"),
    *("concurrent.futures", "concurrent.futures.thread", "multiprocessing", "email", "sched", "bz2", "lzma", "gzip"),
    *("getpass", "argparse", "fileinput", "optparse", "resource", "ctypes", "xml.etree.ElementTree", "colorsys"),
)
"""What a program can import. Nothing else can be loaded, since no file can be opened."""

_RETRY_SECONDS = 0.05
"""Until the next look at programs whose deadline has passed and that have not ended yet."""


@dataclass(slots=True)
class _Running:
    pid: int
    control: int
    started: float
    deadline: float
    overdue: bool = False


def main() -> None:
    """Take the socket and the level from the command line, and serve until the socket closes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    level = sys.argv[2]
    path = list(sys.path)
    sys.path.clear()
    try:
        _close_off(level, connection)
    except OSError as error:
        connection.send(f"no: {error}".encode())
        sys.exit(1)
    gc.collect()
    gc.freeze()
    if level == "off":
        sys.path[:] = path
    connection.send(b"ready")
    _serve(connection, level != "off")


def preload() -> None:
    """Import what programs may use. A module that this Python lacks is left out."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def _close_off(level: str, connection: socket.socket) -> None:
    """Put up the walls of a level. In new namespaces the work goes on in a child, which is their first process."""
    if level == "full":
        walls.enter_namespaces()
        child = os.fork()
        if child:
            connection.close()
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        program.die_with_parent()
    if level in ("full", "kernel") and walls.landlock_version():
        walls.enter_landlock()
    elif level == "kernel":
        raise OSError("this kernel offers no Landlock")


def _serve(connection: socket.socket, locked: bool) -> None:
    machine = seccomp.MACHINES[platform.machine()] if locked else None
    events = select.poll()
    events.register(connection, select.POLLIN)
    running: dict[int, _Running] = {}
    while True:
        ready = events.poll(_wait(running))
        for descriptor, _ in ready:
            if descriptor == connection.fileno():
                if not _start(connection, machine, events, running):
                    _end_all(running)
                    return
            elif found := running.get(descriptor):
                _reap(descriptor, found, events, running)
            else:
                _kill_if_unwanted(descriptor, events, running)
        now = time.monotonic()
        for each in running.values():
            if now > each.deadline and not each.overdue:
                each.overdue = True
                _kill(each)


def _wait(running: dict[int, _Running]) -> float | None:
    """Milliseconds until the next deadline."""
    if not running:
        return None
    nearest = min(each.deadline for each in running.values()) - time.monotonic()
    return max(1.0, min(nearest, 3600.0) * 1000) if nearest > 0 else _RETRY_SECONDS * 1000


def _start(
    connection: socket.socket, machine: seccomp.Machine | None, events: select.poll, running: dict[int, _Running]
) -> bool:
    """Fork the next program. False when the trainer is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 8)
    if not data:
        return False
    request = Request.decoded(data)
    control, *own = descriptors
    pid = os.fork()
    if pid == 0:
        program.run(request, own, machine)
    for each in own:
        os.close(each)
    now = time.monotonic()
    handle = os.pidfd_open(pid)
    running[handle] = _Running(pid, control, now, now + request.wall)
    events.register(handle, select.POLLIN)
    events.register(control, select.POLLIN | select.POLLHUP)
    return True


def _reap(handle: int, ended: _Running, events: select.poll, running: dict[int, _Running]) -> None:
    """Report how a program ended. What it left behind in its group is ended, too."""
    _, status, used = os.wait4(ended.pid, 0)
    events.unregister(handle)
    os.close(handle)
    del running[handle]
    report = Report(
        os.waitstatus_to_exitcode(status),
        used.ru_utime + used.ru_stime,
        time.monotonic() - ended.started,
        used.ru_maxrss * 1024,
        ended.overdue,
    )
    _quietly(lambda: events.unregister(ended.control))
    _quietly(lambda: os.write(ended.control, report.encoded()))
    os.close(ended.control)


def _kill_if_unwanted(control: int, events: select.poll, running: dict[int, _Running]) -> None:
    """The trainer closed its end of the control socket, or sent a byte: the program is to end."""
    for each in running.values():
        if each.control == control:
            _quietly(lambda: events.unregister(control))
            _kill(each)
            return


def _kill(each: _Running) -> None:
    _quietly(lambda: os.kill(each.pid, signal.SIGKILL))


def _end_all(running: dict[int, _Running]) -> None:
    for each in running.values():
        _kill(each)
        os.waitpid(each.pid, 0)


def _quietly(call: Callable[[], object]) -> None:
    """What may fail because the other side is gone already."""
    try:
        call()
    except (OSError, KeyError):
        return


if __name__ == "__main__":
    preload()
    main()
