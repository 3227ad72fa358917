"""The processes of one run, on plain torch: who they are, and how what they hold comes together.

Promise: one process is given back what it puts in, and torch.distributed is not touched; of several none waits for
ever, and when one fails the others end with a sentence that names it.

There is no wrapper around the model. Processes split a batch so that their tokens are about equal, hence the numbers
of micro-batches are not, and the last of them may be missing in one process; `sum_gradients` runs once per optimizer
step, after every process has accumulated its own. That is what DistributedDataParallel computes under `no_sync` without
the step's last micro-batch being special (there its backward pass is what sums, and a process without one hangs the
others); what is given up is the overlap of that one sum with the last backward pass.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from heedful.distributed.parallel import Place

Item = TypeVar("Item")

SECONDS_TO_NOTICE = 1.0
"""Who has not noticed by then that a meeting failed is taken to be the one who is gone."""

BUCKET_BYTES = 1 << 26
"""Gradients are summed in flat pieces of about this size: few messages, little memory."""


class ProcessLost(ConnectionError):
    """Another process of the run has failed, or does not come. The sentence names it where that is known."""


class World:
    """All processes of a run, seen from one of them. `World()` is a run of one process."""

    def __init__(self, place: Place | None = None, device: torch.device | None = None) -> None:
        self.place = place or Place()
        self.device = device or torch.device("cpu")
        self._store: Store | None = None
        self._objects: dist.ProcessGroup | None = None
        self._meetings = 0

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def size(self) -> int:
        return self.place.size

    @property
    def is_first(self) -> bool:
        """The first process alone prints, measures, stores, writes metrics and saves."""
        return self.place.is_first

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Every `size`-th item, from number `rank` on: this process's share."""
        return list(items[self.rank :: self.size])

    def unite(self, share: Sequence[Item]) -> list[Item]:
        """The items whose shares the processes hold, in every process, in their order before `share`."""
        shares = self.gather(list(share))
        items: list[Any] = [None] * sum(map(len, shares))
        for rank, its in enumerate(shares):
            items[rank :: self.size] = its
        return items

    def gather(self, item: Item) -> list[Item]:
        """What every process puts in, in the order of their ranks. Plain picklable values."""
        if self.size == 1:
            return [item]
        gathered: list[Any] = [None] * self.size
        with self._meeting():
            dist.all_gather_object(gathered, item, group=self._objects)
        return gathered

    def together(self, lengths: Sequence[int], read: Callable[[list[int]], list[Item]]) -> list[Item]:
        """One result per sequence, each made by one process. `read` is given the numbers of some of the sequences, all
        of them where there is one process, and answers with as many results; `lengths` (in tokens) balance the shares.
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
        """Which sequences of these lengths, by number, this process takes: about equally many tokens for each."""
        return shares_by_tokens(lengths, self.size)[self.rank] if self.size > 1 else list(range(len(lengths)))

    def of_first(self, item: Item) -> Item:
        """What the first process puts in; the others' values are ignored."""
        return self.gather(item if self.is_first else cast(Any, None))[0]

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Element by element, exactly rounded, so the same in every process. All must put in equally many."""
        return [math.fsum(column) for column in zip(*self.gather(list(numbers)), strict=True)]

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Replace each `.grad` by its sum over the processes. One that no process has stays `None`.

        The result is bit-equal in all of them, so that their weights stay so.
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
            with self._meeting():
                dist.all_reduce(flat)
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    @torch.no_grad()
    def share_weights(self, model: torch.nn.Module) -> None:
        """Give the first process's parameters and buffers to all: whatever they loaded, they start from the same."""
        if self.size == 1:
            return
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.contiguous()
            with self._meeting():
                dist.broadcast(whole, src=0)
            if whole is not tensor:
                tensor.copy_(whole)

    @contextmanager
    def first_of_machine_first(self) -> Iterator[None]:
        """Let the first process of each machine through, then the others: they find what it put into a cache."""
        if self.size > 1 and self.place.local_rank > 0:
            self.gather(None)
        yield
        if self.size > 1 and self.place.local_rank == 0:
            self.gather(None)

    @contextmanager
    def _meeting(self) -> Iterator[None]:
        """Around one collective operation: counted in the store, so that who stays away can be named."""
        self._meetings += 1
        try:
            _store_of(self).set(f"meeting/{self.rank}", str(self._meetings))
            yield
        except RuntimeError as error:
            raise ProcessLost(self._who_left(error)) from error

    def _who_left(self, error: RuntimeError) -> str:
        """A sentence on the process that ended this one's meeting."""
        # The text begins with a place in torch's source and goes on with advice.
        words = re.sub(r"^\[[^\]]*\]\s*", "", str(error)).split(". ")[0].splitlines()
        reason = words[0].rstrip(".") if words else type(error).__name__
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            late = [rank for rank in others if int(self._read(f"meeting/{rank}") or 0) < self._meetings]
            _store_of(self).set(f"noticed/{self.rank}", "yes")
            time.sleep(SECONDS_TO_NOTICE)
            left = {rank: self._read(f"left/{rank}") for rank in others}
            gone = late or [rank for rank in others if not self._read(f"noticed/{rank}")]
        except RuntimeError:
            # The meeting point is kept by torchrun, or by the first process where something else started them.
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
        store = _store_of(self)
        return store.get(key).decode() if store.check([key]) else ""


