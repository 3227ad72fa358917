"""What runs inside: the process of one program, from the fork to its end.

The process first gives up everything that it may lose, and reads the program only then. Nothing that could be worth
stealing is in its memory: no test, no expected value, no other program.
"""

from __future__ import annotations

import atexit
import builtins
import fcntl
import gc
import io
import os
import random
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any, NoReturn

from lockbox import seccomp, walls
from lockbox.messages import (
    CODE,
    NOT_STARTED,
    PEER,
    RESULT,
    STARTED,
    STDERR,
    STDIN,
    STDOUT,
    UNCAUGHT,
    NotPlain,
    Request,
    decode_value,
    encode_value,
)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4

_FIRST_FREE = 64
"""Descriptors are copied here before they take their places, so that none overwrites another."""

_LONGEST_LINE = 1 << 24

PROGRAM = "<program>"
"""The name of the program in tracebacks."""

_STREAMS = {
    name: number
    for number, word in enumerate(("stdin", "stdout", "stderr"))
    for name in (f"/dev/{word}", f"/dev/fd/{number}", f"/proc/self/fd/{number}")
}
"""The files that a program may open by name: its own streams."""


def run(locked: bool, prelude: CodeType, memory: int, request: Request, descriptors: list[int]) -> NoReturn:
    """Become the program. Never returns. A program that cannot be locked in is not started.

    Args:
        locked: behind the filter. Else it has the limits alone (level `off`).
        prelude: runs before the program, in its module.
        memory: bytes of address space of the supervisor, which a program has before it begins.
    """
    try:
        for place, copy in enumerate([fcntl.fcntl(each, fcntl.F_DUPFD, _FIRST_FREE) for each in descriptors]):
            os.dup2(copy, place)
        os.closerange(len(descriptors), 4096)
        _furnish(request.memory)
        _limit(request, memory)
        if locked:
            _lock_in()
        os.write(RESULT, STARTED)
    except (OSError, ValueError) as error:
        os.write(STDERR, f"the sandbox could not be closed: {error}".encode())
        os._exit(NOT_STARTED)
    _finish(_MODES[request.kind], request.entry, prelude)


