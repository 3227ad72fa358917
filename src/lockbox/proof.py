"""The proof before use: attacks that must fail, and honest programs that must not, in the sandbox that is to be used.

A kernel, a container or a security module can take any of the walls away. So nothing is believed: each sandbox is
attacked once when it is opened.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from lockbox import seccomp
from lockbox.messages import NotPlain
from lockbox.outcome import Limits, SandboxError
from lockbox.pool import Level, Sandbox

Wanted = Literal["auto", "full", "kernel", "strict"]

LEVELS: tuple[Level, ...] = ("full", "kernel", "strict")
"""From the most walls to the fewest."""

_LIMITS = Limits(cpu=1, wall=20, memory=256 << 20, output=1 << 16)


REACHED = "reached-the-outside"
"""What a probe prints when it got through. The text of the program does not hold it in one piece."""

_BEGIN = "import os, sys, ctypes, socket, signal\nREACHED = 'reached-' + 'the-outside'\nlibc = ctypes.CDLL(None)\n"

PROBES = (
    ("reading a file", "print(open({canary!r}).read())"),
    (
        "reading a file through the C library",
        "b = ctypes.create_string_buffer(99)\nlibc.read(libc.open({canary!r}.encode(), 0), b, 99)\n"
        "print(b.value.decode())",
    ),
    ("the size of a file", "os.stat({canary!r}); print(REACHED)"),
    ("writing a file", "open({planted!r}, 'w').write('x')"),
    ("a TCP connection", "socket.create_connection(('127.0.0.1', {tcp}), 2)"),
    ("a UDP packet", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))"),
    ("another process", "os.fork(); print(REACHED)"),
    ("another program", "os.execv('/bin/sh', ['sh', '-c', 'echo reached-the-''outside'])"),
    ("a signal to its parent", "os.kill(os.getppid(), 0); print(REACHED)"),
    ("tracing its parent", "print(REACHED) if libc.ptrace(16, os.getppid(), 0, 0) == 0 else 0"),
    ("the environment of the trainer", "open('/proc/{trainer}/environ').read(); print(REACHED)"),
    ("more memory than allowed", "x = bytearray(400 << 20); print(REACHED)"),
    ("higher limits", "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99)); print(REACHED)"),
    ("more time than allowed", "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"),
)
"""Attacks: a name, and a text to be filled in with the places of the traps.

One breaks out if it prints REACHED or the traps' word, or if a trap has caught something."""


def opened(
    wanted: Wanted = "auto", limits: Limits | None = None, modules: Sequence[str] = (), prelude: str = ""
) -> Sandbox:
    """A sandbox that has withstood every probe. `auto`: at the highest level that this machine grants.

    The rest is that of `Sandbox`. Raises SandboxError, in sentences that name what is missing and the way out.
    """
    if not seccomp.supported():
        raise SandboxError(
            "Programs cannot be run safely here: the sandbox needs Linux on x86-64 or aarch64. Train in a Linux "
            "container or virtual machine, or choose an environment that runs no programs."
        )
    refusals = []
    for level in LEVELS if wanted == "auto" else (wanted,):
        try:
            sandbox = Sandbox(level, limits, modules, prelude)
        except SandboxError as error:
            refusals.append(str(error))
            continue
        broken = list(breaches(sandbox))
        if not broken:
            return sandbox
        sandbox.close()
        refusals.append(f"at level {level} it does not stop {', '.join(broken)}")
    raise SandboxError(
        f"Programs cannot be run safely here: {'; '.join(refusals)}. The filter needs a kernel with "
        "seccomp (Linux 3.17 or newer, in a container that allows prctl). Ask the administrator of this machine for it."
    )


def breaches(sandbox: Sandbox) -> Iterator[str]:
    """The probes that broke out of a sandbox, by name. An honest program that fails is named, too."""
    with ExitStack() as stack:
        traps = Traps(stack)
        for name, source in PROBES:
            outcome = sandbox.run((_BEGIN + source).format(**traps.places), limits=_LIMITS)
            if traps.caught(outcome.stdout + outcome.stderr) or (outcome.ending == "ended" and "time" in name):
                yield name
        yield from _dishonoured(sandbox, traps.word)


class Traps:
    """What an attack would reach if it got out: a file, a folder, two listeners, the environment of this process."""

    def __init__(self, stack: ExitStack) -> None:
        self.word = secrets.token_hex(8)
        """A secret that no program is told. A program that prints it has read it."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heedful-probe-")))
        folder.chmod(0o777)
        self._canary, self._planted = folder / "canary", folder / "planted"
        self._canary.write_text(self.word)
        self._canary.chmod(0o666)
        self._tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        for trap in (self._tcp, self._udp):
            trap.settimeout(0)

    @property
    def places(self) -> dict[str, object]:
        """Where the traps are. Programs may know it."""
        return {
            "canary": str(self._canary),
            "planted": str(self._planted),
            "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "trainer": os.getpid(),
        }

    def caught(self, written: bytes) -> bool:
        """Whether anything was reached since the last look. The traps are set again."""
        files = sorted(each.name for each in self._canary.parent.iterdir())
        spoilt = files != ["canary"] or self._canary.read_text() != self.word
        for each in self._canary.parent.iterdir():
            if each != self._canary:
                each.unlink()
        self._canary.write_text(self.word)
        reached = [_arrived(self._tcp), _arrived(self._udp)]
        return spoilt or any(reached) or self.word.encode() in written or REACHED.encode() in written


def _arrived(trap: socket.socket) -> bool:
    try:
        return bool(trap.accept() if trap.type == socket.SOCK_STREAM else trap.recv(9))
    except OSError:
        return False


def _dishonoured(sandbox: Sandbox, word: str) -> Iterator[str]:
    """Honest programs that the sandbox does not let do their work."""
    script = (
        "import sys, threading, collections, re\nt = threading.Thread(target=print, args=(input()[::-1],))\nt.start()"
    )
    if sandbox.run(script, word).stdout.decode().strip() != word[::-1]:
        yield "an honest program from failing"
    try:
        value = sandbox.call("def double(x):\n    return (x, x * 2)", "double", [word]).value()
    except NotPlain:
        value = None
    if value != (word, word * 2):
        yield "an honest function from failing"
