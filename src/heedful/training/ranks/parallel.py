"""The processes of one run, and the part of the model in each. Torch-free, since a command line is built from it.

The number of processes is decided by `torchrun` alone. Nothing here changes a run of a single process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from heedful.boundary import refuse_below
from heedful.boundary.limits import refuse_seconds


@dataclass(frozen=True, slots=True)
class DataParallel:
    """Each rank holds the whole model and its optimizer."""

    timeout: int = 1800
    """Seconds that a process waits for the others before it ends with an error. Rank 0 measures while the others wait,
    so this must be more than its longest measurement."""
    sharded: ClassVar[bool] = False
    """Whether each rank holds a shard of the model only."""

    def __post_init__(self) -> None:
        refuse_below(self, timeout=1)
        refuse_seconds(self, "timeout")


@dataclass(frozen=True, slots=True)
class Fsdp2(DataParallel):
    """Each rank holds its shard of every layer and of the optimizer's state. A layer is gathered while it is used, and
    the whole model while it samples. A single process holds the whole model, as under `data`."""

    sharded: ClassVar[bool] = True


Parallel = DataParallel | Fsdp2

PARALLEL: dict[str, type[DataParallel]] = {"data": DataParallel, "fsdp2": Fsdp2}
"""By the name that configurations and the command line use."""


MOST_PROCESSES = 100_000
"""torch counts the processes of a run in 32 bits, and each of them looks for every other."""


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """The rank of this process, and how many processes there are."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number on this machine: the number of its GPU."""

    @staticmethod
    def of(environment: Mapping[str, str]) -> ProcessRank:
        """Read the variables that torchrun sets. One process where there are none.

        Raises ValueError when only some of them are set, one is no number, or the ranks are impossible.
        """
        if environment.get("WORLD_SIZE", "1") == "1":
            return ProcessRank()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        missing = [name for name in names if name not in environment]
        if missing:
            raise ValueError(
                f"WORLD_SIZE is {environment['WORLD_SIZE']}, but {', '.join(missing)} is not set: start several "
                "processes with torchrun --nproc-per-node N -m heedful train ..., or unset WORLD_SIZE for one."
            )
        numbers = [name for name in names if name != "MASTER_ADDR"]
        try:
            rank, size, local_rank, port = (int(environment[name]) for name in numbers)
        except ValueError as error:
            raise ValueError(
                f"Expected whole numbers in {', '.join(numbers)}, found "
                f"{', '.join(repr(environment[name]) for name in numbers)}: start several processes with torchrun."
            ) from error
        if not 1 <= size <= MOST_PROCESSES:
            raise ValueError(
                f"Expected 1 to {MOST_PROCESSES:,} processes in WORLD_SIZE, found {size}: start several processes with "
                "torchrun."
            )
        if not 0 <= rank < size or local_rank < 0:
            raise ValueError(
                f"Expected RANK from 0 to {size - 1} with WORLD_SIZE {size}, and LOCAL_RANK from 0 on, "
                f"found RANK {rank} and LOCAL_RANK {local_rank}: start several processes with torchrun."
            )
        if not 0 < port < 2**16:
            raise ValueError(f"Expected the number of a port in MASTER_PORT, found {port}. Give one from 1 to 65535.")
        return ProcessRank(rank, size, local_rank)

    @property
    def is_rank_0(self) -> bool:
        return self.rank == 0
