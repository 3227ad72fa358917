"""Waits of one rank for others, in a store of keys and values that all share: until all have met, and for long work.

torch's own rendezvous waits inside one call, which handles no signal and prints pages. Here a rank looks for the others
again and again.

A collective is no way to wait for work of unknown length, such as growing a model: it fails after `--parallel.timeout`,
and a rank that waits in one handles no signal. Here the ranks at work give a sign of life every second (`LongWork`).
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from heedful.training.ranks.parallel import ProcessRank

POLL_SECONDS = 0.1
"""Between two looks at the other ranks."""

SIGN_SECONDS = 1.0
"""Between two signs of life. The others look for them four times as often."""

_meetings = itertools.count()
"""A process may join several times, one time after the other. Each meeting has keys of its own."""


class ProcessLost(ConnectionError):
    """Another rank has failed or does not answer. The sentence names it where it is known."""


def meet(process: ProcessRank, timeout: timedelta) -> Store:
    """Connect to the store of the run and wait until every rank has come.

    The store is kept by torchrun, or by rank 0 where something else started the ranks. Raises ProcessLost for a rank
    that did not come in time.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    until = time.monotonic() + timeout.total_seconds()

    def lost(reason: str) -> ProcessLost:
        return ProcessLost(
            f"Expected {process.size} processes to meet at {host}:{port}, but process {process.rank} could not join: "
            f"{reason}"
        )

    def wait(reason: str) -> None:
        if time.monotonic() > until:
            raise lost(f"{reason} within --parallel.timeout")
        time.sleep(POLL_SECONDS)

    keeps = process.is_rank_0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        if keeps:
            # torch asks for an unknown name again and again until the limit, and prints pages each time.
            socket.getaddrinfo(host, port)
        # It prints pages about every failed attempt to connect, too. So a plain socket looks for the store.
        while not (keeps or _answers(host, port)):
            wait("nothing answers there, where torchrun or process 0 keeps the store,")
        opened = TCPStore(host, port, process.size, keeps, timeout, wait_for_workers=False, multi_tenant=keeps)
        store = PrefixStore(f"heedful/{next(_meetings)}", opened)
        store.set(f"here/{process.rank}", "yes")
        while missing := [rank for rank in range(process.size) if not store.check([f"here/{rank}"])]:
            wait(f"process {', '.join(map(str, missing))} did not come")
    except ProcessLost:
        raise
    except (OSError, UnicodeError, RuntimeError) as error:
        raise lost(str(error).splitlines()[0]) from error
    return store


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5.0).close()
    except OSError:
        return False
    return True


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
