"""Several processes: ranks, collectives, shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.training.ranks.joining import ProcessLost
    from heedful.training.ranks.parallel import DataParallel, Fsdp2, ProcessRank
    from heedful.training.ranks.sharding import Sharded
    from heedful.training.ranks.world import Joined, World

__all__ = ["DataParallel", "Fsdp2", "Joined", "ProcessLost", "ProcessRank", "Sharded", "World"]

__getattr__ = lazily(
    __name__,
    {
        "DataParallel": "heedful.training.ranks.parallel",
        "Fsdp2": "heedful.training.ranks.parallel",
        "Joined": "heedful.training.ranks.world",
        "ProcessLost": "heedful.training.ranks.joining",
        "ProcessRank": "heedful.training.ranks.parallel",
        "Sharded": "heedful.training.ranks.sharding",
        "World": "heedful.training.ranks.world",
    },
)
