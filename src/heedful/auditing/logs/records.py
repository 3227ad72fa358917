"""Rows of a log, their values, and what a reader hands on: episodes with their step and group, and what did not fit.

What is a number, a step, success, a truth value or the name of a group is decided here, for all formats. A value that
does not fit raises `Misfit`: a line that is left out is described by file, line, what was expected and what was found.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from heedful.boundary.foreign_text import brief
from heedful.boundary.limits import LARGEST_REWARD
from heedful.diagnostics.names import SUCCESS_METRICS
from heedful.storage import MOST_STEP
from heedful.types import Task, Trajectory, Verdict

Row = dict[str, Any]
"""One line of a JSON lines file, or one row of a parquet file."""

Tell = Callable[[int], None]
"""Receives how many more bytes of the log were read."""

Converted = TypeVar("Converted")
FAULTS_KEPT = 20
_INT64 = 2**63
_TRUTHS = {"true": True, "false": False}
_EVALUATIONS = {"eval", "evaluate", "evaluation", "val", "valid", "validation", "dev", "test"}
_NOTHING = ("", "nan", "none", "null", "n/a")
"""What stands for a missing value in columns of text."""


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
    begun: int | None = None
    """The step in which its group was met first, where the name of the group is no other group's in the whole log."""


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


class Fields(dict[str, Any]):
    """A row, or an object in it, whose columns are asked for by type. `None` and NaN are missing."""

    def __init__(self, row: Mapping[str, Any], within: str = "") -> None:
        super().__init__(row)
        self._within = within

    def number(self, name: str) -> float | None:
        """A finite number or a truth value, or missing."""
        return number(self.get(name), self._within + name)

    def outcome(self, name: str) -> float | None:
        """Success as 0, 1 or partial credit between, or missing."""
        outcome = self.number(name)
        if outcome is not None and not 0 <= outcome <= 1:
            raise Misfit(f"`{self._within}{name}` from 0 to 1, 1 = success", brief(self[name]))
        return outcome

    def text(self, name: str) -> str:
        return text_of(self.get(name), self._within + name)

    def whole(self, name: str) -> int:
        """A whole number of at most 64 bits, 0 where it is missing."""
        return 0 if self.get(name) is None else integer(self[name], self._within + name)

    def step(self, name: str) -> int | None:
        """A training step, or missing."""
        return None if self.get(name) is None else step_number(self[name], self._within + name)

    def key(self, name: str) -> str | None:
        """What names a group: text or a whole number, where 3.0 is 3; or missing."""
        value = self.get(name)
        if is_missing(value):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise Misfit(f"text or a whole number as `{self._within}{name}`", shown(value))
        return text_of(str(value), name)

    def truth(self, name: str, missing: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return missing
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise Misfit(f"true or false as `{self._within}{name}`", shown(value))
        return bool(value)

    def inner(self, name: str) -> Fields:
        """A JSON object; empty where it is missing."""
        value = self.get(name)
        return Fields({}) if value is None else object_of(value, self._within + name)

    def listed(self, name: str) -> list[Any]:
        """A list; empty where it is missing."""
        value = self.get(name)
        if not isinstance(value, list | None):
            raise Misfit(f"a list as `{self._within}{name}`", type(value).__name__)
        return value or []

    def objects(self, name: str) -> list[Fields]:
        """A list of JSON objects; empty where it is missing."""
        return [object_of(value, name) for value in self.listed(name)]


def shown(value: object) -> str:
    """The type and the beginning of a value, for a sentence."""
    return f"{type(value).__name__} {brief(value)}"


def is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _NOTHING
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_evaluation(value: object) -> bool:
    """Whether it says of a row that it is one of an evaluation."""
    return isinstance(value, str) and value.lower() in _EVALUATIONS


def scalar_of(value: object) -> object:
    """A truth value or a number that was written as text; anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return _TRUTHS.get(value.lower(), value) if value.isalpha() else float(value)
    return value


def number(value: object, what: str) -> float | None:
    """A finite number or a truth value, maybe as text, as float; or missing. Raises `Misfit` for anything else.

    An infinity is no missing value: dropping it would change a mean in silence. Numbers larger than any reward are
    refused as well, since the squares of variances overflow.
    """
    if is_missing(value):
        return None
    given, value = value, scalar_of(value)
    if not isinstance(value, bool | int | float):
        raise Misfit(f"a number as `{what}`", shown(given))
    if abs(value) > LARGEST_REWARD:
        raise Misfit(f"a number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g} as `{what}`", shown(value))
    return float(value)


def text_of(value: object, what: str) -> str:
    """A text that every file can hold: lone surrogates become backslash escapes."""
    if not isinstance(value, str):
        raise Misfit(f"text as `{what}`", shown(value))
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def object_of(value: object, what: str) -> Fields:
    if not isinstance(value, dict):
        raise Misfit(f"an object as `{what}`", shown(value))
    return Fields(value, f"{what}.")


def integer(value: object, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"a whole number as `{what}`", shown(value))
    if not -_INT64 <= value < _INT64:
        raise Misfit(f"a whole number of at most 64 bits as `{what}`", shown(value))
    return value


def step_number(value: object, what: str) -> int:
    """A step, as `metrics.jsonl` takes it. ms-swift writes it as text."""
    step = integer(int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value, what)
    if not 0 <= step <= MOST_STEP:
        raise Misfit(f"a step from 0 to {MOST_STEP:,} as `{what}`", shown(value))
    return step


def digest(*texts: str) -> str:
    """16 hexadecimal digits that name these texts."""
    state = hashlib.blake2b(digest_size=8)
    for text in texts:
        state.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return state.hexdigest()


def fitting(convert: Callable[[Fields], Converted], rows: Iterable[Row]) -> list[Converted]:
    """What `convert` makes of the rows that fit."""
    found = []
    for row in rows:
        with suppress(Misfit):
            found.append(convert(Fields(row)))
    return found
