"""One process of our own that answers questions and is watched: started, asked, timed out, ended.

    worker = Worker(load, argument)             # in the process: answer = load(argument)
    reply = worker.ask(b"question", seconds=5)  # in the process: reply = answer(b"question")
    worker.end()

`load` is a function at the top of an importable module. It is called once, in the process, with the bytes `argument`,
and returns the function that answers: bytes in, bytes out. Whoever needs a type pickles or writes JSON on both sides.
`rollout.workers` plays episodes this way.

A question is answered, or an exception says why not, within its seconds. A process that dies, hangs or breaks the
line is killed, with all that it has started. It never outlives the process that started it. It ignores signals of a
scheduler, which reach every process of a job: its owner finishes a step first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

from heedful.guarded import Raised, RaisedElsewhere, guarded_call
from heedful.stopping import leave_signals_to_the_parent

Answer = Callable[[bytes], bytes]

GRACE = 5.0
"""Seconds in which a process that has closed its line is expected to end."""

_HEADER = struct.Struct("!cdQ")
"""Of a message: its kind, the seconds that a question may take, the number of bytes that follow."""
_KINDS = _QUESTION, _BEGUN, _ANSWER, _RAISED = b"q", b"b", b"a", b"r"

_PROGRAM = (
    "import sys; line, lifeline = map(int, sys.argv[1:3]); sys.path[:] = sys.argv[3:]; sys.argv[1:] = []; "
    "from heedful.worker import serve; from {module} import {name}; serve({name}, line, lifeline)"
)


class WorkerDied(RuntimeError):
    """The process is gone, and what it held with it."""


class WorkerTimedOut(RuntimeError):
    """The process was killed because a question took too long."""


class NotBegun(RuntimeError):
    """The process was dead before it began with a question, which another process may be asked."""


class Worker:
    """One process, for one thread at a time, but for `interrupt`."""

    def __init__(
        self,
        load: Callable[[bytes], Answer],
        argument: bytes = b"",
        *,
        loading: float = 300.0,
        quiet: bool = False,
    ) -> None:
        """Start the process, without waiting for it.

        `loading`: seconds for the call of `load`. `quiet`: nothing that it prints is shown.
        """
        self.obituary = ""
        """How it ended, as a clause. Empty while it is not known to have ended."""
        self.timed_out = False
        self._loading = loading
        self._ready = self._asking = False
        self._line, theirs = socket.socketpair()
        watched, self._lifeline = os.pipe()
        program = _PROGRAM.format(module=load.__module__, name=load.__name__)
        try:
            # A group of its own: Ctrl-C in a terminal is for the owner, and what the process starts dies with it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno()), str(watched), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.DEVNULL if quiet else None,
                pass_fds=(theirs.fileno(), watched),
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(watched)
        _OURS.add(self)
        with contextlib.suppress(EOFError, TimeoutError):  # if it is dead already, `await_ready` says so
            _send(self._line, _QUESTION, argument, time.monotonic() + loading)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until `load` has returned. Raises NotBegun, with the reason, if it does not."""
        if self._ready:
            return
        try:
            kind, _, said = _receive(self._line, time.monotonic() + self._loading)
        except TimeoutError:
            self._bury(f"had not loaded after {self._loading:g} s and was killed")
        except EOFError:
            self._bury(f"died while it loaded ({self._status()})")
        else:
            self._ready = kind == _ANSWER
            if not self._ready:
                self._bury(f"could not load: {said.decode()}")
        if not self._ready:
            raise NotBegun(self.obituary)

    def ask(self, question: bytes, seconds: float = 0.0, what: str = "question") -> bytes:
        """The answer to one question, a `what`. `seconds`: its time limit, 0 = none.

        Raises:
            NotBegun: it was dead before.
            WorkerDied: it died over this question.
            WorkerTimedOut: it took too long and was killed.
            RaisedElsewhere: what the answering function raised, as text. The process goes on.
        """
        if self._asking:  # an interrupt came between a question and its answer: the line is out of step
            self._bury(f"was interrupted over a {what} and was ended")
        if self.obituary:
            raise NotBegun(self.obituary)
        self._asking, begun = True, False
        self.await_ready()
        deadline = time.monotonic() + seconds if seconds else None
        try:
            _send(self._line, _QUESTION, question, deadline, seconds)
            begun = _receive(self._line, deadline)[0] == _BEGUN
            kind, _, answer = _receive(self._line, deadline) if begun else (b"", 0.0, b"")
        except TimeoutError:
            self.timed_out = True
            self._bury(f"took longer than {seconds:g} s over a {what} and was killed")
            raise WorkerTimedOut(f"this {what} took longer than {seconds:g} s; its process was killed") from None
        except EOFError:
            status = self._status()
            self._bury(f"died over a {what} ({status})" if begun else f"died between two requests ({status})")
            if begun:
                raise WorkerDied(f"the process died over this {what} ({status})") from None
            raise NotBegun(self.obituary) from None
        if kind not in (_ANSWER, _RAISED):  # foreign code in the process wrote into the line
            self._bury(f"answered a {what} with something that is no answer and was ended")
            raise WorkerDied(f"the process was ended, since its answer to this {what} was none")
        self._asking = False
        if kind == _RAISED:
            raise RaisedElsewhere(answer.decode())
        return answer

    def interrupt(self) -> None:
        """Break the line, from whatever thread: whoever waits for an answer gets none, and the process ends."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def end(self, grace: float = 0.0) -> None:
        """End the process. `grace`: seconds in which it may end by itself, unless it is at work."""
        if grace > 0 and not self._asking and not self.obituary:
            self.interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._bury("was ended by its owner")

    def let_go(self) -> None:
        """In a forked child: the process is the parent's, and must not wait for this end of the line, too."""
        if not self.obituary:
            self.obituary = "belongs to the process that was forked"
            self._close()

    def _status(self) -> str:
        """How it ended, once it has closed its end of the line."""
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "it closed its line"
        if code == -signal.SIGKILL:
            return "SIGKILL, from outside or out of memory"
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name

    def _bury(self, obituary: str) -> None:
        """Kill the process, and what it has started, if they still run."""
        if self.obituary:
            return
        self.obituary = obituary
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        os.close(self._lifeline)
        self._line.close()


