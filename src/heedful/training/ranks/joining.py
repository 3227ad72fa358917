"""The meeting of the ranks of a run: one store of keys and values, in which every rank says that it has come.

torch's own rendezvous waits inside one call for its whole timeout. Here a rank looks around while it waits, so that it
ends within seconds when another rank has ended.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from queue import Queue
from threading import Thread

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from heedful.training.ranks.parallel import ProcessRank

POLL_SECONDS = 0.1
"""Between two looks at the other ranks."""

SECONDS_TO_COME_BACK = 2.0
"""A rank that is said to have ended is looked at again after this time: a restarted one needs a moment to begin."""

SECONDS_TO_GREET = 60.0
"""A program that takes a connection and says nothing for this time is not the store of a run."""

CONNECTION = "connection to the store"
"""The name of the thread that connects."""

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
    while not _answers(host, port):
        watch.wait(f"nothing answers there, where {'torchrun' if process.is_rank_0 else 'process 0'} keeps the store,")
    opened: Queue[Store | RuntimeError] = Queue()
    # torch connects again and again until its own limit, to whatever has the port by then. Ours is reached before.
    limit = timedelta(seconds=2 * SECONDS_TO_GREET)

    def connect() -> None:
        try:
            store = TCPStore(host, port, process.size, False, limit, wait_for_workers=False)
            store.set_timeout(timeout)
            opened.put(store)
        except RuntimeError as error:
            opened.put(error)

    # In a thread: torch waits without a limit for the greeting of a server that says nothing.
    Thread(target=connect, name=CONNECTION, daemon=True).start()
    silent = time.monotonic() + SECONDS_TO_GREET
    while opened.empty():
        if time.monotonic() > silent:
            raise ProcessLost(watch.sentence("another program answers there; choose another MASTER_PORT"))
        watch.wait("the store does not answer")
    store = opened.get()
    if isinstance(store, RuntimeError):
        raise store
    return store


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5.0).close()
    except OSError:
        return False
    return True
