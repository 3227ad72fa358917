"""What a reader hands on: episodes with their step and group, and what could not be read.

A line that does not fit is described by file, line, what was expected and what was found. The number of descriptions
kept is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.diagnostics.names import SUCCESS_METRICS
from heedful.types import Task, Trajectory, Verdict

Row = dict[str, Any]
"""One line of a JSON lines file, or one row of a parquet file."""

Tell = Callable[[int], None]
"""Receives how many more bytes of the log were read."""

FAULTS_KEPT = 20


class Misfit(ValueError):
    """A row that is not what its format promises. Both parts are phrases."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found = expected, found


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a row in a log. Lines and rows are counted from 1; 0 = the file as a whole."""

    file: Path
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """One line that was left out."""

    place: Location
    expected: str
    found: str

    def __str__(self) -> str:
        line = f", line {self.place.line}" if self.place.line else ""
        return f"{name_of(self.place.file)}{line}: expected {self.expected}, found {self.found}"


@dataclass(slots=True)
class Faults:
    """All that was left out: counted in full, described up to a bound."""

    count: int = 0
    kept: list[Fault] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)
    """Rows that are no faults and were left out all the same: what they are -> how many."""

    def add(self, place: Location, expected: str, found: str) -> None:
        self.count += 1
        if len(self.kept) < FAULTS_KEPT:
            self.kept.append(Fault(place, expected, shortened(found)))


@dataclass(frozen=True, slots=True)
class LoggedEpisode:
    """One episode as a log tells it."""

    place: Location
    step: int
    group: str
    """Names its group within the step."""
    task: Task
    trajectory: Trajectory
    """Placeholders are where the log says nothing; `Knowledge` lists the metrics that must not be read from them."""
    messages: tuple[Mapping[str, str], ...] = ()
    """The first prompt as roles and contents, where the log holds messages instead of text."""
    verdict: Verdict | None = None
    truth: str = ""
    """The right answer, where the log has one and `group` is only the text of the prompt."""
    advantage: float | None = None
    """As the trainer computed it, where `group` is only the text of the prompt."""


LocatedRows = Iterable[tuple[Location, Row]]
Episodes = Iterator[LoggedEpisode]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a log says about itself and, just as much, what it does not say."""

    found: tuple[str, ...] = ()
    """Sentences."""
    assumed: tuple[str, ...] = ()
    """Sentences."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it cannot be read off this log."""
    own: bool = False
    """Our own rollouts: ids, verdicts and temperature are in the rows."""
    temperature: bool = False
    """The rows name the temperature of sampling."""
    stepped: bool = False
    """The rows name their steps: one that does not is left out."""
    numbered: bool = False
    """heedful numbered the rows while another trainer trained on them."""
    components: tuple[str, ...] = ()
    """The parts of the reward that the rows of such a log hold."""
    rewarded: bool = False
    """The log holds a reward that some step may lack."""


SUCCESS = "no success of 0 and 1 is in the log; name the column that holds it with --success"
NO_REWARD = "no reward is in the first rows of the log"
NO_IDS = "the log holds text, not token ids; --model tokenises it"
WITHOUT_IDS = {
    "length/reasoning_tokens": NO_IDS,
    "length/response_tokens": NO_IDS,
    "text/distinct_thoughts": "the log holds text, and thoughts are compared by their token ids",
}
"""What a log of texts cannot give, with the reasons."""


def unknown_of(
    success: bool, turns: bool, ids: bool = False, valid: bool = False, reward: bool = True
) -> dict[str, str]:
    """The metrics that a log cannot give, each with the reason, from what it holds."""
    missing = {} if success else dict.fromkeys(SUCCESS_METRICS, SUCCESS)
    missing |= {} if reward else {"reward/mean": NO_REWARD}
    missing |= {} if ids else WITHOUT_IDS | {"format/trailing_tokens": "the log does not say where an answer ends"}
    missing |= {} if valid else {"format/valid_rate": "the log does not say whether a reply could be executed"}
    return missing | (
        {} if turns else {"length/turns": "the log holds an episode as one text, so its turns cannot be counted"}
    )


def name_of(file: Path) -> str:
    """A file's name, from the folder of its step on where there is one: there all files have one name."""
    nested = re.search(r"step_\d+/.*", file.as_posix())
    return nested[0] if nested else file.name


def shortened(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
