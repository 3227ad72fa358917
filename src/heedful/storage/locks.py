"""The lock of a folder: one process at a time works in a run, an audit or a study.

The kernel holds the lock (`flock` on `.lock` in the folder) and frees it when the process ends, however it ends. The
file says which process has it. Where a file system knows no such locks, and for the processes of another host, what the
file says decides: process id, host, and the start time of the process, since process ids are used again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from heedful.boundary.folders import make_folder
from heedful.boundary.jsontext import parse_json
from heedful.boundary.open_files import path_of
from heedful.boundary.system_errors import naming
from heedful.storage.files import no_file

LOCK = ".lock"
_NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)
_LONGEST = 4096


class InUse(ValueError):
    """Another process works in a folder. The sentence names both."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a folder."""

    pid: int
    host: str
    started: int | None
    """Clock ticks from the start of the machine to that of the process; `None` where the system does not tell."""

    @classmethod
    def here(cls) -> Holder:
        return cls(os.getpid(), socket.gethostname(), _started(os.getpid()))

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether the process of this host that wrote itself down still runs."""
        started = _started(self.pid)
        return self.is_here and started is not None and started == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextmanager
def held(folder: Path, note: Callable[[str], None] | None = None, take_over: bool = False) -> Iterator[int]:
    """Hold a folder, which is made if needed. Yields a file descriptor: a process that inherits it holds it, too.

    A lock that a killed process of this host left behind is taken over, and `note` is told so. One of another host is
    taken over only with `take_over`. If the work fails and the folder is empty, it is removed.

    Raises:
        InUse: another process has the folder.
    """
    make_folder(path_of(folder, "a folder to work in"))
    path = folder / LOCK
    descriptor = _open_locked(path)
    claimed = done = False
    try:
        before = _read(descriptor)
        if before is not None:
            _refuse_living(folder, before, take_over)
            if note is not None:
                note(f"Taking over {folder} from {before}, which ended without releasing it.")
        _write(descriptor, path)
        claimed = True
    finally:
        if not claimed:
            os.close(descriptor)
    try:
        yield descriptor
        done = True
    finally:
        _release(path, descriptor)
        if not done:
            with suppress(OSError):  # not empty, or gone
                folder.rmdir()


def _open_locked(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR):
                raise
            raise no_file(path) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise no_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _read(descriptor)
            os.close(descriptor)
            raise _in_use(path.parent, holder) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        os.close(descriptor)  # its holder has just removed it


def _release(path: Path, descriptor: int) -> None:
    """Remove the file while it is still locked, so that nobody else has locked it yet."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            path.unlink()
    os.close(descriptor)


def _refuse_living(folder: Path, holder: Holder, take_over: bool) -> None:
    if holder.is_alive and holder != Holder.here():  # on a file system without locks
        raise _in_use(folder, holder)
    if not holder.is_here and not take_over:
        raise InUse(
            f"Expected that no other process works in {folder}, found that {holder} has not released it. Wait until it "
            f"is done. If it has ended, take the folder over with --take-over, or delete {folder / LOCK}."
        )


def _in_use(folder: Path, holder: Holder | None) -> InUse:
    if holder is None:
        found = "one that is just beginning or ending"
    elif holder.is_here and not holder.is_alive:
        found = f"one that {holder} started and that outlived it"
    else:
        found = str(holder)
    return InUse(f"Another process is at work in {folder}: {found}. Wait until it is done, or end it.")


def _write(descriptor: int, path: Path) -> None:
    """Write this process into its lock. An error names the file, which a descriptor does not."""
    with naming(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(Holder.here())).encode(), 0)


def _read(descriptor: int) -> Holder | None:
    """The holder that the file names; `None` where it names none."""
    try:
        tree = parse_json(os.pread(descriptor, _LONGEST, 0))
        pid, host, started = tree["pid"], tree["host"], tree["started"]
    except (ValueError, TypeError, KeyError):
        return None
    known = isinstance(pid, int) and isinstance(host, str) and isinstance(started, int | None)
    return Holder(pid, host[:100], started) if known else None


def _started(pid: int) -> int | None:
    """The start time of a process; `None` if there is no such process, it has ended, or the system does not tell."""
    try:
        # The name, in parentheses, may hold blanks. The state comes next, and the start time is the 20th after it.
        after = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(after[19]) if after[0] not in "ZX" else None