class Joined:
    """A context in which this process belongs to its world; `with Joined(place, device, 1800) as world:`.

    CUDA tensors are summed by nccl; tensors on a CPU, and plain values in any case, by gloo. On the way out of an error
    the others are told what it was, and in every case the process groups are taken down: torch aborts a process that
    leaves them standing.
    """

    def __init__(self, place: Place, device: torch.device, timeout: int = 1800) -> None:
        self._world = World(place, device)
        self._timeout = timedelta(seconds=timeout)

    def __enter__(self) -> World:
        world = self._world
        if world.size > 1:
            try:
                self._join(world)
            except RuntimeError as error:
                raise ProcessLost(
                    f"Expected {world.size} processes to meet at {os.environ['MASTER_ADDR']}:"
                    f"{os.environ['MASTER_PORT']}, but process {world.rank} could not join: "
                    f"{str(error).splitlines()[0]}"
                ) from error
        return world

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        world = self._world
        if world.size > 1:
            try:
                if error is None:
                    world.gather(None)  # nobody takes down what another still needs
                elif isinstance(error, RuntimeError) and _is_of_the_wire(error):
                    raise ProcessLost(world._who_left(error)) from error
                elif not isinstance(error, ProcessLost):
                    _tell(world, error)
            finally:
                # Whoever still held a group would keep its connections open, and the others waiting at them.
                world._objects = world._store = None
                dist.destroy_process_group()
        return False

    def _join(self, world: World) -> None:
        on_gpu = world.device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(world.device)
        store, _, _ = next(iter(rendezvous("env://", timeout=self._timeout)))
        world._store = PrefixStore("heedful", store)
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=PrefixStore("torch", store),
            rank=world.rank,
            world_size=world.size,
            timeout=self._timeout,
            device_id=world.device if on_gpu else None,
        )
        world._objects = dist.new_group(backend="gloo", timeout=self._timeout) if on_gpu else dist.group.WORLD


def local_device(device: torch.device, place: Place) -> torch.device:
    """The device of one process: the GPU of its number where several share a machine.

    Raises ValueError where there are fewer GPUs than processes, and for devices that do not take several.
    """
    if place.size == 1:
        return device
    if device.type == "mps":
        raise ValueError("--device mps takes one process: start heedful without torchrun, or choose --device cpu.")
    if device.type != "cuda":
        return device
    there = torch.cuda.device_count()
    if place.local_rank >= there:
        raise ValueError(
            f"Expected a GPU for each process of this machine, found {there} for process number {place.local_rank} "
            f"(counted from 0); start torchrun with --nproc-per-node {there}."
        )
    return torch.device("cuda", place.local_rank)


def shares_by_tokens(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Which sequences each of `size` processes takes, by index: longest first, always to who has fewest tokens so far.

    Equal inputs give equal shares in every process. Each share is sorted longest first, so little is padded.
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


def _store_of(world: World) -> Store:
    if world._store is None:
        raise ValueError(f"Process {world.rank} of {world.size} has not joined the others: use Joined.")
    return world._store


def _is_of_the_wire(error: RuntimeError) -> bool:
    """Whether another process is to blame: a model in pieces meets the others in the middle of its own computations."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _tell(world: World, error: BaseException) -> None:
    """Leave a word for the others; whoever kept the meeting point may be gone already."""
    words = str(error).splitlines()[0] if str(error) else ""
    try:
        _store_of(world).set(
            f"left/{world.rank}", f"{type(error).__name__}: {words}" if words else type(error).__name__
        )
    except RuntimeError:
        return
