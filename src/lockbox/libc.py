"""The functions of the C library that the sandbox calls, and their errors."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_LIBRARY = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: Any) -> int:
    """`prctl(2)`, with each number widened to the 64 bits that the kernel reads."""
    return int(_LIBRARY.prctl(ctypes.c_int(option), *map(_wide, arguments)))


def syscall(number: int, *arguments: Any) -> int:
    """A system call by its number."""
    _LIBRARY.syscall.restype = ctypes.c_long
    return int(_LIBRARY.syscall(ctypes.c_long(number), *map(_wide, arguments)))


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name. Raises OSError."""
    check(_LIBRARY.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    """`mount(2)`. Raises OSError."""
    check(_LIBRARY.mount(source, target, kind, ctypes.c_ulong(flags), options), f"mount {target.decode()}")


def detach(target: bytes) -> None:
    """Take a file system out of sight (`umount2` with MNT_DETACH). Raises OSError."""
    check(_LIBRARY.umount2(target, ctypes.c_int(2)), "umount2")


def check(result: int, what: str) -> int:
    """The result of a call, or OSError with the name of what failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _wide(argument: Any) -> Any:
    return ctypes.c_ulong(argument) if isinstance(argument, int) else argument
