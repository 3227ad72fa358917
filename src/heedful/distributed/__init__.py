"""Several processes: ranks, collectives, shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.distributed.joining import ProcessLost
    from heedful.distributed.parallel import DataParallel, Fsdp2, ProcessRank
    from heedful.distributed.sharding import Sharded
    from heedful.distributed.world import Joined, World

__all__ = ["DataParallel", "Fsdp2", "Joined", "ProcessLost", "ProcessRank", "Sharded", "World"]

__getattr__ = lazily(
    __name__,
    {
        "DataParallel": "heedful.distributed.parallel",
        "Fsdp2": "heedful.distributed.parallel",
        "Joined": "heedful.distributed.world",
        "ProcessLost": "heedful.distributed.joining",
        "ProcessRank": "heedful.distributed.parallel",
        "Sharded": "heedful.distributed.sharding",
        "World": "heedful.distributed.world",
    },
)
