"""A sign of life for every rank on a machine, before the ranks are connected: a locked file.

torch.distributed does not know a rank that has ended before it joined, so the others would wait for the whole
`--parallel.timeout`. torchrun ends them, other launchers may not. Therefore each rank holds a lock on its own file.
The kernel frees the lock when the process ends, in whatever way. Ranks on other machines are not seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

from heedful.training.ranks.parallel import ProcessRank

SAME_START_S = 10.0
"""Ranks of one start begin within this time. An older file was left behind by an earlier run."""

LOCK_ATTEMPTS = 50
"""Another rank that looks holds the lock for a moment. After this many attempts, 20 ms apart, it is a second rank."""


class Presence:
    """A context in which the other ranks of this machine can see that this rank lives. A single process has no file.

    When the body raises, the first line of the error stays in the file for the others.
    Raises ValueError where another living process of this machine has the same rank at the same address.
    """

    def __init__(self, process: ProcessRank, environment: Mapping[str, str]) -> None:
        self._process = process
        names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
        self._address = ":".join(environment.get(name, "") for name in names[:2])
        start = repr((process.size, *(environment.get(name, "") for name in names)))
        self._start = hashlib.sha256(start.encode()).hexdigest()[:20]
        self._began = time.time()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Presence:
        if self._process.size > 1:
            path = self._path(self._process.rank)
            _own_folder(path.parent)
            self._file = self._locked(path)
            self._file.write(f"{self._began}\n".encode())
            self._file.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if self._file is not None:
            if error is None:
                self._path(self._process.rank).unlink(missing_ok=True)
            else:
                self._file.write(_first_line(error).encode("utf-8", "replace"))
            self._file.close()
        return False

    def ended(self) -> str:
        """Name the ranks of this machine that began with this one and have ended. Empty where all live."""
        others = (rank for rank in range(self._process.size) if rank != self._process.rank)
        return " ".join(filter(None, map(self._obituary, others)))

    def _obituary(self, rank: int) -> str:
        try:
            with self._path(rank).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                began, _, words = file.read().decode("utf-8", "replace").partition("\n")
        except (FileNotFoundError, BlockingIOError):  # it has not begun, has ended well, or lives
            return ""
        if not began or float(began) < self._began - SAME_START_S:
            return ""
        named = f"Process {rank} of {self._process.size} has ended before it joined"
        return f"{named}: {words}" if words else f"{named}, without a word: look at what it printed last."

    def _locked(self, path: Path) -> BinaryIO:
        file = path.open("ab")
        for _ in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            file.truncate(0)
            return file
        file.close()
        raise ValueError(
            f"Expected one process with rank {self._process.rank} at {self._address}, but another one runs on this "
            "machine: give every process its own RANK, and every run its own MASTER_PORT."
        )

    def _path(self, rank: int) -> Path:
        return Path(tempfile.gettempdir()) / f"heedful-{os.getuid()}" / f"{self._start}-{rank}"


def _own_folder(folder: Path) -> None:
    """Make a folder that only this user can enter. Raises ValueError where it belongs to somebody else."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ValueError(f"Expected {folder} to be a folder that only you can use; remove it, or set TMPDIR.")


def _first_line(error: BaseException) -> str:
    words = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
