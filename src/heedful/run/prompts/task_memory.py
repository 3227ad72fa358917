"""A run's memory of the tasks of its pool: visits, successes, and the step in which each was last trained on.

Plain numbers, checkpointed as a JSON tree. The same visits in the same order give the same memory. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from heedful.diagnostics.restored import typed
from heedful.diagnostics.statistics.group_statistics import scored
from heedful.filters import Visit
from heedful.types import Group, Metric, Verdict

REMEMBERED = 12
"""Visits whose values are kept for filters that learn from the past. With a discount of .8 the last counts .07."""

_MOST = 1e100
"""Sums and squared deviations of the largest rewards are far below."""

FRESH = "fresh tasks at every step: none is seen twice (--tasks N draws from a pool)"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task's past."""

    visits: int = 0
    """Steps that drew the task."""
    episodes: int = 0
    """Scored episodes."""
    successes: int = 0
    trained: int = 0
    """Visits after which the update used the task's group."""
    last_trained: int | None = None
    """The step of the last such visit."""
    skips: int = 0
    """Visits since the last trained one, or since the first, without being trained on."""
    earlier: tuple[Visit, ...] = ()
    """The filter's values in the last visits, oldest first."""

    def after(self, step: int, group: Group, values: Sequence[float], trained: bool) -> TaskRecord:
        """The record after one more visit. `values`: the scored values that the filter used."""
        known = [trajectory.success for trajectory in group.trajectories if trajectory.success is not None]
        return TaskRecord(
            self.visits + 1,
            self.episodes + len(known),
            self.successes + sum(known),
            self.trained + trained,
            step if trained else self.last_trained,
            0 if trained else self.skips + 1,
            (*self.earlier, Visit.of(values))[-REMEMBERED:] if values else self.earlier,
        )


class TaskMemory:
    """The records of a pool's tasks, by id. A task that was never drawn has an empty one."""

    def __init__(self) -> None:
        self._records: dict[str, TaskRecord] = {}

    @property
    def records(self) -> Mapping[str, TaskRecord]:
        """The records of the tasks seen so far."""
        return self._records

    def of(self, task: str) -> TaskRecord:
        return self._records.get(task, TaskRecord())

    def observe(
        self,
        step: int,
        groups: Sequence[Group],
        values_PG: Sequence[Sequence[float | None]],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Record one step. The verdicts decide which groups were trained on."""
        for group, values_G, verdict in zip(groups, values_PG, verdicts, strict=True):
            record = self.of(group.task.id).after(step, group, scored(values_G), verdict.kept)
            self._records[group.task.id] = record

    def metrics(self, patience: int) -> list[Metric]:
        """`filter/starved_tasks` and `filter/longest_skip`, over the tasks seen so far."""
        skips = [record.skips for record in self._records.values()]
        return [
            Metric("filter/starved_tasks", float(sum(skipped >= patience for skipped in skips)), len(skips)),
            Metric("filter/longest_skip", float(max(skips, default=0)), len(skips)),
        ]

    def state(self) -> dict[str, Any]:
        return {
            task: {**_plain(record), "earlier": [astuple(visit) for visit in record.earlier]}
            for task, record in self._records.items()
        }

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Load a state that `state` gave, also after it has been JSON. Raises TypeError for a damaged one.

        Raises ValueError for `None`, the state of a run without a memory.
        """
        if state is None:
            raise ValueError("a memory of the pool's tasks was expected, and the run has drawn fresh tasks so far")
        records = {
            task: TaskRecord(**{**tree, "earlier": tuple(Visit(*visit) for visit in tree["earlier"])})
            for task, tree in state.items()
        }
        for task, record in records.items():
            for name, count in _plain(record).items():
                if not (type(count) is int and count >= 0) and not (name == "last_trained" and count is None):
                    raise TypeError(f"`{name}` of {task:.80} is {count!r:.80}, no count")
            for name, of in (("successes", "episodes"), ("trained", "visits"), ("skips", "visits")):
                if getattr(record, name) > getattr(record, of):
                    raise TypeError(f"{task:.80} has {getattr(record, name)} {name} in {getattr(record, of)} {of}")
            try:
                for visit in record.earlier:
                    typed(visit, most=_MOST)
            except (TypeError, ValueError) as error:
                raise TypeError(f"`earlier` of {task:.80} holds {error}") from error
        self._records = records

    def table(self) -> list[dict[str, Any]]:
        """One row per task seen, by name, without the filter's values: for files and people."""
        return [{"task": task, **_plain(record)} for task, record in sorted(self._records.items())]


def no_memory() -> list[Metric]:
    """The readings where every step draws fresh tasks and there is no memory."""
    return [Metric(f"filter/{name}", None, why=FRESH) for name in ("starved_tasks", "longest_skip", "readmitted")]


def _plain(record: TaskRecord) -> dict[str, Any]:
    tree = asdict(replace(record, earlier=()))
    del tree["earlier"]
    return tree
