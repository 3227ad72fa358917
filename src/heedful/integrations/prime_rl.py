"""heedful's choosers as a task sampler of prime-rl: which task is sampled next, by the success of its own past.

prime-rl asks for one task at a time and reports every finished group. Nothing of prime-rl is imported: `ChooserSampler`
has the methods of its `TaskSampler`, as of commit 559b447 (21 August 2026), and takes the place of a curriculum's.

    for curriculum in orchestrator.train_source.curricula.values():
        curriculum.sampler = ChooserSampler(curriculum.sampler.tasks, Thompson())

It has to be there before prime-rl loads a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from heedful.integrations.watching.completions import success_of
from heedful.rollout.choosers import Chooser, Listed, Offer, Visits, Yoked
from heedful.seeds import stream
from heedful.types import Task


class ChooserSampler(Iterator[Any]):
    """A finite set of prime-rl's tasks, in the order of a chooser.

    `tasks`: each has a `key` of its own. `at_once`: tasks that are chosen together, about as many as an update has
    groups. They are distinct, the chooser's floor is a share of them, and with more of them outcomes are older.
    `success`: the success of a trace, from 0 to 1. By default its reward.

    prime-rl has no place for the tag of a probe, so its curves of reward read the choice. Read its evaluations instead.
    """

    def __init__(
        self,
        tasks: Sequence[Any] | None,
        chooser: Chooser,
        *,
        seed: int = 0,
        at_once: int = 16,
        success: Callable[[Any], float] = lambda trace: float(trace.reward),
    ) -> None:
        """Raises ValueError for tasks that are no finite sequence, and for `Yoked`."""
        if not isinstance(tasks, Sequence):
            raise ValueError(
                f"A chooser expected a finite sequence of tasks, since it knows a task by earlier visits, found "
                f"{type(tasks).__name__}. Give the task set a number of tasks."
            )
        if isinstance(chooser, Yoked):
            raise ValueError(
                f"Expected a chooser without an end, since prime-rl does not say how many tasks it will ask for, found "
                f"{chooser!r}: its schedule has as many steps as the other run. Choose another one."
            )
        self.tasks = {task.key: task for task in tasks}
        self.chooser, self.seed, self.at_once, self.success = chooser, seed, min(at_once, len(self.tasks)), success
        self.memory = Visits()
        self._pool = tuple(Task(key, place, "train") for place, key in enumerate(self.tasks))
        self._rounds = 0
        self._waiting: list[str] = []
        """The keys of tasks that were chosen and not asked for yet."""

    def __next__(self) -> Any:
        if not self._waiting:
            rng = stream(self.seed, "choose", self._rounds)
            offer = Offer(Listed(self._pool, rng), self.memory.past, self._rounds, (), rng)
            self._waiting = [task.id for task in self.chooser.choose(self.at_once, offer)]
            self._rounds += 1
        return self.tasks[self._waiting.pop(0)]

    def observe(self, group: Sequence[Any]) -> None:
        """Remember the episodes of a finished group: the traces of trained agents that ended without an error.

        Raises ValueError for a success outside 0 to 1.
        """
        values = [
            success_of(self.success(trace), "a trace", "success=")
            for episode in group
            for trace in episode.traces
            if not trace.has_error and trace.agent.trainable
        ]
        self.memory.observe(group[0].task.key, values)

    def state_dict(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "waiting": list(self._waiting), "memory": self.memory.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._rounds, self._waiting = state_dict["rounds"], list(state_dict["waiting"])
        self.memory.load_state(state_dict["memory"])

    def metrics(self) -> dict[str, float]:
        """For prime-rl's logs, under `curriculum/<environment>/sampler/`."""
        return {"visited": len(self.memory.visits) / len(self.tasks)}
