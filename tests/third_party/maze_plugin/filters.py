"""A filter that looks at places alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.types import Verdict


@dataclass(frozen=True, slots=True)
class EveryOther:
    """Keep every group at an even place."""

    on: str = "outcome"
    first: int = 0
    """The first place that is kept."""

    @property
    def share(self) -> float | None:
        return None

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        kept = range(self.first, len(values_PG), 2)
        return [
            Verdict(1.0, "kept", None) if place in kept else Verdict(0.0, "odd_place", None)
            for place in range(len(values_PG))
        ]
