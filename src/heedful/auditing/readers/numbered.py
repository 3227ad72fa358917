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
from heedful.auditing.logs.values import Fields, fitting, number, shown, step_number
from heedful.auditing.readers.reader import Hints, RowReader, columns_of, known_rewards, require
from heedful.storage.rollouts import environment_in
from heedful.types import Task, Verdict

_ID = re.compile(r"(\d{1,18})/(\d{1,18})/(\d{1,18})")
_PLACE = re.compile(r"(\d{1,18}):(\d{1,18})")
_ONE_TEXT = "TRL logs a completion as one decoded text, which does not show the replies in it"


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
    """Weight of each reward column; empty where only their sum is known."""
    batch: _Batch = field(default_factory=_Batch)

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
        unknown = unknown_of(success=success is not None, turns=False) | WITHOUT_IDS
        unknown |= dict.fromkeys(("format/closed_rate", "format/trailing_tokens", "length/turns"), _ONE_TEXT)
        found = "heedful numbered the rows: groups, verdicts, rewards and thoughts are those that the run measured."
        knowledge = Knowledge((found,), (), unknown, numbered=True, components=tuple(weights))
        return cls(hints, knowledge, success, tuple(weights), weights=weights)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        """The episode, if the row is one of training that was not read before, in a batch that is held from its start.

        TRL logs the last rows it generated: a batch may be logged twice, and an evaluation pushes out the first ones.
        """
        if row.get("heedful_id") is None:
            faults.aside["of evaluations"] += 1
            return
        found = _ID.fullmatch(row.text("heedful_id"))
        if found is None:
            raise Misfit("batch/group/member as `heedful_id`", shown(row["heedful_id"]))
        step, group, member = step_number(int(found[1]), "heedful_id"), int(found[2]), int(found[3])
        batch = self.batch
        if step != batch.step:
            batch.step, batch.seen, batch.whole = step, set(), (group, member) == (0, 0)
        if (group, member) in batch.seen:
            faults.aside["of batches that were logged before"] += 1
            return
        batch.seen.add((group, member))
        if not batch.whole:
            raise Misfit(f"generation batch {step} from its first completion", f"{group}/{member} first")
        prompt, messages = self.prompt(row.get("prompt"))
        rewards = known_rewards({"heedful_reward": row.number("heedful_reward")})
        if self.weights:  # the parts of the reward, weighted, in place of their sum
            given = _weighted(row, self.weights)
            rewards = known_rewards({name: given.get(name) for name in self.weights})
        name = row.text("heedful_task")
        task = Task(name, 0, "train", environment=environment_in(name))
        turn = text_turn(prompt, self._first_thought(row, prompt), self.hints.tags)
        trajectory = self.trajectory(task, (turn,), rewards, self.outcome(row))
        trajectory = replace(trajectory, member=member, progress=row.number("heedful_progress"))
        reason = row.text("heedful_reason")
        verdict = Verdict(float(reason == "kept"), reason, None)
        yield LoggedEpisode(place, step, str(group), task, trajectory, messages, verdict)

    def _first_thought(self, row: Fields, prompt: str) -> str:
        """The thought of the first reply between its tags, from the place that the row names. Nothing if it has none.

        The text behind a thought that was cut off is the environment's, and no part of it.
        """
        tags, named = self.hints.tags, row.text("heedful_thought")
        if not named:
            return ""
        opening = prompt[prompt.rindex(tags.open) :] if prompt.rstrip().endswith(tags.open) else tags.open
        if named.startswith("="):
            return f"{opening}{named[1:]}{tags.close}"
        # The place counts in the completion, or in the first message that was sampled.
        text: Any = row.get("completion")
        if isinstance(text, list):
            said = (message for message in row.objects("completion") if message.get("role") == "assistant")
            text = next((message.get("content") for message in said), "")
        place, text = _PLACE.fullmatch(named), text if isinstance(text, str) else ""
        if place is None or int(place[2]) > len(text):
            raise Misfit(f"a place in the completion ({len(text)} characters) as `heedful_thought`", shown(named))
        end = int(place[2])
        closed = text[end:].lstrip().startswith(tags.close)
        return f"{opening}{text[int(place[1]) : end]}{tags.close if closed else ''}"


def _explaining(rows: Sequence[Row], weights: Mapping[str, float]) -> dict[str, float]:
    """The weights, if with them the reward columns add to `heedful_reward` in every row; else none."""

    def explained(row: Fields) -> bool:
        total = row.number("heedful_reward")
        return total is None or sum(_weighted(row, weights).values()) == total

    return dict(weights) if all(fitting(explained, rows)) else {}


def _weighted(row: Fields, weights: Mapping[str, float]) -> dict[str, float]:
    """Reward column -> what it adds to the reward; columns that gave nothing are not there."""
    values = {name: row.number(name) for name in weights}
    parts = {name: weights[name] * value for name, value in values.items() if value is not None}
    for name, part in parts.items():
        number(part, f"{name} times its weight")
    return parts
