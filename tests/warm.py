"""Processes that have torch loaded when they begin: forks of one process that has loaded everything.

    process = WarmProcess(["-m", "heedful", "train", "echo"], folder, environment)

It does what `python PROGRAM...` does with the same words, folder and environment, and is used like a `Popen[str]` whose
output and errors are one pipe. It saves the five seconds of CPU time that each `import torch, transformers` takes. What
a cold start alone can show, such as options of the interpreter, needs a `subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import runpy
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LENGTH = struct.Struct("!I")


class WarmProcess:
    """One program. It has the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        output, self._told = os.pipe(), os.pipe()
        request = {"words": self.args, "folder": str(folder), "environment": dict(environment)}
        _server().start(request, [output[1], self._told[1]])
        os.close(output[1])
        os.close(self._told[1])
        self.stdout = os.fdopen(output[0], encoding="utf-8", errors="replace")
        self._lock = threading.Lock()
        self.pid = int(self._number() or 0)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if not self._lock.acquire(blocking=False):
            return self.returncode  # another thread waits for it
        try:
            if self.returncode is None and _readable(self._told[0], 0.0):
                self._take_code()
        finally:
            self._lock.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                if not _readable(self._told[0], timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                self._take_code()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """All output. Children that hold the pipe open do not count: the time-out is that of the program."""
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reader.start()
        self.wait(timeout)
        reader.join(timeout)
        return "".join(said), None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and its code is under way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _take_code(self) -> None:
        code = self._number()
        assert code is not None, "the process that watches it has ended"
        self.returncode = code

    def _number(self) -> int | None:
        raw = b""
        while len(raw) < 8 and (more := os.read(self._told[0], 8 - len(raw))):
            raw += more
        return int(struct.unpack("!q", raw)[0]) if len(raw) == 8 else None


def in_place_of_popen(words: Sequence[str], stdout: IO[bytes], **options: object) -> WarmProcess:
    """Stands in for `subprocess.Popen` of `python ... -m MODULE ...` or `-c PROGRAM`, with its output in an open file.

    `options`, such as the session and the inherited descriptors, belong to a cold start alone.
    """
    first = next(place for place, word in enumerate(words) if word in ("-m", "-c"))
    process = WarmProcess(words[first:], Path.cwd(), os.environ)
    log = os.fdopen(os.dup(stdout.fileno()), "wb")

    def copy() -> None:
        with log:
            shutil.copyfileobj(process.stdout.buffer, log)

    threading.Thread(target=copy, daemon=True).start()
    return process


def _readable(descriptor: int, timeout: float | None) -> bool:
    import select

    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poller.poll(None if timeout is None else timeout * 1000))


class _Server:
    """The process that has loaded everything."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair()
        paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())],
            pass_fds=[there.fileno()],
            env=os.environ | {"PYTHONPATH": paths},
        )
        there.close()
        self._lock = threading.Lock()

    def start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        body = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._here, [_LENGTH.pack(len(body))], descriptors)
            self._here.sendall(body)

    def end(self) -> None:
        self._here.close()
        self.process.wait()


_only: list[_Server] = []


def _server() -> _Server:
    """One per process of pytest. It ends with it."""
    if not _only:
        _only.append(_Server())
        atexit.register(_only[0].end)
    return _only[0]


def main(descriptor: int) -> None:
    """Answer requests until the other end closes."""
    import torch

    torch.set_num_threads(1)
    import heedful.auditing
    import heedful.cli.train
    import heedful.policies.hf
    import heedful.report
    import heedful.run.loop
    import heedful.run.train
    import heedful.studies.running.runner  # noqa: F401

    _rehearse()
    gc.freeze()  # so that no fork visits these objects again

    line = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest
    while True:
        head, descriptors, _, _ = socket.recv_fds(line, _LENGTH.size, 2)
        if not head:
            return
        request = json.loads(_exactly(line, *_LENGTH.unpack(head)))
        if os.fork() == 0:
            line.close()
            _watch(request, *descriptors)
        for each in descriptors:
            os.close(each)


def _rehearse() -> None:
    """One tiny run. Forks find the patterns and templates compiled that a first run compiles, in a second of CPU."""
    from heedful import cli

    sizes = (
        "--steps 1 --groups 2 --group-size 2 --seedling.steps 1 --seedling.hidden 32 --seedling.layers 1 --threads 1"
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        kept, os.environ["HEEDFUL_CACHE"] = os.environ.get("HEEDFUL_CACHE", ""), folder
        assert cli.run(["train", "echo", "--out", f"{folder}/run", *sizes.split()]) == 0
        os.environ["HEEDFUL_CACHE"] = kept


def _exactly(line: socket.socket, count: int) -> bytes:
    body = b""
    while len(body) < count:
        body += line.recv(count - len(body))
    return body


def _watch(request: dict[str, Any], output: int, told: int) -> None:
    """Run the program in a child, and tell its process id and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(told)
        _run(request, output)
    os.close(output)
    os.write(told, struct.pack("!q", child))
    _, status = os.waitpid(child, 0)
    os.write(told, struct.pack("!q", os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run(request: dict[str, Any], output: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    code = 1
    try:
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        for path in reversed(request["environment"].get("PYTHONPATH", "").split(os.pathsep)):
            if path and path not in sys.path:
                sys.path.insert(0, path)
        code = _exit_code(request["words"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(code)


def _exit_code(words: list[str]) -> int:
    """What the interpreter would end with."""
    try:
        if words[0] == "-m":
            sys.argv = [words[1], *words[2:]]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
