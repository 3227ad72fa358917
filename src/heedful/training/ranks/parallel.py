"""The processes of one run before they are connected: the settings, and the rank of each. Torch-free.

The number of processes is decided by `torchrun` alone. Nothing here changes a run of a single process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import MOST_SECONDS, settings


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
