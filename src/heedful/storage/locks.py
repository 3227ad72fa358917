"""The lock of a folder: one process at a time works in a run, an audit or a study.

The kernel holds the lock (`flock` on `.lock` in the folder) and frees it when the process ends, however it ends. A note
in the file names the process. Between hosts, and where a file system has no locks, the note alone decides.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.storage.files import is_alive, naming_a_full_disk

LOCK = ".lock"
_NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


class InUse(ValueError):
    """Another process works in a folder. The sentence names both."""


@contextmanager
def held(folder: Path, note: Callable[[str], None] | None = None, take_over: bool = False) -> Iterator[int]:
    """Hold a folder, which is made if needed. Yields a file descriptor: a process that inherits it holds it, too.

    A lock that a killed process of this host left behind is taken over, and `note` is told so. One of another host is
    taken over only with `take_over`. If the work fails and the folder is empty, it is removed.

    Raises:
        InUse: another process has the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, done = folder / LOCK, False
    with os.fdopen(_locked(path), "r+b") as stream:
        lock = stream.fileno()
        if before := _holder(lock):
            pid, host = before
            if host != socket.gethostname() and not take_over:
                raise InUse(
                    f"Expected that no other process works in {folder}, found that process {pid} on {host} has not "
                    "released it. Wait until it is done. If it has ended, take the folder over with --take-over, or "
                    f"delete {path}."
                )
            if note is not None:
                note(f"Taking over {folder} from process {pid} on {host}, which ended without releasing it.")
        with naming_a_full_disk(path, kept="all that was written before it"):
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        try:
            yield lock
            done = True
        finally:
            if _is_at(path, lock):  # removed while it is locked, so that nobody else has locked it yet
                path.unlink()
            if not done:
                with suppress(OSError):  # not empty, or gone
                    folder.rmdir()


def _locked(path: Path) -> int:
    """A locked descriptor of the file at `path`."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = False
        except OSError as error:
            if not isinstance(error, BlockingIOError) and error.errno not in _NO_LOCKS:
                raise
            holder = _holder(lock)
            alive = (
                holder is not None
                and holder[0] != os.getpid()
                and holder[1] == socket.gethostname()
                and is_alive(holder[0])
            )
            taken = isinstance(error, BlockingIOError) or alive
        if not taken and _is_at(path, lock):
            return lock
        os.close(lock)
        if taken:
            raise InUse(
                f"Another process is at work in {path.parent}: {_named(holder)}. Wait until it is done, or end it."
            )


def _is_at(path: Path, lock: int) -> bool:
    """Whether the locked file is still the one at `path`: its last holder may have just removed it."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(lock), os.lstat(path))
    return False


def _holder(lock: int) -> tuple[int, str] | None:
    """Process id and host in the note; `None` where it names none."""
    with suppress(ValueError, TypeError, KeyError):
        tree = json.loads(os.pread(lock, 4096, 0))
        return int(tree["pid"]), str(tree["host"])
    return None


def _named(holder: tuple[int, str] | None) -> str:
    if holder is None:
        return "one that is just beginning or ending"
    name = f"process {holder[0]} on {holder[1]}"
    outlived = holder[1] == socket.gethostname() and not is_alive(holder[0])
    return f"one that {name} started and that outlived it" if outlived else name
