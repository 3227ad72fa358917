"""Cases of the share of luck in the variance of rewards: prompts with known chances of each sequence of replies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.truth.simulation import Case
from heedful.diagnostics.luck import luck_metrics
from heedful.types import Metric


@dataclass(frozen=True)
class Kind:
    """A kind of prompt."""

    share: float
    """Its share of the prompts."""
    shares: tuple[float, ...]
    """How often the agent gives each sequence of replies."""
    chances: tuple[float, ...]
    """The chance of success of each sequence under fresh noise."""

    @property
    def luck(self) -> float:
        return sum(share * chance * (1 - chance) for share, chance in zip(self.shares, self.chances, strict=True))

    @property
    def total(self) -> float:
        mean = sum(share * chance for share, chance in zip(self.shares, self.chances, strict=True))
        return mean * (1 - mean)


def _case(label: str, kinds: tuple[Kind, ...], prompts: int = 16, members: int = 8, replays: int = 4) -> Case:
    """The filter keeps the prompts of the first kind."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        drawn = rng.choice(len(kinds), prompts, p=[kind.share for kind in kinds])
        values = []
        for number in drawn:
            kind = kinds[number]
            chances = np.array(kind.chances)[rng.choice(len(kind.chances), members, p=kind.shares)]
            values.append((rng.random((replays, members)) < chances).astype(float).T.tolist())
        return luck_metrics(values, [number == 0 for number in drawn])

    luck, total = (sum(kind.share * part for kind, part in zip(kinds, parts, strict=True)) for parts in _parts(kinds))
    truths = {"signal/luck_share": luck / total, "signal/luck_share_kept": kinds[0].luck / kinds[0].total}
    return Case(f"{label}, {prompts} prompts x {members} x {replays} replays", draw, truths)


def _parts(kinds: tuple[Kind, ...]) -> tuple[list[float], list[float]]:
    return [kind.luck for kind in kinds], [kind.total for kind in kinds]


_SKILL = Kind(0.5, (0.5, 0.5), (0.0, 1.0))
_BOTH = Kind(1.0, (0.5, 0.5), (0.2, 0.8))
_LUCK = Kind(0.5, (1.0,), (0.5,))
_SOLVED = Kind(0.5, (1.0,), (1.0,))

CASES = (
    _case("luck and skill in every prompt", (_BOTH,)),
    _case("luck and skill in every prompt", (_BOTH,), prompts=64),
    _case("luck alone", (Kind(1.0, (1.0,), (0.5,)),)),
    _case("luck in half of the prompts, skill in the others", (_LUCK, _SKILL)),
    _case("a slip now and then", (Kind(0.8, (0.3, 0.7), (0.05, 0.9)), Kind(0.2, (1.0,), (0.95,)))),
    _case("half of the prompts solved, no luck in them", (Kind(0.5, (0.5, 0.5), (0.1, 0.6)), _SOLVED)),
)
