"""What two processes find out about each other; executed once per process.

RANK=0 WORLD_SIZE=2 ... python world_worker.py FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from heedful.training.ranks.parallel import ProcessRank
from heedful.training.ranks.world import Joined, ProcessLost, World


def together(world: World) -> dict[str, Any]:
    """Everything a world does, once."""
    torch.manual_seed(world.rank)
    layer = torch.nn.Linear(2, 2)
    world.broadcast_weights(layer)
    both, first_only, nobody = (torch.zeros(3, requires_grad=True) for _ in range(3))
    both.grad = torch.full((3,), 1.0 + world.rank)
    if world.is_rank_0:
        first_only.grad = torch.arange(3.0)
    half = torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)
    half.grad = torch.ones(2, dtype=torch.bfloat16)
    world.sum_gradients([both, first_only, nobody, half])
    with world.local_rank_0_first():
        entered = time.monotonic()
        time.sleep(0.2 * world.is_rank_0)
        left = time.monotonic()
    return {
        "shares": world.scatter("abcde"),
        "united": world.merge([item * 2 for item in world.scatter("abcde")]),
        "of one": world.merge(["only the first has one"] if world.is_rank_0 else []),
        "ranks": world.gather(world.rank),
        "first": world.broadcast(f"rank {world.rank}"),
        "sums": world.sum([0.1, 1e16 * (1 - 2 * world.rank)]),
        "weights": layer.weight.detach().clone(),
        "gradients": [None if t.grad is None else t.grad.tolist() for t in (both, first_only, nobody, half)],
        "entered and left": (entered, left),
    }


def second_raises(world: World) -> None:
    if world.rank == 1:
        raise ValueError("the environment is out of ice")
    world.gather("never met")


def first_raises(world: World) -> None:
    if world.is_rank_0:
        raise ValueError("no ice")
    world.sum_gradients([torch.zeros(1, requires_grad=True)])


def second_is_late(world: World) -> None:
    """It comes when the other one has given it up."""
    if world.is_rank_0:
        _set_pg_timeout(timedelta(seconds=2))
    else:
        world.store.wait(["noticed/0"], timedelta(seconds=900))
    world.gather("in time")


def second_vanishes(world: World) -> None:
    """In the middle of a meeting and without a word, as by a kill."""
    world.gather("met")
    if world.rank == 1:
        world.store.set("collective/1", "3")  # joined, met, and this one
        os._exit(0)
    world.gather("never met")


FAULTS: tuple[Callable[[World], None], ...] = (second_raises, first_raises, second_is_late)


def main(folder: Path) -> None:
    place = ProcessRank.of(os.environ)
    found: dict[str, Any] = {}
    with Joined(place, torch.device("cpu"), 900) as world:
        found["together"] = together(world)
    found["left standing"] = dist.is_initialized()
    for fault in FAULTS:
        found[fault.__name__] = met_with(fault, place)
    torch.save(found, folder / f"found-{place.rank}.pt")
    found[second_vanishes.__name__] = met_with(second_vanishes, place)
    torch.save(found, folder / f"found-{place.rank}.pt")


def met_with(fault: Callable[[World], None], place: ProcessRank) -> tuple[str, float, bool]:
    """What was raised, after how many seconds, and whether a process group was left standing."""
    began = time.monotonic()
    said = ""
    try:
        with Joined(place, torch.device("cpu"), 900) as world:
            world.gather("joined")  # or, on a busy machine, one would fail while the other still connects
            fault(world)
    except (ProcessLost, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    return said, time.monotonic() - began, dist.is_initialized()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
