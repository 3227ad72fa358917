"""What runs inside: the process of one program, from the fork to its end.

The process first gives up everything that it may lose, and reads the program only then. Nothing that could be worth
stealing is in its memory: no test, no expected value, no other program.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import random
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from lockbox import seccomp, walls
from lockbox.libc import prctl
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

_LONGEST_LINE = 1 << 20

PROGRAM = "<program>"
"""The name of the program in tracebacks."""


def run(request: Request, descriptors: list[int], machine: seccomp.Machine | None) -> NoReturn:
    """Become the program. Never returns. A program that cannot be locked in is not started.

    `machine`: the system calls to filter. None keeps the limits alone (level `off`).
    """
    try:
        _take_descriptors(descriptors)
        _open_streams()
        _limit(request)
        if machine is not None:
            _lock_in(machine)
        os.write(RESULT, STARTED)
    except (OSError, ValueError) as error:
        os.write(STDERR, f"the sandbox could not be closed: {error}".encode())
        os._exit(NOT_STARTED)
    _finish(_MODES[request.kind], request.entry)


def _take_descriptors(descriptors: list[int]) -> None:
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, _FIRST_FREE) for each in descriptors]
    for place, copy in enumerate(copies):
        os.dup2(copy, place)
    os.closerange(len(copies), 4096)


def _open_streams() -> None:
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(STDIN, "r", closefd=False)), "utf-8", "replace")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(STDOUT, "w", closefd=False)), "utf-8", "replace")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(STDERR, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def die_with_parent() -> None:
    """Be killed by the kernel when the parent ends."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(request: Request) -> None:
    """Give up time, memory and files, and forget the surroundings."""
    os.setsid()
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for name, most in (
        (resource.RLIMIT_CPU, request.cpu),
        (resource.RLIMIT_AS, request.memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (most, most))
    os.environ.clear()
    random.seed(0)


def _lock_in(machine: seccomp.Machine) -> None:
    """Give up all rights, and at last every system call that is not needed."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(walls.SANDBOX_USER)
        os.setuid(walls.SANDBOX_USER)
    walls.drop_capabilities()
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    program = seccomp.compiled(seccomp.filter_program(machine, os.getpid()))
    seccomp.give_up_privileges()
    seccomp.install(program)


def _finish(mode: Callable[[str], None], entry: str) -> NoReturn:
    """Run the program, write out what it printed, and end without a clean-up that it could prolong."""
    status = UNCAUGHT
    try:
        try:
            mode(entry)
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            status = status if -(2**63) <= status < 2**63 else 255  # as Python itself ends then
        finally:
            if raised := sys.exc_info()[1]:
                os.write(STDERR, _described(raised).encode("utf-8", "backslashreplace")[-4000:])
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)


def _described(error: BaseException) -> str:
    """The error with the frames of the program, without those of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != PROGRAM:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-8))


def _source() -> bytes:
    """The text of the program, which is read only now, behind the filter."""
    parts = []
    while part := os.read(CODE, 1 << 20):
        parts.append(part)
    os.close(CODE)
    return b"".join(parts)


def _main_module() -> dict[str, Any]:
    """Define what the program defines, in a fresh `__main__`."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(_source(), PROGRAM, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _script(entry: str) -> None:
    _main_module()


def _found(names: dict[str, Any], entry: str) -> Callable[..., Any]:
    """The function of that name, or the method of a class `Solution`, as contests have it."""
    if callable(found := names.get(entry)):
        return found
    solution = names.get("Solution")
    if solution is not None and callable(method := getattr(solution(), entry, None)):
        return method
    raise NameError(f"the program defines no function {entry}")


def _function(entry: str) -> None:
    """Call the function with the arguments on standard input. Its value goes to the result descriptor, and only it."""
    names = _main_module()
    arguments = decode_value(sys.stdin.buffer.read())
    _send(RESULT, encode_value(_found(names, entry)(*arguments)))


def _candidate(entry: str) -> None:
    """Answer the checker's calls until it has no more."""
    function = _found(_main_module(), entry)
    with io.FileIO(PEER, "r", closefd=False) as raw, io.BufferedReader(raw) as calls:
        while line := calls.readline(_LONGEST_LINE):
            arguments, named = decode_value(line)
            _send(PEER, _answer(function, arguments, named))


def _answer(function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]) -> bytes:
    try:
        return encode_value({"value": function(*arguments, **named)})
    except NotPlain as error:
        return encode_value({"error": "TypeError", "text": f"the function returned {error}"})
    except Exception as error:  # the program's own, which its checker is told
        return encode_value({"error": type(error).__name__, "text": str(error)[:1000]})


def _checker(entry: str) -> None:
    """Run a checker against a stand-in for the candidate. The candidate itself is in another process."""
    stand_in = _StandIn()
    names = _main_module()
    names[entry] = stand_in
    names["check"](stand_in)
    _send(RESULT, b"true\n")


class _StandIn:
    """Calls the candidate in its own process, and gives back plain values or the error that it raised."""

    def __init__(self) -> None:
        self._answers = io.BufferedReader(io.FileIO(PEER, "r", closefd=False))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        _send(PEER, encode_value([list(arguments), named]))
        answer = decode_value(self._answers.readline(_LONGEST_LINE))
        if type(answer) is not dict or not ("value" in answer or "error" in answer):
            raise RuntimeError("the program ended before it answered")
        if "value" in answer:
            return answer["value"]
        raised = getattr(__import__("builtins"), str(answer["error"]), RuntimeError)
        # StopIteration would end a loop of the checker before its checks, so it becomes an error as in a generator.
        if not (isinstance(raised, type) and issubclass(raised, Exception)) or raised is StopIteration:
            raised = RuntimeError
        raise raised(answer.get("text", ""))


def _send(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


_MODES: dict[str, Callable[[str], None]] = {
    "script": _script,
    "function": _function,
    "candidate": _candidate,
    "checker": _checker,
}
