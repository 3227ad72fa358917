"""The processes of one run before they are connected: the settings, the rank of each, and a sign of life. Torch-free.

The number of processes is decided by `torchrun` alone. Nothing here changes a run of a single process.

torch.distributed does not know a rank that has ended before it joined, so the others would wait for the whole
`--parallel.timeout`. torchrun ends them, other launchers may not. Therefore each rank holds a lock on a file of its own
(`Presence`). The kernel frees the lock when the process ends, in whatever way. Ranks on other machines are not seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO, ClassVar, Literal

from annotated_types import Interval

from heedful.boundary import MOST_SECONDS, settings

SAME_START_S = 10.0
"""Ranks of one start begin within this time. An older file was left behind by an earlier run."""

LOCK_ATTEMPTS = 50
"""Another rank that looks holds the lock for a moment. After this many attempts, 20 ms apart, it is a second rank."""


@settings
class DataParallel:
    """Each rank holds the whole model and its optimizer."""

    timeout: Annotated[int, Interval(ge=1, le=MOST_SECONDS)] = 1800
    """Seconds that a process waits for the others before it ends with an error. Rank 0 measures while the others wait,
    so this must be more than its longest measurement."""
    sharded: ClassVar[bool] = False
    """Whether each rank holds a shard of the model only."""


@settings
class Fsdp2(DataParallel):
    """Each rank holds its shard of every layer and of the optimizer's state. A layer is gathered while it is used, and
    the whole model while it samples. A single process holds the whole model, as under `data`."""

    sharded: ClassVar[bool] = True


Parallel = DataParallel | Fsdp2

PARALLEL: dict[str, type[DataParallel]] = {"data": DataParallel, "fsdp2": Fsdp2}
"""By the name that configurations and the command line use."""


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """The rank of this process, and how many processes there are."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number on this machine: the number of its GPU."""

    @staticmethod
    def of(environment: Mapping[str, str]) -> ProcessRank:
        """Read the variables that torchrun sets. One process where there are none. Raises ValueError for odd ones."""
        if environment.get("WORLD_SIZE", "1") == "1":
            return ProcessRank()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")
        found = {name: environment.get(name, "") for name in names}
        try:
            rank, size, local_rank, port = (int(found[name]) for name in names[:4])
            possible = 0 <= rank < size and local_rank >= 0 and 0 < port < 2**16 and bool(found["MASTER_ADDR"])
        except ValueError:
            possible = False
        if not possible:
            raise ValueError(
                f"Expected {', '.join(names)} as torchrun sets them, RANK from 0 to WORLD_SIZE - 1, found "
                f"{', '.join(f'{name}={value!r}' for name, value in found.items())}: start several processes with "
                "torchrun --nproc-per-node N -m heedful train ..., or unset WORLD_SIZE for one."
            )
        return ProcessRank(rank, size, local_rank)

    @property
    def is_rank_0(self) -> bool:
        return self.rank == 0


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
            path.parent.mkdir(mode=0o700, exist_ok=True)
            found = path.parent.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise ValueError(
                    f"Expected {path.parent} to be a folder that only you can use; remove it, or set TMPDIR."
                )
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
                self._file.write(first_line(error).encode("utf-8", "replace"))
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


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of its text."""
    words = str(error).splitlines()[:1]
    return ": ".join([type(error).__name__, *words])
