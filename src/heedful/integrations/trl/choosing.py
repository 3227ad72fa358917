"""Choice of the prompts that TRL samples, by the outcomes of earlier visits to each row of its training data.

TRL's sampler names rows before the batch in front of them is rewarded: accelerate reads one batch ahead, and workers of
a data loader read further. So the rows are replaced where their generation begins. There all earlier outcomes are
known, whatever was read ahead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.diagnostics.statistics.group_statistics import scored, values_on
from heedful.filters import Visit
from heedful.integrations.watching.observer import Seen
from heedful.rollout.choosers import Chooser, Listed, Offer, Visits
from heedful.seeds import stream
from heedful.types import PROBE, Task


class PromptChoice:
    """Chooses rows for a whole run, and remembers their outcomes. Rank 0 has one, which decides for all ranks.

    A row is known by its place in the data. Each update draws from a generator of its own, so a resumed run chooses
    alike.
    """

    def __init__(self, chooser: Chooser, rows: int, seed: int) -> None:
        self.chooser = chooser
        self.pool = tuple(Task(str(place), place, "train") for place in range(rows))
        self.seed = seed
        self.memory = Visits()
        self.drawn: list[Task] = []
        """The rows of the update that is being sampled."""
        self._rng: random.Random

    def draw(self, count: int, step: int, even: int = 1) -> list[int]:
        """`count` places that this update has not drawn. A multiple of `even`, and fewer where no more are left."""
        if not self.drawn:
            self._rng = stream(self.seed, "choose", step)
        seen = {task.id for task in self.drawn}
        offer = Offer(Listed(self.pool, self._rng), self.memory.past, step, seen, self._rng)
        chosen = self.chooser.choose(min(count, (len(self.pool) - len(seen)) // even * even), offer)
        self.drawn += chosen
        return [task.seed for task in chosen]

    @property
    def probes(self) -> list[int]:
        """The numbers of the groups of this update that were drawn uniformly."""
        return [number for number, task in enumerate(self.drawn) if PROBE in task.tags]

    def earlier(self, on: str) -> list[Sequence[Visit]]:
        """The earlier visits to the row of each group, for a filter on these values. Empty where `on` is no outcome."""
        return [self.memory.past(task.id) for task in self.drawn] if on == "outcome" else []

    def observe(self, seen: Seen) -> None:
        """Remember the outcomes of an update, which ends with this."""
        for task, values in zip(self.drawn, values_on(seen.groups, "outcome"), strict=True):
            self.memory.observe(task.id, scored(values))
        self.drawn = []