_OURS: weakref.WeakSet[Worker] = weakref.WeakSet()
"""The workers of this process."""


def _let_all_go() -> None:
    for worker in list(_OURS):
        worker.let_go()
    _OURS.clear()


os.register_at_fork(after_in_child=_let_all_go)


def serve(load: Callable[[bytes], Answer], line_descriptor: int, lifeline: int) -> None:
    """Inside the process: load, then answer questions until the other end closes.

    `lifeline`: the reading end of a pipe that is closed when the owner ends.
    """
    leave_signals_to_the_parent()
    threading.Thread(target=_die_with_owner, args=(lifeline,), daemon=True).start()
    with socket.socket(fileno=line_descriptor) as line, contextlib.suppress(EOFError):
        _, _, argument = _receive(line)
        answer = guarded_call(lambda: load(argument))
        _reply(line, answer if isinstance(answer, Raised) else b"")
        while not isinstance(answer, Raised):
            _, seconds, question = _receive(line)
            # Before foreign code is called: so the owner can tell a process found dead from one that died of this.
            _send(line, _BEGUN)
            # If the owner dies while foreign code holds the interpreter, no thread of ours runs: the kernel ends it.
            signal.setitimer(signal.ITIMER_REAL, 2 * seconds + GRACE if seconds else 0.0)
            said = guarded_call(lambda question=question: answer.value(question))  # type: ignore[misc]
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            _reply(line, said if isinstance(said, Raised) else said.value)


def _reply(line: socket.socket, answer: bytes | Raised) -> None:
    if isinstance(answer, Raised):
        _send(line, _RAISED, str(answer).encode(errors="replace"))
    else:
        _send(line, _ANSWER, answer)


def _die_with_owner(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    # What the process has started is in its group and goes with it.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    sys.stdout.flush()
    os._exit(1)


def _send(
    line: socket.socket, kind: bytes, message: bytes = b"", deadline: float | None = None, seconds: float = 0.0
) -> None:
    """Raises EOFError where the other end has closed, TimeoutError past the deadline (of `time.monotonic`)."""
    line.settimeout(_left(deadline))
    try:
        line.sendall(_HEADER.pack(kind, seconds, len(message)) + message)
    except (BrokenPipeError, ConnectionResetError):
        raise EOFError from None


def _receive(line: socket.socket, deadline: float | None = None) -> tuple[bytes, float, bytes]:
    """Kind, seconds and content of the next message. Raises as `_send` does. An unknown kind has no content."""
    kind, seconds, length = _HEADER.unpack(_exactly(line, _HEADER.size, deadline))
    return kind, seconds, _exactly(line, length, deadline) if kind in _KINDS else b""


def _exactly(line: socket.socket, count: int, deadline: float | None = None) -> bytes:
    received = bytearray()
    while len(received) < count:
        line.settimeout(_left(deadline))
        try:
            part = line.recv(min(count - len(received), 2**16))
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        received += part
    return bytes(received)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
