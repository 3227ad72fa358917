"""The trusted process that starts programs: one fork each, from an interpreter that is ready.

It is started with an empty environment by `lockbox.pool`, and speaks over one socket. It never reads a program
or its input. When the socket closes, it ends every program and itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from lockbox import program, walls
from lockbox.messages import Request

MODULES = """
    abc argparse array ast asyncio base64 binascii bisect bz2 calendar cmath cmd codecs collections collections.abc
    colorsys concurrent.futures concurrent.futures.thread contextlib copy copyreg cProfile csv ctypes dataclasses
    datetime decimal difflib dis doctest email encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1
    encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_8_sig enum
    errno fileinput fnmatch fractions functools gc getopt getpass glob graphlib gzip hashlib heapq hmac html inspect io
    ipaddress itertools json keyword linecache locale logging lzma math mmap multiprocessing numbers operator optparse
    os pathlib pickle platform pprint pstats queue random re reprlib resource sched secrets select selectors shlex
    shutil signal socket stat statistics string struct sysconfig tempfile textwrap threading time timeit token tokenize
    traceback tracemalloc types typing unicodedata unittest unittest.mock urllib.parse uuid warnings weakref
    xml.etree.ElementTree zlib zoneinfo __future__ _pydecimal _strptime
"""
"""What a program can import, and the modules that its sandbox offers. No file can be opened to load another one."""


def main() -> None:
    """Take the socket, the level, modules and a prelude from the command line. Serve until the socket closes."""
    connection, level, prelude = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[4]
    for name in (*MODULES.split(), *json.loads(sys.argv[3])):
        with suppress(ImportError):  # this machine lacks it
            module = importlib.import_module(name)
            for each in dir(module):  # what it would load at the first use of a name is loaded as well
                with suppress(ImportError, AttributeError, RuntimeError):
                    getattr(module, each)
    path = list(sys.path)
    sys.path.clear()
    memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
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
    code = compile(prelude, "<prelude>", "exec", dont_inherit=True)
    _Serving(connection, partial(program.run, level != "off", code, memory)).serve()


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

    def __init__(self, connection: socket.socket, become: Callable[[Request, list[int]], NoReturn]) -> None:
        """`become`: turns a fork into a program."""
        self._connection, self._become = connection, become
        self._events = select.poll()
        self._events.register(connection, select.POLLIN)
        self._running: dict[int, tuple[int, int]] = {}
        """The process and the control socket of a program, by the descriptor that tells of its end."""

    def serve(self) -> None:
        """Run programs until the trainer is gone. Then every program is ended."""
        while True:
            for descriptor, _ in self._events.poll():
                if descriptor in self._running:
                    self._report(descriptor)
                elif descriptor != self._connection.fileno():
                    self._end_unwanted(descriptor)
                elif not self._start():
                    for handle, (pid, _) in self._running.items():
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        os.waitpid(pid, 0)
                    return

    def _start(self) -> bool:
        """Fork the next program. False when the trainer is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._connection, 1 << 16, 8)
        if not data:
            return False
        request = Request(*json.loads(data))
        control, *own = descriptors
        pid = os.fork()
        if pid == 0:
            self._become(request, own)
        for each in own:
            os.close(each)
        handle = os.pidfd_open(pid)
        self._running[handle] = pid, control
        self._events.register(handle, select.POLLIN)
        self._events.register(control, select.POLLIN | select.POLLHUP)
        return True

    def _report(self, handle: int) -> None:
        """Say how a program ended: its status, seconds of CPU time, and largest resident memory in bytes."""
        pid, control = self._running.pop(handle)
        _, status, used = os.wait4(pid, 0)
        report = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        self._events.unregister(handle)
        os.close(handle)
        with suppress(KeyError):  # it was unwanted
            self._events.unregister(control)
        with suppress(OSError):  # the trainer has closed its end
            os.write(control, json.dumps(report).encode())
        os.close(control)

    def _end_unwanted(self, control: int) -> None:
        """The trainer closed its end of a control socket, or sent a byte: the program is to end."""
        for handle, (_, each) in self._running.items():
            if each == control:
                self._events.unregister(control)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
