"""The path from collected groups to training groups: surplus, filter, guard, memory - in this order.

There is one verdict per collected group. Without a pool of tasks, dynamic sampling and a guard it is the filter's
verdict, unchanged. Torch-free.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored, values_on
from heedful.filters import Remembering, verdicts_of
from heedful.protocols import Filter
from heedful.rollout.refill import Collection
from heedful.run.prompts.coverage import Coverage, readmit
from heedful.run.prompts.task_memory import TaskMemory, no_memory
from heedful.types import Group, Metric, Verdict


@dataclass(slots=True)
class Selection:
    """Chooses groups for a whole run, and remembers its tasks where they come from a pool."""

    filter: Filter
    coverage: Coverage = field(default_factory=Coverage)
    memory: TaskMemory | None = None
    """`None`: every step draws fresh tasks."""

    def choose(self, step: int, collection: Collection, rng: random.Random) -> list[Verdict]:
        """The verdicts of one step. Afterwards the memory includes the step.

        Under dynamic sampling the filter sees the first groups that vary, as many as were asked for. The others are
        `surplus` where they vary too, else `constant` or `unscored`. Then the guard re-admits starved tasks.
        """
        groups = collection.groups
        values_PG = values_on(groups, self.filter.on)
        if collection.ending == "off":
            verdicts = self._filtered(step, groups, values_PG, rng)
        else:
            verdicts = self._of_varying(step, collection, values_PG, rng)
        if self.memory is not None:
            records = [self.memory.of(group.task.id) for group in groups]
            verdicts = readmit(
                verdicts,
                [group.task.id for group in groups],
                [record.skips for record in records],
                [not is_constant(scored(values_G)) for values_G in values_PG],
                self.coverage.patience,
                self.coverage.most(collection.wanted),
            )
            self.memory.observe(step, groups, values_PG, verdicts)
        return verdicts

    def metrics(self, verdicts: Sequence[Verdict]) -> list[Metric]:
        """`filter/starved_tasks`, `/longest_skip` and `/readmitted`, after `choose`."""
        if self.memory is None:
            return no_memory()
        readmitted = sum(verdict.reason == "readmitted" for verdict in verdicts)
        return [
            *self.memory.metrics(self.coverage.patience),
            Metric("filter/readmitted", float(readmitted), len(verdicts)),
        ]

    def _filtered(
        self, step: int, groups: Sequence[Group], values_PG: Sequence[Sequence[float | None]], rng: random.Random
    ) -> list[Verdict]:
        chooses = self.filter
        if self.memory is not None and isinstance(chooses, Remembering):
            chooses = chooses.after([self.memory.of(group.task.id).earlier for group in groups])
        return verdicts_of(chooses, values_PG, rng, f"step {step}")

    def _of_varying(
        self, step: int, collection: Collection, values_PG: Sequence[Sequence[float | None]], rng: random.Random
    ) -> list[Verdict]:
        verdicts = [_without_filter(scored(values_G)) for values_G in values_PG]
        varying = [group for group, verdict in enumerate(verdicts) if verdict.reason == "surplus"]
        judged = varying[: collection.wanted]
        for group, verdict in zip(
            judged,
            self._filtered(step, [collection.groups[i] for i in judged], [values_PG[i] for i in judged], rng),
            strict=True,
        ):
            verdicts[group] = verdict
        return verdicts


def _without_filter(values: Sequence[float]) -> Verdict:
    """The verdict on a group that the filter does not see."""
    if len(values) < 2:
        return Verdict(0.0, "unscored", None)
    variance = sample_variance(values)
    return Verdict(0.0, "surplus" if variance > 0 else "constant", variance)
