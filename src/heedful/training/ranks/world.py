"""The processes of one run, on plain torch.distributed: scatter, gather, merge, broadcast, and the sum of gradients.

A single process gets back what it puts in, and torch.distributed is not used. With several ranks every collective has a
timeout. When a rank fails, the other ranks end with a sentence that names it.

There is no wrapper around the model. The ranks split a batch so that each has about the same number of tokens. They may
therefore have different numbers of micro-batches. `sum_gradients` runs once per optimizer step, after every rank has
accumulated its own gradients. DistributedDataParallel computes the same sum under `no_sync`. There the backward pass of
the last micro-batch starts the sum, so a rank without that micro-batch blocks the others. The cost here: the sum does
not overlap with the last backward pass.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from heedful.training.ranks.joining import LongWork, ProcessLost, meet
from heedful.training.ranks.parallel import DataParallel, ProcessRank

Item = TypeVar("Item")

SECONDS_TO_NOTICE = 1.0
"""A rank that has not reported the failed collective after this time is taken to be dead."""

BUCKET_BYTES = 1 << 26
"""Gradients are summed in flat buckets of about this size: few messages, little memory."""


class World:
    """The ranks of a run, seen from one of them. `World()` is a run of a single process."""

    def __init__(self, process: ProcessRank | None = None, device: torch.device | None = None) -> None:
        self.process = process or ProcessRank()
        self.device = device or torch.device("cpu")
        self.store: Store
        """Of keys and values, shared by all ranks. There is none in a run of a single process."""
        self._objects: dist.ProcessGroup | None = None
        self._collectives = 0
        self._timeout = timedelta(seconds=DataParallel().timeout)

    @property
    def rank(self) -> int:
        return self.process.rank

    @property
    def size(self) -> int:
        return self.process.size

    @property
    def is_rank_0(self) -> bool:
        """Rank 0 alone prints, measures, stores, writes metrics and saves."""
        return self.process.is_rank_0

    def scatter(self, items: Sequence[Item]) -> list[Item]:
        """This rank's items: every `size`-th one, from number `rank` on."""
        return list(items[self.rank :: self.size])

    def merge(self, scattered: Sequence[Item]) -> list[Item]:
        """The items of all ranks, on every rank, in the order they had before `scatter`."""
        by_rank = self.gather(list(scattered))
        items: list[Any] = [None] * sum(map(len, by_rank))
        for rank, of_rank in enumerate(by_rank):
            items[rank :: self.size] = of_rank
        return items

    def gather(self, item: Item) -> list[Item]:
        """The items of all ranks, on every rank, in the order of ranks. Items must be picklable."""
        if self.size == 1:
            return [item]
        gathered: list[Any] = [None] * self.size
        with self._collective():
            dist.all_gather_object(gathered, item, group=self._objects)
        return gathered

    def together(self, lengths: Sequence[int], read: Callable[[list[int]], list[Item]]) -> list[Item]:
        """One result per sequence, on every rank. Each result is computed by one rank.

        `read` gets the indices of this rank's sequences and returns one result for each. `lengths`, in tokens, are used
        to give every rank about the same number of tokens.
        """
        mine = self.mine(lengths)
        if self.size == 1:
            return read(mine)
        results: list[Any] = [None] * len(lengths)
        for share, its in self.gather((mine, read(mine))):
            for place, result in zip(share, its, strict=True):
                results[place] = result
        return results

    def mine(self, lengths: Sequence[int]) -> list[int]:
        """The indices of this rank's sequences: every rank gets about the same number of tokens."""
        return shares_by_tokens(lengths, self.size)[self.rank] if self.size > 1 else list(range(len(lengths)))

    def broadcast(self, item: Item) -> Item:
        """The item of rank 0, on every rank. The items of the other ranks are ignored."""
        return self.gather(item if self.is_rank_0 else cast(Any, None))[0]

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sum over ranks, element by element. It is exactly rounded, so it is the same on every rank.

        Every rank must pass equally many numbers.
        """
        return [math.fsum(column) for column in zip(*self.gather(list(numbers)), strict=True)]

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Replace each `.grad` by its sum over ranks. A gradient that no rank has stays `None`.

        The result is bit-equal on all ranks, so their weights stay bit-equal.
        """
        if self.size == 1:
            return
        found = self.sum([float(parameter.grad is not None) for parameter in parameters])
        gradients: list[torch.Tensor] = []
        for parameter, processes in zip(parameters, found, strict=True):
            if processes and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            with self._collective():
                dist.all_reduce(flat)
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    @torch.no_grad()
    def broadcast_weights(self, model: torch.nn.Module) -> None:
        """Copy the parameters and buffers of rank 0 to every rank, so that all ranks start from the same weights."""
        if self.size == 1:
            return
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.contiguous()
            with self._collective():
                dist.broadcast(whole, src=0)
            if whole is not tensor:
                tensor.copy_(whole)

    @contextmanager
    def local_rank_0_first(self) -> Iterator[None]:
        """Run the body on local rank 0 of each machine first, so that the other ranks find what it put into a cache.

        The body may take longer than the timeout of a collective. A rank that waits handles signals.
        """
        if self.size == 1:
            yield
            return
        first = [rank for rank, local_rank in enumerate(self.gather(self.process.local_rank)) if local_rank == 0]
        work = LongWork(self.store, f"first/{self._collectives}")
        if self.rank in first:
            with work.done_by(self.rank):
                yield
            return
        try:
            work.wait_for(first, self._timeout.total_seconds())
        except RuntimeError as error:
            raise ProcessLost(self._who_left(error)) from error
        yield

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """Surround one collective. The store counts it, so that a missing rank can be named.

        Raises ProcessLost where the collective fails.
        """
        self._collectives += 1
        try:
            self.store.set(f"collective/{self.rank}", str(self._collectives))
            yield
        except RuntimeError as error:
            raise ProcessLost(self._who_left(error)) from error

    def _who_left(self, error: RuntimeError) -> str:
        """A sentence about the rank that made this rank's collective fail."""
        # The text begins with a position in torch's source and ends with advice.
        words = re.sub(r"^\[[^\]]*\]\s*", "", str(error)).split(". ")[0].splitlines()
        reason = words[0].rstrip(".") if words else type(error).__name__
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            late = [rank for rank in others if int(self._read(f"collective/{rank}") or 0) < self._collectives]
            self.store.set(f"noticed/{self.rank}", "yes")
            time.sleep(SECONDS_TO_NOTICE)
            left = {rank: self._read(f"left/{rank}") for rank in others}
            gone = late or [rank for rank in others if not self._read(f"noticed/{rank}")]
        except RuntimeError:
            # The store is kept by torchrun, or by rank 0 where something else started the ranks.
            return f"Process 0 of {self.size} has ended, and with it the run of process {self.rank} ({reason})."
        said = [f"Process {rank} of {self.size} has failed: {words}" for rank, words in left.items() if words]
        if said:
            return " ".join(said)
        if gone:
            names = ", ".join(map(str, gone))
            return (
                f"Process {names} of {self.size} did not come: killed, or busy for longer than --parallel.timeout. "
                f"Process {self.rank} could not go on alone ({reason})."
            )
        return f"Process {self.rank} of {self.size} lost the others ({reason}); look at what they said last."

    def _read(self, key: str) -> str:
        return self.store.get(key).decode() if self.store.check([key]) else ""


