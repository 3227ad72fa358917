"""The trainer's side: hand programs to a supervisor, and collect what they write.

A `Sandbox` may be used from several threads at once. Each call runs one program in a fresh process. When a supervisor
ends, another one is started.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lockbox.messages import Kind, Request, encode_value
from lockbox.outcome import Limits, Outcome, Running, SandboxError, collect

Level = Literal["full", "kernel", "strict", "off"]

_START_SECONDS = 120.0
"""How long a supervisor may take to import its modules, also on a busy machine."""


@dataclass(slots=True)
class _Supervisor:
    """One supervisor process, and the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    owner: int = field(default_factory=os.getpid)

    def works(self) -> bool:
        """Whether it is alive and was started by this process."""
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.connection.close()
        if self.owner == os.getpid():
            self.process.communicate()


class Sandbox:
    """Runs programs that nobody trusts. Use it as a context, or call `close`.

    `level`: `full` (namespaces, Landlock where there is one, filter), `kernel` (Landlock and filter) or `strict` (the
    filter alone). No level lets a program open a file, start a process or reach a network. `lockbox.proof`
    finds the highest level that this machine grants, and proves it. `off` keeps the limits of time and memory alone: a
    program can do whatever the trainer's user can.

    `modules`: those that programs can import beside the standard library, where this machine has them. `prelude`: code
    that runs before each program, in its module. Raises SandboxError if no supervisor can be started.
    """

    def __init__(
        self, level: Level, limits: Limits | None = None, modules: Sequence[str] = (), prelude: str = ""
    ) -> None:
        self.level: Level = level
        self.limits = limits or Limits()
        self._words = [level, json.dumps(list(modules)), prelude]
        self._lock = threading.Lock()
        self._supervisor: _Supervisor | None = None
        self._closed = False
        self._working()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the supervisor and every program that still runs. What asked for them gets SandboxError."""
        with self._lock:
            self._closed = True
            if self._supervisor is not None:
                self._supervisor.close()

    def run(self, source: str | bytes, stdin: str | bytes = b"", limits: Limits | None = None) -> Outcome:
        """Run a program with this standard input."""
        return self._run("script", "", source, stdin, limits)

    def call(
        self, source: str | bytes, function: str, arguments: Sequence[Any], limits: Limits | None = None
    ) -> Outcome:
        """Define what `source` defines, and call one function with plain data. `Outcome.value` is what it returned."""
        return self._run("function", function, source, encode_value(list(arguments)), limits)

    def check(
        self, source: str | bytes, function: str, checker: str | bytes, limits: Limits | None = None
    ) -> tuple[Outcome, Outcome]:
        """Run a checker against a function of `source`, which is in another process.

        The checker calls the function by its name, or defines `check(candidate)`. Returns its outcome and that of the
        candidate. The checker's `value()` is a word and a sentence: `right`, `wrong` (an assertion failed), `raised`
        (the candidate gave an error or no answer) or `broken` (any other error, which is the checker's own).
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            candidate = self._send("candidate", function, source, b"", limits, theirs)
            try:
                judge = self._send("checker", function, checker, b"", limits, ours)
            except SandboxError:
                candidate.close()  # which ends it
                raise
        collect(judge, candidate)
        outcomes = judge.outcome(), candidate.outcome()
        if outcomes[0] is None or outcomes[1] is None:
            raise SandboxError("the sandbox's supervisor ended while a checker ran")
        return outcomes[0], outcomes[1]

    def _run(self, kind: Kind, entry: str, source: str | bytes, stdin: str | bytes, limits: Limits | None) -> Outcome:
        for _ in range(2):
            running = self._send(kind, entry, source, stdin, limits)
            collect(running)
            if outcome := running.outcome():
                return outcome
        raise SandboxError("the sandbox's supervisor ended twice while it ran one program")

    def _send(
        self,
        kind: Kind,
        entry: str,
        source: str | bytes,
        stdin: str | bytes,
        limits: Limits | None,
        *peer: socket.socket,
    ) -> Running:
        """Hand one program over. Code and input are sealed memory files: nothing can rewrite them.

        `peer`: connects a candidate and its checker.
        """
        limits = limits or self.limits
        request = json.dumps(astuple(Request(kind, limits.cpu, limits.memory, entry))).encode()
        with ExitStack() as ours, ExitStack() as theirs:
            control, stdout, stderr, result = (_pair(make, ours, theirs) for make in (_sockets, *[os.pipe] * 3))
            given, code = _sealed(stdin, theirs), _sealed(source, theirs)
            peers = [each.fileno() for each in peer]
            self._hand_over(request, [control[1], given, stdout[1], stderr[1], code, result[1], *peers])
            ours.pop_all()  # they stay open
            return Running(control[0], [stdout[0], stderr[0], result[0]], limits)

    def _hand_over(self, request: bytes, descriptors: list[int]) -> None:
        for attempt in range(2):
            supervisor = self._working()
            try:
                socket.send_fds(supervisor.connection, [request], descriptors)
                return
            except OSError as error:
                if attempt:
                    raise SandboxError(f"the sandbox's supervisor does not answer: {error}") from error
                supervisor.process.kill()
                supervisor.process.wait()

    def _working(self) -> _Supervisor:
        """The supervisor, started again if it ended or belongs to the process that this one was forked from."""
        with self._lock:
            if self._closed:
                raise SandboxError("the sandbox was closed")
            found = self._supervisor
            if found is not None and not found.works():
                found.close()
                found = None
            self._supervisor = found or _started(self._words)
            return self._supervisor


def _started(words: list[str]) -> _Supervisor:
    """Start a supervisor with an empty environment, outside the session of the trainer. Raises SandboxError.

    `words`: the level, the modules and the prelude, as `supervisor.main` reads them.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = f"import sys; sys.path += {[str(Path(__file__).parents[1]), *sys.path]!r}; "
    command += "from lockbox import supervisor; supervisor.main()"
    # Numerical libraries would start threads, which a fork does not have.
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", command, str(theirs.fileno()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    ours.settimeout(_START_SECONDS)
    try:
        answer = ours.recv(4096)
    except TimeoutError:
        answer = f"no: it did not start within {_START_SECONDS:.0f} seconds".encode()
    ours.settimeout(None)
    if answer == b"ready":
        return _Supervisor(process, ours)
    ours.close()
    process.kill()
    _, errors = process.communicate()
    reason = answer.removeprefix(b"no: ") or errors.strip().rsplit(b"\n", 1)[-1] or b"it ended at once"
    raise SandboxError(f"the sandbox cannot start at level {words[0]}: {reason.decode('utf-8', 'replace')}")


def _sockets() -> tuple[int, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def _pair(make: Callable[[], tuple[int, int]], ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Two connected descriptors, each to be closed with its stack."""
    pair = make()
    for each, stack in zip(pair, (ours, theirs), strict=True):
        stack.callback(os.close, each)
    return pair


def _sealed(data: str | bytes, closing: ExitStack) -> int:
    """A file in memory that holds `data`, and that nobody can change. It is closed with the stack."""
    descriptor = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    closing.callback(os.close, descriptor)
    view = memoryview(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
