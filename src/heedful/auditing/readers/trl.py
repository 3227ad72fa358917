"""TRL's completion logs: `<output_dir>/completions/completions_<step>.parquet`, written with `log_completions=True`.

Any other rows with a `prompt` and a `completion` are read in the same way.

Source: TRL 1.16, `GRPOTrainer.log`. One row per completion with `step`, `prompt`, `completion`, a column per reward
function, user columns, `advantage`. Texts are decoded with special tokens dropped; a reward that was not given is null.
Promise: what such a file does not tell (weights of rewards, which number is a reward) is reported, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Self

from heedful.auditing.logs.conversations import messages_of, text_turn, turns_of, unread_parts
from heedful.auditing.logs.records import Faults, Knowledge, Location, LoggedEpisode, Misfit, Row, unknown_of
from heedful.auditing.logs.values import Fields, fitting, shown
from heedful.auditing.readers.reader import (
    NO_STEP,
    TEXT_ALONE,
    Hints,
    RowReader,
    choose_success,
    columns_of,
    prompt_task,
    require,
    scalar,
    step_of,
    text_trajectory,
)
from heedful.boundary import listed
from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.types import Turn

_OF_TRL = frozenset({"step", "advantage"})
_NO_REWARDS = _OF_TRL | {"mode", "epoch"}


@dataclass(frozen=True, slots=True)
class TrlCompletions(RowReader):
    """Rows of TRL's completion logs."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset({"step", "prompt", "completion", "advantage"})

    @staticmethod
    def fits(row: Row) -> bool:
        return {"prompt", "completion"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [row for row in sample if cls.fits(row)]
        columns = columns_of(rows)
        require(hints.rewards, columns, "rewards")
        numbers = tuple(
            name
            for name, values in columns.items()
            if name not in _NO_REWARDS and scalar(values) and not any(isinstance(value, bool) for value in values)
        )
        if not columns.keys() & _OF_TRL or ("reward" in columns and "advantage" not in columns):
            numbers = ("reward",) if scalar(columns.get("reward", ())) else ()  # by hand: others may be anything
        rewards = hints.rewards or numbers
        success = choose_success(columns, hints)
        return cls(hints, _knowledge(rows, columns, rewards, success, hints), success, rewards)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("`prompt` and `completion`", f"columns {listed(row)}")
        given, outcome = self.given(row), self.outcome(row)
        prompt, messages = self.prompt(row["prompt"])
        if isinstance(row["completion"], str):
            turns: tuple[Turn, ...] = (text_turn(prompt, row.text("completion"), self.hints.tags, given),)
        else:
            said = messages_of(row["completion"], "completion", self.hints.tags)
            _, turns = turns_of(({"role": "user", "content": prompt}, *said), self.hints.tags)
            if not turns:
                roles = [message["role"] for message in said]
                raise Misfit("an assistant's message in `completion`", f"roles {roles}")
            turns = (text_turn(prompt, turns[0].reply.text, self.hints.tags, given), *turns[1:])
        task = prompt_task(prompt)
        scored = self.scored(bool(given) or (not self.rewards and outcome is not None), outcome)
        trajectory = text_trajectory(task, turns, scored, outcome, self.hints.temperature)
        step = step_of(row, place.file, self.knowledge.stepped)
        yield LoggedEpisode(place, step, task.id, task, trajectory, messages)


def _knowledge(
    rows: Sequence[Row], columns: dict[str, list[object]], rewards: tuple[str, ...], success: str | None, hints: Hints
) -> Knowledge:
    unread = columns.get("reward") if "reward" not in rewards and not hints.rewards else None
    none = (
        f"No reward column: `reward` holds no numbers ({shown(unread[0])})."
        if unread
        else "No reward column in the first rows."
    )
    found = [f"Reward columns: {listed(rewards)}." if rewards else none]
    found += [f"Success is read from the column {success}."] if success else []
    assumed = [
        "Completions with the same prompt in one step are one group: the log has no group number.",
        "Each file holds the last batch that was generated before its step was logged."
        if "step" in columns
        else NO_STEP,
    ]
    if len(rewards) > 1:
        assumed.append("The reward is the plain sum of the reward columns: weights are not logged.")
    if not hints.rewards and not _advantages_agree(rows, rewards):
        assumed.append(
            "The logged advantages do not follow the sum of these columns: some are weighted, or are no rewards. Name "
            "the right ones with --rewards."
        )
    empty = [name for name, values in columns.items() if not values and name not in (*rewards, success, *_OF_TRL)]
    if empty:
        assumed.append(
            f"Columns without a value in the first rows are not read: {listed(empty)}. Name a reward among "
            "them with --rewards, and success with --success."
        )
    conversational = any(isinstance(value, list) for value in columns["prompt"])
    if not conversational:
        assumed.append(TEXT_ALONE)
    assumed += unread_parts([columns["prompt"], columns["completion"]])
    whole = any(isinstance(value, str) for value in columns["completion"])
    unknown = unknown_of(success=success is not None, turns=not whole, reward=bool(rewards))
    return Knowledge(tuple(found), tuple(assumed), unknown, stepped=bool(columns.get("step")))


def _advantages_agree(rows: Sequence[Row], rewards: tuple[str, ...]) -> bool:
    """Whether, within each prompt, a higher sum of rewards has the higher advantage."""

    def read(row: Fields) -> tuple[str, list[float | None], float | None]:
        return str(row["prompt"]), [row.number(name) for name in rewards], row.number("advantage")

    groups: dict[str, list[tuple[float, float]]] = {}
    for prompt, values, advantage in fitting(read, rows):
        if advantage is not None and None not in values:
            total = math.fsum(value for value in values if value is not None)
            groups.setdefault(prompt, []).append((total, advantage))
    pairs = (pair for members in groups.values() for pair in combinations(members, 2))
    return all(is_constant([a[0], b[0]]) or (a[0] > b[0]) == (a[1] > b[1]) for a, b in pairs)