class Joined:
    """A context in which this process is one rank of a world: `with Joined(process, device, 1800) as world:`.

    CUDA tensors are summed by nccl. Tensors on a CPU, and plain values always, are exchanged by gloo. When the body
    raises, the other ranks are told the error. The process groups are always destroyed, because torch aborts a process
    that exits with open groups.
    """

    def __init__(self, process: ProcessRank, device: torch.device, timeout: int = 1800) -> None:
        """`timeout` in seconds."""
        self._world = World(process, device)
        self._timeout = self._world._timeout = timedelta(seconds=timeout)

    def __enter__(self) -> World:
        world = self._world
        if world.size == 1:
            return world
        on_gpu = world.device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(world.device)
        store = meet(world.process, self._timeout)
        world.store = PrefixStore("heedful", store)
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=PrefixStore("torch", store),
            rank=world.rank,
            world_size=world.size,
            timeout=self._timeout,
            device_id=world.device if on_gpu else None,
        )
        world._objects = dist.new_group(backend="gloo", timeout=self._timeout) if on_gpu else dist.group.WORLD
        return world

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        world = self._world
        if world.size > 1:
            try:
                if error is None:
                    world.gather(None)  # no rank destroys a group that another rank still needs
                elif isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
                    # Of a collective: a sharded model runs them inside its forward and backward.
                    raise ProcessLost(world._who_left(error)) from error
                elif not isinstance(error, ProcessLost):
                    said = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
                    with suppress(RuntimeError):  # the process that keeps the store may already be dead
                        world.store.set(f"left/{world.rank}", said)
            finally:
                # A reference to a group would keep its connections open, and the other ranks would wait on them.
                world._objects = None
                del world.store
                dist.destroy_process_group()
        return False


def local_device(device: torch.device, process: ProcessRank) -> torch.device:
    """The device of one process: the GPU with the number of its local rank, where there are several processes.

    Raises ValueError where there are fewer GPUs than processes, and for devices that do not take several.
    """
    if process.size == 1:
        return device
    if device.type == "mps":
        raise ValueError("--device mps takes one process: start heedful without torchrun, or choose --device cpu.")
    if device.type != "cuda":
        return device
    there = torch.cuda.device_count()
    if process.local_rank >= there:
        raise ValueError(
            f"Expected a GPU for each process of this machine, found {there} for process number {process.local_rank} "
            f"(counted from 0); start torchrun with --nproc-per-node {there}."
        )
    return torch.device("cuda", process.local_rank)


def shares_by_tokens(lengths: Sequence[int], size: int) -> list[list[int]]:
    """The indices of each rank's sequences: the longest sequence first, always to the rank with the fewest tokens.

    Equal inputs give equal shares on every rank. Each share is sorted longest first, so there is little padding.
    """
    shares: list[list[int]] = [[] for _ in range(size)]
    tokens = [0] * size
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        rank = min(range(size), key=tokens.__getitem__)
        shares[rank].append(index)
        tokens[rank] += lengths[index]
    return shares


def _buckets(gradients: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Consecutive gradients of one dtype, of about `BUCKET_BYTES` together."""
    bucket: list[torch.Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (gradient.dtype != bucket[0].dtype or size + gradient.nbytes > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
