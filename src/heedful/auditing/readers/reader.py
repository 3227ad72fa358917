"""What a reader of a format is, and what most readers share.

To add a format, write a class that follows `Reader`, most easily on top of `RowReader`: `fits`, `begin` and `of_row`. A
package offers it through the entry point `heedful.log_readers`.

Promise: a row that does not fit is reported, and costs only itself (or the episode that it is a part of).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from heedful.auditing.logs.conversations import Messages, messages_of, text_of_messages
from heedful.auditing.logs.records import Episodes, Faults, Knowledge, LocatedRows, Location, LoggedEpisode, Misfit, Row
from heedful.auditing.logs.values import Fields, digest, step_number, text_of
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.types import Ending, Task, Trajectory, Turn

SUCCESS_NAMES = ("success", "acc", "correct", "is_correct", "solved")
"""Columns that hold success by the custom of their trainers, if they hold nothing but 0, 1, true and false."""

TEXT_ALONE = (
    "Special tokens were dropped when prompts and replies were decoded, so a model reads other prompts here than in "
    "training; tags that are special tokens are gone, too."
)
"""Assumed of logs that were decoded."""

NO_STEP = "The log has no training step: each file is one step, the number in its name, or 0."
"""Assumed of logs whose rows have no step."""

SCORED_ONLY = math.nan
"""Outcome of an episode whose reward is known and whose success is not: neither 0 nor 1."""


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
    """One format. A reader is made from a log's first rows, which decide what its columns mean."""

    SUMS: ClassVar[bool]
    """Whether the reward is a sum of columns that the user may name."""

    @staticmethod
    def fits(row: Row) -> bool:
        """Whether this row is of the format."""
        ...

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        """Read a log that begins with these rows. Raises ValueError where a hint names what is not there."""
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

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read. Others may hold anything."""
        return self.FIELDS.union(self.rewards, [self.success] if self.success else [])

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

    def scored(self, rewarded: bool, outcome: float | None) -> bool:
        """Whether an episode counts as scored: it has a reward, and success where the log knows it."""
        return rewarded and (self.success is None or outcome is not None)

    def prompt(self, value: Any) -> tuple[str, Messages]:
        """A prompt as text and, where it was logged so, as messages."""
        if isinstance(value, str):
            return text_of(value, "prompt"), ()
        messages = messages_of(value, "prompt", self.hints.tags)
        return text_of_messages(messages), messages


def step_of_file(file: Path) -> int:
    """The last number in a file's name; 0 where there is none."""
    numbers = re.findall(r"\d+", file.stem)
    return step_number(int(numbers[-1]), "the last number of the file's name") if numbers else 0


def step_of(row: Row, file: Path, stepped: bool) -> int:
    """The row's own step, else that of its file. `stepped`: the first rows of the log name steps.

    There a row without one is no row of step 0. Files of an older trainer may have it in their names instead.
    """
    if row.get("step") is not None:
        return step_number(row["step"], "step")
    if stepped and ("step" in row or not re.search(r"\d", file.stem)):
        raise Misfit("a whole number as `step`, as the first rows have it", "nothing")
    return step_of_file(file)


def known_rewards(values: Mapping[str, float | None]) -> dict[str, float]:
    """The rewards of a row, with NaN for those that it lacks. Empty if it lacks all."""
    lacking = all(value is None for value in values.values())
    return {} if lacking else {name: math.nan if value is None else value for name, value in values.items()}


def rewarded(turns: tuple[Turn, ...], rewards: Mapping[str, float]) -> tuple[Turn, ...]:
    """The turns with all rewards on the last one, for logs that do not say which turn earned them."""
    return (*turns[:-1], replace(turns[-1], rewards=dict(rewards))) if turns and rewards else turns


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
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                found[name].append(value)
    return found


def choose_success(columns: dict[str, list[object]], hints: Hints) -> str | None:
    """The column of success. Raises ValueError if the one that was named is not there."""
    if hints.success is not None:
        require([hints.success], columns, "success")
        return hints.success
    return next((name for name in SUCCESS_NAMES if scalar(columns.get(name, ())) and {*columns[name]} <= {0, 1}), None)


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
