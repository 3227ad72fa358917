"""What a reader of a format is, and what readers share.

To add a format, write a class on top of `RowReader`: `fits`, `begin` and `of_row`. A package offers it through the
entry point `heedful.log_readers`.

Promise: a row that does not fit is reported, and costs only itself (or the episode that it is a part of).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from heedful.auditing.logs import records
from heedful.auditing.logs.conversations import (
    THOUGHTS,
    Messages,
    messages_of,
    text_of_messages,
    text_turn,
    turns_of,
    with_thought,
)
from heedful.auditing.logs.records import (
    Episodes,
    Faults,
    Fields,
    Knowledge,
    LocatedRows,
    Location,
    LoggedEpisode,
    Misfit,
    Row,
)
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.types import Ending, Task, Trajectory, Turn

SUCCESS_NAMES = ("success", "acc", "correct", "is_correct", "solved")
"""Columns that hold success by the custom of their trainers, if they hold nothing but 0, 1, true and false."""
ID_NAMES = ("id", "example_id", "problem_id", "question_id", "task_id")
GROUP_NAMES = ("uid", "group", "group_id", "prompt_id", *ID_NAMES)
"""Columns that may name the group of a row. An id may be anything, or count in one data set of several: each of its
prompts is a group."""
TRUTH_NAMES = (
    *("gts", "ground_truth", "solution", "gold", "target", "reference"),
    *("gold_answer", "golden_answer", "correct_answer", "expected_answer", "reference_answer"),
)
"""Columns that hold the right answer by the custom of their trainers."""
TEXT_ALONE = (
    "Special tokens were dropped when prompts and replies were decoded, so a model reads other prompts here than in "
    "training; tags that are special tokens are gone, too."
)
"""Assumed of logs that were decoded."""
PHASES = ("split", "phase", "mode")
"""Columns that say whether a row is one of training or of an evaluation."""
APART = "Thoughts are read from {}, where the text closes none."
"""Found in logs with columns of thoughts."""
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


class Sample(list[Row]):
    """Rows that show every column of a log with every kind of value in it."""

    @property
    def columns(self) -> dict[str, list[object]]:
        """Column -> its values in these rows, missing ones left out; in order of first appearance."""
        found: dict[str, list[object]] = {}
        for row in self:
            for name, value in row.items():
                found.setdefault(name, [])
                if not records.is_missing(value):
                    found[name].append(value)
        return found

    def require(self, wanted: Iterable[str | None], flag: str) -> None:
        """Raise ValueError, a sentence, where a column that a flag names is not there."""
        there = self.columns
        missing = [name for name in wanted if name and name not in there]
        if missing:
            raise ValueError(
                f"Expected --{flag} to name columns of the log, found no {listed(missing)}. "
                f"Its columns are {listed(there)}."
            )

    def success(self, hints: Hints) -> str | None:
        """The column of success. Raises ValueError if the one that was named is not there."""
        self.require([hints.success], "success")
        held = {name: [records.scalar_of(value) for value in self.columns.get(name, ())] for name in SUCCESS_NAMES}
        return hints.success or next((name for name in held if scalar(held[name]) and {*held[name]} <= {0, 1}), None)

    def group(self, prompt: str) -> str | None:
        """The column that names groups, by custom: rows of one step share its values.

        A column that differs where prompts repeat names rows. Each id must have one prompt, too.
        """
        for name in GROUP_NAMES:
            named = [row for row in self if not records.is_missing(row.get(name))]
            pairs = {repr((row.get("step"), row[name], row.get(prompt))) for row in named}
            groups, prompts = (len({repr((row.get("step"), row.get(by))) for row in named}) for by in (name, prompt))
            anything = name in ID_NAMES
            if groups < len(named) and (not anything or len(pairs) == groups):
                return name
            if named and prompts == len(named) and not anything:
                return name
        return None

    def thoughts(self, said: str, tags: ThoughtTags) -> tuple[str, ...]:
        """The columns that hold thoughts beside the text of the reply, by custom.

        Empty where most of these texts close a thought themselves: then such a column is a grader's, or the data's.
        """
        texts = Sample(row for row in self if isinstance(row.get(said), str) and any(map(row.get, THOUGHTS)))
        there = tuple(name for name in THOUGHTS if texts.columns.get(name))
        return there if 2 * sum(tags.close in row[said] for row in texts) < len(texts) else ()

    @property
    def phase(self) -> str | None:
        """The column by which rows of evaluations are told from others, where the log has both."""
        held = {name: {*map(records.is_evaluation, self.columns.get(name, ()))} for name in PHASES}
        return next((name for name in PHASES if held[name] == {True, False}), None)

    @property
    def without_steps(self) -> list[str]:
        """What is assumed where less than half of the rows name a step: these are then of the step of their file."""
        named = sum(row.get("step") is not None for row in self)
        return [] if 2 * named >= max(1, len(self)) else [FEW_STEPS if named else NO_STEP]


def scalar(values: Sequence[object]) -> bool:
    """Numbers and truth values and nothing else, at least one."""
    return bool(values) and all(isinstance(value, bool | int | float) for value in values)


@dataclass(frozen=True, slots=True)
class RowReader:
    """One format. A reader is made from rows that show every column of the log with every kind of value in it.

    A format adds `fits`, `begin` and, where each row is read by itself, `of_row`; else `episodes`.
    """

    SUMS: ClassVar[bool] = False
    """Whether the reward is a sum of columns that the user may name."""
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
    thoughts: tuple[str, ...] = ()
    """The columns that hold thoughts beside the text of the reply."""
    phase: str | None = None
    """The column that tells rows of evaluations, which are left out; `None` where the log is of one kind."""

    @staticmethod
    def fits(row: Row) -> bool:
        """Whether this row is of the format."""
        raise NotImplementedError

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        """Read the log of these rows. Raises ValueError where a hint names what is not there."""
        raise NotImplementedError

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        """The episodes of one row; `faults` counts a row that is set aside. Raises `Misfit`."""
        raise NotImplementedError

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read. Others may hold anything."""
        return self.FIELDS.union(self.rewards, [name for name in (self.success, self.group, self.phase) if name])

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        """The episodes of one file, in order."""
        for place, row in self.training(rows, faults):
            try:
                found = list(self.of_row(place, Fields(row), faults))
            except Misfit as misfit:
                faults.add(place, misfit.expected, misfit.found)
            else:
                yield from found

    def training(self, rows: LocatedRows, faults: Faults) -> LocatedRows:
        """The rows without those of evaluations, which are counted."""
        for place, row in rows:
            if self.phase and records.is_evaluation(row.get(self.phase)):
                faults.aside["of evaluations"] += 1
            else:
                yield place, row

    def outcome(self, row: Fields) -> float | None:
        """Success as the row has it; `None` where it is missing."""
        return row.outcome(self.success) if self.success else None

    def given(self, row: Fields) -> dict[str, float]:
        """The rewards of a row, as `known_rewards`."""
        return known_rewards({name: row.number(name) for name in self.rewards})

    def step(self, row: Row, place: Location) -> int:
        """The row's own step, else that of its file. Where rows name steps, one without is no row of step 0, but files
        of an older trainer may have it in their names instead."""
        if row.get("step") is not None:
            return records.step_number(row["step"], "step")
        if self.knowledge.stepped and ("step" in row or not re.search(r"\d", place.file.stem)):
            raise Misfit("a whole number as `step`, as the first rows have it", "nothing")
        return step_of_file(place.file)

    def prompt(self, value: Any) -> tuple[str, Messages]:
        """A prompt as text and, where it was logged so, as messages."""
        if isinstance(value, str):
            return records.text_of(value, "prompt"), ()
        messages = messages_of(value, "prompt", self.hints.tags)
        return text_of_messages(messages), messages

    def said(self, row: Fields, name: str) -> str:
        """The text of a reply, with the thought that stands beside it."""
        return with_thought(row.text(name), row, "a thought", self.hints.tags) if self.thoughts else row.text(name)

    def dialogue(self, row: Fields) -> tuple[str, Messages, tuple[Turn, ...]]:
        """The first prompt of `prompt` and `completion` as text and messages, and the turns."""
        tags = self.hints.tags
        prompt, messages = self.prompt(row["prompt"])
        if isinstance(row["completion"], str):
            reply = self.said(row, "completion")
            return prompt, messages, (text_turn(prompt, reply, tags),)
        said = messages_of(row["completion"], "completion", tags)
        _, turns = turns_of(({"role": "user", "content": prompt}, *said), tags)
        if not turns:
            raise Misfit("an assistant's message in `completion`", f"roles {[message['role'] for message in said]}")
        return prompt, messages, (text_turn(prompt, turns[0].reply.text, tags), *turns[1:])

    def named(self, row: Fields, prompt: str) -> str | None:
        """The group of a row, as its column names it."""
        name = row.key(self.group) if self.group else None
        return name if name is None or self.group not in ID_NAMES else f"{name} {prompt_task(prompt).id}"

    def by_text(self, row: Fields, prompt: str) -> tuple[str, str]:
        """The group of a row, by its column or else by its prompt, and the right answer that may contradict the
        latter."""
        named = self.named(row, prompt)
        if named is not None:
            return named, ""
        truth = next((row[name] for name in TRUTH_NAMES if not records.is_missing(row.get(name))), "")
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
    """The number after `step` in a file's name, else that of the folder of its step, else the last one in its name; or
    0. In the folder of a step a file's number is that of a rank or a worker."""
    ways = (
        (r"step\D?(\d+)", file.stem),
        (r"(?<![\w-])(?:global_)?step\D?(\d+)/", file.as_posix()),
        (r"\d+", file.stem),
    )
    numbers = next((found for pattern, name in ways if (found := re.findall(pattern, name))), ["0"])
    return records.step_number(int(numbers[-1]), "the number in the file's name")


def known_rewards(values: Mapping[str, float | None]) -> dict[str, float]:
    """The rewards of a row, with NaN for those that it lacks. Empty if it lacks all."""
    lacking = all(value is None for value in values.values())
    return {} if lacking else {name: math.nan if value is None else value for name, value in values.items()}


def prompt_task(*texts: str) -> Task:
    """A task known by its prompt alone."""
    return Task(f"prompt-{records.digest(*texts)}", 0, "train")


def text_trajectory(
    task: Task, turns: tuple[Turn, ...], scored: bool, outcome: float | None, temperature: float
) -> Trajectory:
    """An episode that was logged as text. `outcome` `None` = the log does not know success."""
    known = SCORED_ONLY if outcome is None else outcome
    ending = Ending.SOLVED if outcome == 1 else Ending.FAILED
    return Trajectory(task, 0, turns, ending, known if scored else None, temperature=temperature)
