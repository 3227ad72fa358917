"""TRL's completion logs with heedful's own columns, as `heedful.integrations.trl.HeedfulGRPOTrainer` writes them.

Source: TRL's columns (see `trl.py`) and `heedful_id` (generation batch/group/member), `heedful_task`, `heedful_reason`,
`heedful_reward`, `heedful_outcome`, `heedful_progress`, `heedful_thought`.
Promise: what these columns give equals what the run measured. What only TRL's text could give is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.logs.records import (
    WITHOUT_IDS,
    Faults,
    Knowledge,
    Location,
    LoggedEpisode,
    Misfit,
    Row,
    unknown_of,
)
from heedful.auditing.logs.values import fitting, integer, mapping, number, shown, step_number, text_of
from heedful.auditing.readers.columns import columns_of, require
from heedful.auditing.readers.reader import Hints, RowReader, known_rewards, text_trajectory
from heedful.storage.rollouts import environment_in
from heedful.types import Task, Verdict

_ID = re.compile(r"(\d{1,30})/(\d{1,30})/(\d{1,30})")
_PLACE = re.compile(r"(\d{1,30}):(\d{1,30})")
_ONE_TEXT = "TRL logs a completion as one decoded text, which does not show the replies in it"
_EVALUATED = "of evaluations"
_REPEATED = "of batches that were logged before"


@dataclass(slots=True)
class _Batch:
    """The generation batch that is being read, over the borders of files."""

    step: int = -1
    seen: set[tuple[int, int]] = field(default_factory=set)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class NumberedCompletions(RowReader):
    """Rows of TRL's completion logs that name generation batch, group and member. Such a reader reads a log once."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "completion", *(f"heedful_{name}" for name in ("id", "task", "reason", "reward", "outcome"))}
        | {"heedful_progress", "heedful_thought"}
    )

    weights: Mapping[str, float] = field(default_factory=dict)
    """Reward column -> weight; empty where only their sum is known."""
    batch: _Batch = field(default_factory=_Batch)

    @property
    def columns(self) -> frozenset[str]:
        return RowReader.columns.__get__(self) | self.weights.keys()

    @staticmethod
    def fits(row: Row) -> bool:
        return {"prompt", "completion", "heedful_id", "heedful_reason", "heedful_reward"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [row for row in sample if cls.fits(row)]
        columns = columns_of(rows)
        require(hints.rewards, columns, "rewards")
        weights = dict.fromkeys(hints.rewards, 1.0) or _explaining(rows, hints.weights)
        success = hints.success or ("heedful_outcome" if columns.get("heedful_outcome") else None)
        require([success] if success else [], columns, "success")
        return cls(hints, _knowledge(success, tuple(weights)), success, weights)

    def of_row(self, place: Location, row: Row, faults: Faults) -> Iterable[LoggedEpisode]:
        return [self._episode(place, row)] if self._counts(row, faults) else []

    def _counts(self, row: Row, faults: Faults) -> bool:
        """Whether this row is one of training that was not read before, in a batch that the log holds from its start.

        TRL logs the last rows it generated: a batch may be logged twice, and an evaluation pushes out the first ones.
        """
        if row.get("heedful_id") is None:
            faults.aside[_EVALUATED] += 1
            return False
        step, group, member = _id(row)
        batch = self.batch
        if step != batch.step:
            batch.step, batch.seen, batch.whole = step, set(), (group, member) == (0, 0)
        if (group, member) in batch.seen:
            faults.aside[_REPEATED] += 1
            return False
        batch.seen.add((group, member))
        if not batch.whole:
            raise Misfit(f"generation batch {step} from its first completion", f"{group}/{member} first")
        return True

    def _episode(self, place: Location, row: Row) -> LoggedEpisode:
        step, group, member = _id(row)
        prompt, messages = self.prompt(row.get("prompt"))
        rewards, scored = self._rewards(row)
        outcome = self.outcome(row)
        name = text_of(row.get("heedful_task"), "heedful_task")
        task = Task(name, 0, "train", environment=environment_in(name))
        turn = text_turn(prompt, self._first_thought(row, prompt), self.hints.tags, rewards)
        trajectory = text_trajectory(task, (turn,), scored, outcome, self.hints.temperature)
        trajectory = replace(
            trajectory, member=member, progress=number(row.get("heedful_progress"), "heedful_progress")
        )
        reason = text_of(row.get("heedful_reason"), "heedful_reason")
        verdict = Verdict(float(reason == "kept"), reason, None)
        return LoggedEpisode(place, step, str(group), task, trajectory, messages, verdict)

    def _rewards(self, row: Row) -> tuple[dict[str, float], bool]:
        """The parts of the reward, weighted, or their sum alone; and whether the completion was scored."""
        total = number(row.get("heedful_reward"), "heedful_reward")
        if self.weights:
            given = _weighted(row, self.weights)
            return known_rewards({name: given.get(name) for name in self.weights}), bool(given)
        return ({} if total is None else {"heedful_reward": total}), total is not None

    def _first_thought(self, row: Row, prompt: str) -> str:
        """The thought of the first reply between its tags, from the place that the row names. Nothing if it has none.

        The text behind a thought that was cut off is the environment's, and no part of it.
        """
        tags, named = self.hints.tags, text_of(row.get("heedful_thought"), "heedful_thought")
        if not named:
            return ""
        opening = prompt[prompt.rindex(tags.open) :] if prompt.rstrip().endswith(tags.open) else tags.open
        if named.startswith("="):
            return f"{opening}{named[1:]}{tags.close}"
        place, text = _PLACE.fullmatch(named), _said(row.get("completion"))
        if place is None or int(place[2]) > len(text):
            raise Misfit(f"a place in the completion ({len(text)} characters) as `heedful_thought`", shown(named))
        end = int(place[2])
        closed = text[end:].lstrip().startswith(tags.close)
        return f"{opening}{text[int(place[1]) : end]}{tags.close if closed else ''}"


def _id(row: Row) -> tuple[int, int, int]:
    found = _ID.fullmatch(text_of(row["heedful_id"], "heedful_id"))
    if found is None:
        raise Misfit("batch/group/member as `heedful_id`", shown(row["heedful_id"]))
    group, member = (integer(int(part), "heedful_id") for part in found.groups()[1:])
    return step_number(int(found[1]), "heedful_id"), group, member


def _said(completion: Any) -> str:
    """The text in which the place of a thought counts: the completion, or the first message that was sampled."""
    if isinstance(completion, list):
        said = (message for message in completion if mapping(message, "completion").get("role") == "assistant")
        completion = next((message.get("content") for message in said), "")
    return completion if isinstance(completion, str) else ""


def _explaining(rows: Sequence[Row], weights: Mapping[str, float]) -> dict[str, float]:
    """The weights, if with them the reward columns add to `heedful_reward` in every row; else none."""

    def explained(row: Row) -> bool:
        total = number(row["heedful_reward"], "heedful_reward")
        return total is None or sum(_weighted(row, weights).values()) == total

    return dict(weights) if all(fitting(explained, rows)) else {}


def _weighted(row: Row, weights: Mapping[str, float]) -> dict[str, float]:
    """Reward column -> what it adds to the reward; columns that gave nothing are not there."""
    values = {name: number(row.get(name), name) for name in weights}
    parts = {name: weights[name] * value for name, value in values.items() if value is not None}
    for name, part in parts.items():
        number(part, f"{name} times its weight")
    return parts


def _knowledge(success: str | None, components: tuple[str, ...]) -> Knowledge:
    unknown = unknown_of(success=success is not None, turns=False)
    unknown |= dict.fromkeys(("format/closed_rate", "format/trailing_tokens", "length/turns"), _ONE_TEXT)
    unknown |= WITHOUT_IDS
    found = "heedful numbered the rows: groups, verdicts, rewards and thoughts are those that the run measured."
    return Knowledge((found,), (), unknown, numbered=True, components=components)
