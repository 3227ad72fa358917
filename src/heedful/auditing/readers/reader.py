"""What a reader of a format is, and what readers share.

To add a format, write a class that follows `Reader`, most easily on top of `RowReader`: `fits`, `begin` and `of_row`. A
package offers it through the entry point `heedful.log_readers`.

Promise: a row that does not fit is reported, and costs only itself (or the episode that it is a part of).
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from heedful.auditing.logs.conversations import (
    THOUGHTS,
    Messages,
    messages_of,
    text_of_messages,
    text_turn,
    turns_of,
    with_thought,
)
from heedful.auditing.logs.records import Episodes, Faults, Knowledge, LocatedRows, Location, LoggedEpisode, Misfit, Row
from heedful.auditing.logs.values import Fields, digest, is_missing, step_number, text_of, truth_of
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.types import Ending, Task, Trajectory, Turn

SUCCESS_NAMES = ("success", "acc", "correct", "is_correct", "solved")
"""Columns that hold success by the custom of their trainers, if they hold nothing but 0, 1, true and false."""
GROUP_NAMES = ("uid", "group", "group_id", "prompt_id", "id")
"""Columns that may name the group of a row."""
TRUTH_NAMES = ("gts", "ground_truth", "solution", "gold")
"""Columns that hold the right answer by the custom of their trainers."""
READ_BESIDE = frozenset((*THOUGHTS, *TRUTH_NAMES))
"""Columns that any row of texts may have: a thought apart, a right answer."""

TEXT_ALONE = (
    "Special tokens were dropped when prompts and replies were decoded, so a model reads other prompts here than in "
    "training; tags that are special tokens are gone, too."
)
"""Assumed of logs that were decoded."""
NO_STEP = "The log has no training step: each file is one step, the number in its name, or 0."
FEW_STEPS = "Few rows name a step: the others are of the step of their file, the number in its name, or 0."
ONE_REPLY = "An output is taken as one reply; in a run of several turns it also holds the environment's words."
SCORED_ONLY = math.nan
"""Outcome of an episode whose reward is known and whose success is not: neither 0 nor 1."""

Located = tuple[Location, Fields]


@dataclass(frozen=True, slots=True)
class Hints:
    """What the user said about a log."""

    tags: ThoughtTags = field(default_factory=ThoughtTags)
    temperature: float = 1.0
    rewards: tuple[str, ...] = ()
    """The columns whose sum is the reward; empty = all that can be rewards."""
    success: str | None = None
    """The column that holds success; `None` = one that is called so by custom."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Reward column -> its weight in the reward, where the run says so."""


class Reader(Protocol):
    """One format. A reader is made from rows that show every column of the log with every kind of value in it."""

    SUMS: ClassVar[bool]
    """Whether the reward is a sum of columns that the user may name."""

    @staticmethod
    def fits(row: Row) -> bool:
        """Whether this row is of the format."""
        ...

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        """Read the log of these rows. Raises ValueError where a hint names what is not there."""
        ...

    @property
    def knowledge(self) -> Knowledge: ...

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read. Others may hold anything."""
        ...

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        """The episodes of one file, in order."""
        ...


@dataclass(frozen=True, slots=True)
class RowReader(ABC):
    """A reader that reads each row by itself. A format adds `fits`, `begin` and `of_row`."""

    SUMS: ClassVar[bool] = False
    FIELDS: ClassVar[frozenset[str]]
    """The columns of the format that are read."""

    hints: Hints
    knowledge: Knowledge
    success: str | None = None
    """The column of success; `None` where it is unknown, or not the same in every row."""
    rewards: tuple[str, ...] = ()
    """The columns whose sum is the reward."""
    group: str | None = None
    """The column that names groups; `None` where the text of the prompt has to do."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read. Others may hold anything."""
        return self.FIELDS.union(self.rewards, [name for name in (self.success, self.group) if name])

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        """The episodes of one file, in order."""
        for place, row in rows:
            try:
                found = list(self.of_row(place, Fields(row), faults))
            except Misfit as misfit:
                faults.add(place, misfit.expected, misfit.found)
            else:
                yield from found

    @abstractmethod
    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        """The episodes of one row; `faults` counts a row that is set aside. Raises `Misfit`."""

    def outcome(self, row: Fields) -> float | None:
        """Success as the row has it; `None` where it is missing."""
        return row.outcome(self.success) if self.success else None

    def given(self, row: Fields) -> dict[str, float]:
        """The rewards of a row, as `known_rewards`."""
        return known_rewards({name: row.number(name) for name in self.rewards})

    def prompt(self, value: Any) -> tuple[str, Messages]:
        """A prompt as text and, where it was logged so, as messages."""
        if isinstance(value, str):
            return text_of(value, "prompt"), ()
        messages = messages_of(value, "prompt", self.hints.tags)
        return text_of_messages(messages), messages

    def dialogue(self, row: Fields) -> tuple[str, Messages, tuple[Turn, ...]]:
        """The first prompt of `prompt` and `completion` as text and messages, and the turns."""
        tags = self.hints.tags
        prompt, messages = self.prompt(row["prompt"])
        if isinstance(row["completion"], str):
            reply = with_thought(row.text("completion"), row, "a thought", tags)
            return prompt, messages, (text_turn(prompt, reply, tags),)
        said = messages_of(row["completion"], "completion", tags)
        _, turns = turns_of(({"role": "user", "content": prompt}, *said), tags)
        if not turns:
            raise Misfit("an assistant's message in `completion`", f"roles {[message['role'] for message in said]}")
        return prompt, messages, (text_turn(prompt, turns[0].reply.text, tags), *turns[1:])

    def by_text(self, row: Fields, prompt: str) -> tuple[str, str]:
        """The group of a row, by its column or else by its prompt, and the right answer that may contradict the
        latter."""
        named = row.key(self.group) if self.group else None
        if named is not None:
            return named, ""
        truth = next((row[name] for name in TRUTH_NAMES if not is_missing(row.get(name))), "")
        return prompt_task(prompt).id, truth if isinstance(truth, str) else json.dumps(truth, default=str)

    def trajectory(
        self,
        task: Task,
        turns: tuple[Turn, ...],
        rewards: Mapping[str, float],
        outcome: float | None,
        temperature: float | None = None,
    ) -> Trajectory:
        """An episode that was logged as text, with all rewards on its last turn. It is scored if it has a reward,
        whether or not its success is known."""
        scored = bool(rewards) or (outcome is not None and "reward/mean" in self.knowledge.unknown)
        if turns and rewards:
            turns = (*turns[:-1], replace(turns[-1], rewards=dict(rewards)))
        return text_trajectory(
            task, turns, scored, outcome, self.hints.temperature if temperature is None else temperature
        )


