"""The trusted process that starts programs: one fork each, from an interpreter that is ready.

It is started with an empty environment by `lockbox.pool`, and speaks over one socket. It never reads a program
or its input. When the socket closes, it ends every program and itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from lockbox import program, seccomp, walls
from lockbox.messages import LARGEST_REQUEST, Report, Request

MODULES = seccomp.words_of(
    """
    abc array ast asyncio base64 binascii bisect calendar cmath codecs collections collections.abc contextlib copy
    copyreg csv dataclasses datetime decimal difflib dis enum errno fractions functools gc graphlib hashlib heapq
    hmac html inspect io ipaddress itertools json keyword linecache locale logging math numbers operator os pathlib
    pickle platform pprint queue random re reprlib secrets select selectors shlex shutil signal socket stat
    statistics string struct sysconfig tempfile textwrap threading time timeit token tokenize traceback types typing
    unicodedata unittest unittest.mock urllib.parse uuid warnings weakref zlib zoneinfo _strptime _pydecimal
    encodings.ascii encodings.latin_1 encodings.utf_16 encodings.idna encodings.utf_8_sig encodings.cp1252
    encodings.raw_unicode_escape encodings.unicode_escape concurrent.futures concurrent.futures.thread
    multiprocessing email sched bz2 lzma gzip getpass argparse fileinput optparse resource ctypes
    xml.etree.ElementTree colorsys
    """
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

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(self.pid, signal.SIGKILL)


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
    _Serving(connection, None if level == "off" else seccomp.MACHINES[platform.machine()]).serve()


def preload() -> None:
    """Import what programs may use. A module that this Python lacks is left out."""
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)


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


class _Serving:
    """The programs that run, and what to wait for: a request, the end of a program, a program that is unwanted."""

    def __init__(self, connection: socket.socket, machine: seccomp.Machine | None) -> None:
        self._connection, self._machine = connection, machine
        self._events = select.poll()
        self._events.register(connection, select.POLLIN)
        self._running: dict[int, _Running] = {}
        """By the descriptor that tells of a program's end."""

    def serve(self) -> None:
        """Run programs until the trainer is gone. Then every program is ended."""
        while True:
            for descriptor, _ in self._events.poll(self._milliseconds()):
                if descriptor == self._connection.fileno():
                    if not self._start():
                        for each in self._running.values():
                            each.kill()
                            os.waitpid(each.pid, 0)
                        return
                elif descriptor in self._running:
                    self._report(descriptor)
                else:
                    self._end_unwanted(descriptor)
            now = time.monotonic()
            for each in self._running.values():
                if now > each.deadline and not each.overdue:
                    each.overdue = True
                    each.kill()

    def _milliseconds(self) -> float | None:
        """Until the next deadline."""
        if not self._running:
            return None
        nearest = min(each.deadline for each in self._running.values()) - time.monotonic()
        return max(1.0, min(nearest, 3600.0) * 1000) if nearest > 0 else _RETRY_SECONDS * 1000

    def _start(self) -> bool:
        """Fork the next program. False when the trainer is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._connection, LARGEST_REQUEST, 8)
        if not data:
            return False
        request = Request(*json.loads(data))
        control, *own = descriptors
        pid = os.fork()
        if pid == 0:
            program.run(request, own, self._machine)
        for each in own:
            os.close(each)
        now = time.monotonic()
        handle = os.pidfd_open(pid)
        self._running[handle] = _Running(pid, control, now, now + request.wall)
        self._events.register(handle, select.POLLIN)
        self._events.register(control, select.POLLIN | select.POLLHUP)
        return True

    def _report(self, handle: int) -> None:
        """Say how a program ended."""
        ended = self._running.pop(handle)
        _, status, used = os.wait4(ended.pid, 0)
        self._events.unregister(handle)
        os.close(handle)
        code, wall = os.waitstatus_to_exitcode(status), time.monotonic() - ended.started
        report = Report(code, used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024, ended.overdue)
        with suppress(KeyError):  # it was unwanted
            self._events.unregister(ended.control)
        with suppress(OSError):  # the trainer has closed its end
            os.write(ended.control, report.encoded())
        os.close(ended.control)

    def _end_unwanted(self, control: int) -> None:
        """The trainer closed its end of a control socket, or sent a byte: the program is to end."""
        for each in self._running.values():
            if each.control == control:
                self._events.unregister(control)
                each.kill()


if __name__ == "__main__":
    preload()
    main()
