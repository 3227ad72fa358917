"""verl's rollout dumps: `trainer.rollout_data_dir/<step>.jsonl`.

Source: verl 0.9, `_dump_generations`. One line per sample with `input`, `output`, `gts`, `score`, `step` and whatever
the reward function returned besides. No group id, no token ids; texts are decoded with special tokens dropped.
`score` is the reward. Nothing else is added to it unless --rewards says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from heedful.auditing.conversations import text_turn
from heedful.auditing.readers.columns import choose_success, columns_of, require
from heedful.auditing.readers.reader import TEXT_ALONE, Hints, RowReader, prompt_task, step_of, text_trajectory
from heedful.auditing.records import Faults, Knowledge, Location, LoggedEpisode, Misfit, Row, unknown_of
from heedful.auditing.values import names, number, text_of


@dataclass(frozen=True, slots=True)
class VerlRollouts(RowReader):
    """Lines of verl's rollout and validation dumps."""

    FIELDS: ClassVar[frozenset[str]] = frozenset({"step", "input", "output", "score"})

    rewards: tuple[str, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        return RowReader.columns.__get__(self) | set(self.rewards)

    @staticmethod
    def fits(row: Row) -> bool:
        return {"input", "output", "score"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        columns = columns_of([row for row in sample if cls.fits(row)])
        require(hints.rewards, columns, "rewards")
        rewards = hints.rewards or ("score",)
        success = choose_success(columns, hints)
        found = [f"Reward: {names(rewards)}."] + ([f"Success is read from {success}."] if success else [])
        assumed = (
            "Samples with the same input in one step are one group: the log has no group number.",
            "An output is taken as one reply; in a run of several turns it also holds the environment's words.",
            TEXT_ALONE,
        )
        unknown = unknown_of(success=success is not None, turns=False)
        return cls(hints, Knowledge(tuple(found), assumed, unknown), success, rewards)

    def of_row(self, place: Location, row: Row, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("`input`, `output` and `score`", f"fields {names(row)}")
        rewards = {name: number(row.get(name), name) for name in self.rewards}
        given = {name: value for name, value in rewards.items() if value is not None}
        prompt = text_of(row["input"], "input")
        outcome = self.outcome(row)
        turn = text_turn(prompt, text_of(row["output"], "output"), self.hints.tags, given)
        task = prompt_task(prompt)
        trajectory = text_trajectory(task, (turn,), self.scored(bool(given), outcome), outcome, self.hints.temperature)
        yield LoggedEpisode(place, step_of(row, place.file), task.id, task, trajectory)
