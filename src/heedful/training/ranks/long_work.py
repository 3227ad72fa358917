"""Work of unknown length that some ranks do while the others wait, such as growing a model.

A collective is no way to wait for it: it fails after `--parallel.timeout`, and a rank that waits in one handles no
signal. Here the ranks at work give a sign of life every second, and the others look for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from torch.distributed.distributed_c10d import Store

from heedful.training.ranks.joining import ProcessLost

SIGN_SECONDS = 1.0
"""Between two signs of life. The others look for them four times as often."""


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
