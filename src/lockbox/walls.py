"""What the supervisor puts around all programs at once, where the kernel grants it: namespaces and Landlock.

The filter of system calls already denies files, processes and the network. These walls are a second, independent
reason why nothing can be reached: in the namespaces there is nothing to see, and Landlock denies what there is.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from lockbox.seccomp import ATTACKS, CALLS, call

_NEW_USER, _NEW_MOUNTS, _NEW_HOST_NAME, _NEW_IPC = 0x10000000, 0x00020000, 0x04000000, 0x08000000
_NEW_PIDS, _NEW_NETWORK = 0x20000000, 0x40000000

_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS, _AGAIN = 1, 2, 4, 8, 32
_RECURSIVE, _PRIVATE, _DETACH = 16384, 1 << 18, 2

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_RULESET_VERSION = 1
_CAPABILITIES = 0x20080522

SANDBOX_USER = 65534
"""The user `nobody`, whose rights a program gets where the supervisor runs as root."""


def enter_namespaces() -> None:
    """Move this process to an empty, read-only file system without network, neighbours or shared memory.

    The process ids change for the children of this process alone. Raises OSError where the kernel, a container or a
    security module denies it.
    """
    user, group = os.getuid(), os.getgid()
    call("unshare", _NEW_USER | _NEW_MOUNTS | _NEW_HOST_NAME | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{SANDBOX_USER} {user} 1")
    _write("/proc/self/gid_map", f"{SANDBOX_USER} {group} 1")
    call("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    target = b"/proc"  # any folder will do, and this one is there
    call("mount", b"none", target, b"tmpfs", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS, b"size=4k,nr_inodes=2,mode=555")
    os.chdir(target)
    call("syscall", ATTACKS["pivot_root"], b".", b".")
    call("umount2", b".", _DETACH)
    os.chdir("/")
    call("mount", None, b"/", None, _AGAIN | _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS, None)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def landlock_version() -> int:
    """The version of Landlock that this kernel offers. 0 without Landlock."""
    with suppress(OSError):
        return call("syscall", _CREATE_RULESET, None, 0, _RULESET_VERSION)
    return 0


def enter_landlock() -> None:
    """Deny this process and its children all files, TCP ports, abstract sockets and signals to others.

    How much of it depends on the kernel: ports from version 4, sockets and signals from version 6. Raises OSError.
    """
    version = landlock_version()
    rights = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    files, ports, scope = (1 << rights) - 1, 3 if version >= 4 else 0, 3 if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call("syscall", _CREATE_RULESET, struct.pack("QQQ", files, ports, scope), size, 0)
    call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def drop_capabilities() -> None:
    """Give up every special right that root, or the root of a user namespace, has left."""
    call("syscall", CALLS["capset"], struct.pack("II", _CAPABILITIES, 0), bytes(24))