def consecutive(
    rows: LocatedRows, faults: Faults, begins: Callable[[Fields, Fields], bool]
) -> Iterator[tuple[list[Located], bool]]:
    """The rows of each episode, and whether it may have lost one: a line was left out in it or right after it.

    `begins`: whether a row begins another episode than the row before it belongs to. In a log of single rows none can
    have lost one.
    """
    held: list[Located] = []
    before, several = faults.count, False
    for place, row in rows:
        fields = Fields(row)
        if held and begins(fields, held[-1][1]):
            yield held, several and faults.count > before
            held = []
        if not held:
            before = faults.count
        held.append((place, fields))
        several = several or len(held) > 1
    if held:
        yield held, several and faults.count > before


def step_of_file(file: Path) -> int:
    """The last number in a file's name, else that of the folder of its step; 0 where there is none."""
    numbers = re.findall(r"\d+", file.stem) or re.findall(r"step_(\d+)/", file.as_posix())
    return step_number(int(numbers[-1]), "the last number of the file's name") if numbers else 0


def step_of(row: Row, file: Path, stepped: bool) -> int:
    """The row's own step, else that of its file. `stepped`: the rows of the log name steps.

    There a row without one is no row of step 0. Files of an older trainer may have it in their names instead.
    """
    if row.get("step") is not None:
        return step_number(row["step"], "step")
    if stepped and ("step" in row or not re.search(r"\d", file.stem)):
        raise Misfit("a whole number as `step`, as the first rows have it", "nothing")
    return step_of_file(file)


def stepped(rows: Sequence[Row]) -> tuple[bool, list[str]]:
    """Whether the rows name steps, at least half of them, and what is assumed where they do not."""
    named = sum(row.get("step") is not None for row in rows)
    return 2 * named >= max(1, len(rows)), [] if 2 * named >= max(1, len(rows)) else [FEW_STEPS if named else NO_STEP]


def known_rewards(values: Mapping[str, float | None]) -> dict[str, float]:
    """The rewards of a row, with NaN for those that it lacks. Empty if it lacks all."""
    lacking = all(value is None for value in values.values())
    return {} if lacking else {name: math.nan if value is None else value for name, value in values.items()}


def prompt_task(*texts: str) -> Task:
    """A task known by its prompt alone."""
    return Task(f"prompt-{digest(*texts)}", 0, "train")


def text_trajectory(
    task: Task, turns: tuple[Turn, ...], scored: bool, outcome: float | None, temperature: float
) -> Trajectory:
    """An episode that was logged as text. `outcome` `None` = the log does not know success."""
    known = SCORED_ONLY if outcome is None else outcome
    return Trajectory(task, 0, turns, Ending.OUT_OF_TURNS, known if scored else None, temperature=temperature)


def columns_of(sample: Sequence[Row]) -> dict[str, list[object]]:
    """Column -> its values in these rows, missing ones left out; in order of first appearance."""
    found: dict[str, list[object]] = {}
    for row in sample:
        for name, value in row.items():
            found.setdefault(name, [])
            if not is_missing(value):
                found[name].append(value)
    return found


def choose_success(columns: dict[str, list[object]], hints: Hints) -> str | None:
    """The column of success. Raises ValueError if the one that was named is not there."""
    if hints.success is not None:
        require([hints.success], columns, "success")
        return hints.success
    held = {name: [truth_of(value) for value in columns.get(name, ())] for name in SUCCESS_NAMES}
    return next((name for name, values in held.items() if scalar(values) and {*values} <= {0, 1}), None)


def choose_group(rows: Sequence[Row], prompt: str) -> str | None:
    """The column that names groups, by custom: rows of one step share its values.

    A column that differs where prompts repeat names rows. `id` may be anything, so each must have one prompt, too.
    """
    for name in GROUP_NAMES:
        prompts: dict[str, set[str]] = {}
        named = [row for row in rows if not is_missing(row.get(name))]
        for row in named:
            prompts.setdefault(repr((row.get("step"), row[name])), set()).add(repr(row.get(prompt)))
        repeats = len(prompts) < len(named)
        texts = len({repr((row.get("step"), row.get(prompt))) for row in named})
        one_each = all(len(of) == 1 for of in prompts.values())
        if named and (repeats or (name != "id" and texts == len(named))) and (name != "id" or one_each):
            return name
    return None


def require(wanted: Iterable[str], columns: Iterable[str], flag: str) -> None:
    there = list(columns)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"Expected --{flag} to name columns of the log, found no {listed(missing)}. "
            f"Its columns are {listed(there)}."
        )


def scalar(values: Sequence[object]) -> bool:
    """Numbers and truth values and nothing else, at least one."""
    return bool(values) and all(isinstance(value, bool | int | float) for value in values)
