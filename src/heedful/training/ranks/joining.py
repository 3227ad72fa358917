"""Waits of one rank for others, in a store of keys and values that all share: until all have met, and for long work.

torch's own rendezvous waits inside one call for its whole timeout. Here a rank looks around while it waits, so that it
ends within seconds when another rank has ended.

A collective is no way to wait for work of unknown length, such as growing a model: it fails after `--parallel.timeout`,
and a rank that waits in one handles no signal. Here the ranks at work give a sign of life every second (`LongWork`).
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from heedful.training.ranks.parallel import ProcessRank

POLL_SECONDS = 0.1
"""Between two looks at the other ranks."""

SECONDS_TO_COME_BACK = 2.0
"""A rank that is said to have ended is looked at again after this time: a restarted one needs a moment to begin."""

SIGN_SECONDS = 1.0
"""Between two signs of life. The others look for them four times as often."""

_meetings = itertools.count()
"""A process may join several times, one time after the other. Each meeting has keys of its own."""


class ProcessLost(ConnectionError):
    """Another rank has failed or does not answer. The sentence names it where it is known."""


def meet(process: ProcessRank, timeout: timedelta, ended: Callable[[], str]) -> Store:
    """Connect to the store of the run and wait until every rank has come.

    `ended` names ranks of this machine that have ended, or returns an empty text. The store is kept by torchrun, or by
    rank 0 where something else started the ranks.

    Raises:
        ProcessLost: a rank has ended, or did not come in time.
    """
    watch = _Watch(process, time.monotonic() + timeout.total_seconds(), ended)
    try:
        store = PrefixStore(f"heedful/{next(_meetings)}", _open(process, timeout, watch))
        store.set(f"here/{process.rank}", "yes")
        while missing := [rank for rank in range(process.size) if not store.check([f"here/{rank}"])]:
            watch.wait(f"process {', '.join(map(str, missing))} did not come")
    except RuntimeError as error:
        raise ProcessLost(ended() or watch.sentence(str(error).splitlines()[0])) from error
    return store


class _Watch:
    """A wait with a limit that ends early when another rank has ended."""

    def __init__(self, process: ProcessRank, until: float, ended: Callable[[], str]) -> None:
        self._process = process
        self._until = until
        self._ended = ended

    def wait(self, reason: str) -> None:
        """Wait for a moment. Raises ProcessLost when a rank has ended, or when the limit is reached."""
        if self._ended():
            time.sleep(SECONDS_TO_COME_BACK)
            if sentence := self._ended():
                raise ProcessLost(f"{sentence} Process {self._process.rank} does not wait for it.")
        if time.monotonic() > self._until:
            raise ProcessLost(self.sentence(f"{reason} within --parallel.timeout"))
        time.sleep(POLL_SECONDS)

    def sentence(self, reason: str) -> str:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        return (
            f"Expected {self._process.size} processes to meet at {where}, but process {self._process.rank} could not "
            f"join: {reason}"
        )


def _open(process: ProcessRank, timeout: timedelta, watch: _Watch) -> Store:
    """The store, kept by this process where it is rank 0 and torchrun does not keep one."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    keeps = process.is_rank_0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if keeps:
        # torch asks for an unknown name again and again until the limit, and prints pages each time.
        try:
            socket.getaddrinfo(host, port)
        except (OSError, UnicodeError) as error:
            raise ProcessLost(watch.sentence(f"MASTER_ADDR is no address that this machine knows ({error})")) from error
        return TCPStore(host, port, process.size, True, timeout, wait_for_workers=False, multi_tenant=True)
    # torch prints pages about every failed attempt to connect, so a plain socket finds out when the store is there.
    while True:
        try:
            socket.create_connection((host, port), 5.0).close()
            break
        except OSError:
            keeper = "torchrun" if process.is_rank_0 else "process 0"
            watch.wait(f"nothing answers there, where {keeper} keeps the store,")
    return TCPStore(host, port, process.size, False, timeout, wait_for_workers=False)


class LongWork:
    """One piece of work, known by its name to all ranks that share the store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    @contextmanager
    def done_by(self, rank: int) -> Iterator[None]:
        """The work of this rank. It counts as done when the body ends without an error."""
        ended = threading.Event()
        # A daemon: the store may block while the process that keeps it ends.
        signs = threading.Thread(target=self._give_signs, args=(rank, ended), name="signs of life", daemon=True)
        signs.start()
        try:
            yield
            self._store.set(self._key("done", rank), "yes")
        finally:
            ended.set()
            signs.join(SIGN_SECONDS)

    def wait_for(self, ranks: Collection[int], timeout: float) -> None:
        """Wait until these ranks are done. `timeout`: seconds that one may be without a sign of life.

        Raises ProcessLost, a sentence, for a rank that has failed or gave no sign.
        """
        signs, heard = dict.fromkeys(ranks, ""), dict.fromkeys(ranks, time.monotonic())
        while at_work := [rank for rank in ranks if not self._store.check([self._key("done", rank)])]:
            for rank in at_work:
                if failed := self._read(f"left/{rank}"):
                    raise ProcessLost(f"Process {rank} has failed: {failed}")
                sign, now = self._read(self._key("sign", rank)), time.monotonic()
                if sign != signs[rank]:
                    signs[rank], heard[rank] = sign, now
                elif now > heard[rank] + timeout:
                    raise ProcessLost(
                        f"Process {rank} has given no sign of life for {timeout:.0f} seconds (--parallel.timeout): "
                        "killed, or its machine is cut off."
                    )
            time.sleep(SIGN_SECONDS / 4)

    def _give_signs(self, rank: int, ended: threading.Event) -> None:
        number = 0
        with suppress(RuntimeError):  # the store has ended, and the next collective says so
            while not ended.wait(SIGN_SECONDS):
                number += 1
                self._store.set(self._key("sign", rank), str(number))

    def _key(self, kind: str, rank: int) -> str:
        return f"{self._name}/{kind}/{rank}"

    def _read(self, key: str) -> str:
        return self._store.get(key).decode() if self._store.check([key]) else ""