def _furnish(memory: int) -> None:
    """What programs of contests expect: streams, also by their names, their sizes, a deep stack and long numbers."""
    real_open, real_descriptor, real_size = io.open, os.open, threading.stack_size
    sys.stdin = real_open(STDIN, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = real_open(STDOUT, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = real_open(STDERR, "w", 1, "utf-8", "backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    sys.argv = [PROGRAM]
    sys.set_int_max_str_digits(0)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    # The C library asks for the size of a descriptor by a call that could also ask for that of any file.
    sizes = {each: os.fstat(number) for name, number in _STREAMS.items() for each in (name, number)}

    def sized(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda file, *rest, **named: sizes[file] if file in sizes else real(file, *rest, **named)

    def opened(file: Any, *rest: Any, **named: Any) -> Any:
        place = _STREAMS.get(str(file))
        return real_open(file if place is None else os.dup(place), *rest, **named)

    def descriptor(path: Any, *rest: Any, **named: Any) -> int:
        return os.dup(_STREAMS[path]) if path in _STREAMS else real_descriptor(path, *rest, **named)

    builtins.open = io.open = opened
    os.open, os.stat, os.fstat = descriptor, sized(os.stat), sized(os.fstat)
    threading.stack_size = lambda size=0: real_size(min(size, memory // 4))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (memory if hard < 0 else min(memory, hard), hard))


def die_with_parent() -> None:
    """Be killed by the kernel when the parent ends."""
    seccomp.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(request: Request, memory: int) -> None:
    """Give up time, memory and files, and forget the surroundings."""
    os.setsid()
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for name, most in (
        (resource.RLIMIT_AS, memory + request.memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (most, most))
    # The signal of the lower limit says what ended the program. A kill alone would not, where the kernel counts more
    # time than `getrusage` tells, as on a machine that is shared.
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu, request.cpu + 1))
    os.environ.clear()
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)


def _lock_in() -> None:
    """Give up all rights, and at last every system call that is not needed."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(walls.SANDBOX_USER)
        os.setuid(walls.SANDBOX_USER)
    walls.drop_capabilities()
    seccomp.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    seccomp.install(seccomp.filter_program(os.getpid()))


def _finish(mode: Callable[[str, dict[str, Any]], None], entry: str, prelude: CodeType) -> NoReturn:
    """Run the program, write out what it printed, and end without a clean-up of the interpreter."""
    status = UNCAUGHT
    try:
        try:
            module = ModuleType("__main__" if mode is _script else "solution")
            sys.modules[module.__name__] = module
            names = module.__dict__
            names["__file__"] = PROGRAM
            exec(prelude, names)
            names.pop(entry, None)  # it must be the program's own
            mode(entry, names)
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            status = status if -(2**63) <= status < 2**63 else 255  # as Python itself ends then
        finally:
            if raised := sys.exc_info()[1]:
                os.write(STDERR, _described(raised).encode("utf-8", "backslashreplace")[-4000:])
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                names.clear()
                gc.collect()  # writes out the files that the program left open
                sys.__stdout__.flush()  # type: ignore[union-attr]
    finally:
        os._exit(status & 0xFF)


def _described(error: BaseException) -> str:
    """The error with the frames of the program, without those of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != PROGRAM:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-8))


def _script(entry: str, names: dict[str, Any]) -> None:
    """Define what the program defines. Its text is read only now, behind the filter."""
    parts = []
    while part := os.read(CODE, 1 << 20):
        parts.append(part)
    os.close(CODE)
    exec(compile(b"".join(parts), PROGRAM, "exec", dont_inherit=True), names)


def _found(entry: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function of that name, or the method of a class `Solution`, as contests have it."""
    _script(entry, names)
    if callable(found := names.get(entry)):
        return found
    solution = names.get("Solution")
    if solution is not None and callable(method := getattr(solution(), entry, None)):
        return method
    raise NameError(f"the program defines no function {entry}")


def _function(entry: str, names: dict[str, Any]) -> None:
    """Call the function with the arguments on standard input. Its value goes to the result descriptor, and only it."""
    arguments = decode_value(sys.stdin.buffer.read())
    _send(RESULT, encode_value(_found(entry, names)(*arguments)))


def _candidate(entry: str, names: dict[str, Any]) -> None:
    """Answer the checker's calls until it has no more."""
    function = _found(entry, names)
    with io.FileIO(PEER, "r", closefd=False) as raw, io.BufferedReader(raw) as calls:
        while line := calls.readline(_LONGEST_LINE):
            arguments, named = decode_value(line)
            _send(PEER, _answer(function, arguments, named))


def _answer(function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]) -> bytes:
    """The value, the items of an iterator, or the error by its builtin class: the checker does not know others."""

    def called() -> bytes:
        value = function(*arguments, **named)
        return encode_value({"items": list(value)} if isinstance(value, Iterator) else {"value": value})

    line, error = _tried(called)
    if isinstance(error, NotPlain):
        return encode_value({"error": "TypeError", "text": f"the function returned {error}"})
    if error is None:
        return line
    name = next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")
    return encode_value({"error": name, "text": str(error)[:1000]})


def _checker(entry: str, names: dict[str, Any]) -> None:
    """Run a checker against a stand-in for the candidate, which is in another process. Tells whose fault an error is.

    The stand-in is there before the checker begins, and again for its function `check`, if it has one.
    """
    stand_in = names[entry] = _StandIn()

    def check() -> bytes:
        _script(entry, names)
        names[entry] = stand_in
        if "check" in names:
            names["check"](stand_in)
        return encode_value(["right", ""])

    line, error = _tried(check)
    if error:
        own = "wrong" if isinstance(error, AssertionError) else "broken"
        from_candidate = stand_in.raised in (error, error.__cause__, error.__context__)
        told = f"{type(error).__name__}: {error}"[:1000]
        line = encode_value(["raised" if from_candidate else own, told])
    _send(RESULT, line)


def _tried(call: Callable[[], bytes]) -> tuple[bytes, Exception | None]:
    """What a call of foreign code gives, or the error that it raises."""
    try:
        return call(), None
    except Exception as error:
        return b"", error


class _StandIn:
    """Calls the candidate in its own process, and gives back plain values or the error that it raised."""

    def __init__(self) -> None:
        self._answers = io.BufferedReader(io.FileIO(PEER, "r", closefd=False))
        self.raised: Exception = RuntimeError()
        """The last error that was the candidate's."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        line = encode_value([list(arguments), named])
        try:
            _send(PEER, line)
            answer = decode_value(self._answers.readline(_LONGEST_LINE))
            if "value" in answer:
                return answer["value"]
            if "items" in answer:
                return iter(answer["items"])
            raised = getattr(builtins, str(answer["error"]), RuntimeError)
            # StopIteration would end a loop of the checker before its checks: it becomes an error as in a generator.
            if not (isinstance(raised, type) and issubclass(raised, Exception)) or raised is StopIteration:
                raised = RuntimeError
            self.raised = raised(answer.get("text", ""))
        except (OSError, NotPlain, TypeError, KeyError, AttributeError):
            self.raised = RuntimeError("it gave no answer")
        raise self.raised


def _send(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


_MODES: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "script": _script,
    "function": _function,
    "candidate": _candidate,
    "checker": _checker,
}
