"""A trainer that writes its log while a watch waits, in this process and on a clock of its own."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foreign_logs as logs
from audit_watching import Witness

from heedful.auditing import AuditSettings
from heedful.auditing.follow import Clock, Ends, follow
from heedful.watching.sinks import Measured

SETTINGS = AuditSettings(every=7)
Files = dict[str, bytes]
"""Name -> content, in the order in which a trainer writes them."""


def as_lines(rows: list[logs.Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class Killed(Exception):
    """In place of a signal that cannot be caught."""


@dataclass
class Trainer(Witness):
    """Writes a log in random pieces, and kills the watch now and then."""

    root: Path = Path()
    rng: random.Random = field(default_factory=random.Random)
    writers: list[Iterator[None]] = field(default_factory=list)
    time: float = 1e9
    kills: int = 0
    """How often it will kill the watch."""

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        for _ in range(self.rng.choice([0, 1, 1, 3, 12])):
            at = self.rng.randrange(len(self.writers) or 1)
            if self.writers and next(self.writers[at], "done"):
                self.writers.pop(at)
        self._may_kill()

    def step(self, measured: Measured) -> None:
        super().step(measured)
        self._may_kill()

    def _may_kill(self) -> None:
        if self.kills and self.rng.random() < 0.05:
            self.kills -= 1
            raise Killed

    def write(self, files: Files) -> Iterator[None]:
        """One file after the other, in place or under another name first."""
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            place = path.with_suffix(".tmp") if self.rng.random() < 0.2 else path
            at = 0
            while at < len(content):
                piece = content[at : at + self.rng.choice([1, 37, 400, 4000, 40000])]
                with place.open("ab") as stream:
                    stream.write(piece)
                os.utime(place, (self.time, self.time))
                at += len(piece)
                yield
            place.rename(path)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.time, self.sleep)


def watch(root: Path, trainer: Trainer, **more: Any) -> Path:
    """Watch `log` until nothing has come for five minutes. The results are in `out`."""
    usual = {"out": root / "out", "ends": Ends(idle=300.0)}
    return follow(root / "log", SETTINGS, sinks=[trainer], clock=trainer.clock, **{**usual, **more})
