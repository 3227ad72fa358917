"""The scalars of a run by step, from all files that were named."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from heedful.auditing.scalars.aliases import ALIASES, Names
from heedful.auditing.scalars.files import ScalarRow, rows_of_lines, scalar_kind, scalar_rows
from heedful.auditing.steps import STEPS_HELD, LoggedStep
from heedful.boundary import listed
from heedful.boundary.open_files import open_file
from heedful.diagnostics.statistics.intervals import wilson
from heedful.types import Metric

FINITE = ("trainer/grad_norm", "trainer/loss", "trainer/reward")
"""Scalars that a healthy update always has."""
USUAL = 5
"""Steps in a row with a scalar after which its absence counts as a number that is not finite, if a scalar that always
comes with it is there: prime-rl writes no key then."""
LONG, REST, LONGEST_REST = 0.5, 20.0, 60.0
"""A file whose reading takes longer than so many seconds rests for so many times as long, and for so many seconds at
most."""


@dataclass(slots=True)
class ScalarFile:
    """One file of scalars, read as far as it is whole. It is read from its start each time that it has grown. Of a file
    of lines only new lines are parsed, where the bytes before them are those that were parsed."""

    path: Path
    given: Mapping[str, str]
    """heedful's name -> the trainer's key, as the user said."""
    kind: str = ""
    """Empty: without a whole line nothing says what the file is."""
    names: Names = field(default_factory=Names)
    count: int = 0
    by_step: dict[int, dict[str, float]] = field(default_factory=dict)
    first: int = -1
    last: int = -1
    """The steps of the first and of the last row."""
    again: bool = False
    """The rows have begun again at the first step: a run that was started anew writes behind the earlier one."""
    counts: set[str] = field(default_factory=set)
    """The keys of the step in rows that were used."""
    several: set[int] = field(default_factory=set)
    """Steps of which a later row has another value than an earlier one."""
    beside: dict[str, set[str]] = field(default_factory=dict)
    """One of `FINITE` -> the scalars that always come with it."""
    keys: set[str] = field(default_factory=set)
    seen: tuple[tuple[int, int, int], ...] = ()
    parsed: tuple[int, bytes] = (0, b"")
    """Of a file of lines: how many bytes were parsed, and their digest."""
    rests: float = 0.0
    """When it may be read again, by the clock of `time.monotonic`."""

    @property
    def of_transformers(self) -> bool:
        """Whether its validation scores are those of an evaluation of transformers, as TRL runs it."""
        validation = self.names.used.get("trainer/validation", "")
        return bool(self.names.unknown & {"epoch", "train/epoch"}) and validation.startswith("eval")

    def update(self, ended: bool) -> bool:
        """Read the file again where it has changed. `ended`: the file is taken as it is. Returns whether anything may
        have changed."""
        try:
            found = [self.path.stat(), *([log.stat()] if (log := Path(f"{self.path}-wal")).exists() else [])]
        except FileNotFoundError:
            return False
        seen, begun = tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found), time.monotonic()
        if not ended and (seen == self.seen or begun < self.rests):
            return False
        try:
            kind, content, known = scalar_kind(self.path), b"", 0
            if kind == "lines" and not ended:
                with open_file(self.path) as stream:
                    content = stream.read()
                content = content[: content.rfind(b"\n") + 1]
                known = self.parsed[0] if self.parsed == _print_of(content, self.parsed[0]) else 0
                rows = list(rows_of_lines(content[known:]))
            else:
                rows = list(scalar_rows(self.path, kind, ended)) if kind else []
        except (OSError, ValueError):  # it is being written, or locked
            if ended:
                raise
            return True
        now = time.monotonic()
        self.seen, self.rests = seen, now + min(LONGEST_REST, REST * (now - begun)) if now - begun > LONG else 0.0
        if not rows and self.count:
            return True  # it is being written anew
        if not known:
            self.kind, self.names, self.count, self.again = kind, Names(self.given), 0, False
            self.by_step, self.counts, self.several, self.beside, self.keys = {}, set(), set(), {}, set()
        self.parsed = _print_of(content, len(content))
        for row in rows:
            self.take(row)
        return True

    def take(self, row: ScalarRow) -> None:
        """Take the next row."""
        self.keys.update(row.values)
        self.count += 1
        found = self.names.translated(row.values)
        if not found:  # W&B counts the call that logs TRL's table of completions as a step of its own
            return
        self.first = self.first if self.by_step else row.step
        # Of two processes one may be a step or two behind the other.
        self.again |= bool(self.by_step) and row.step <= self.first < self.last - 2
        self.last = row.step
        self.counts |= {row.by} if found.keys() - {"trainer/validation"} else set()
        held = self.by_step.setdefault(row.step, {})
        if any(repr(held.get(name, value)) != repr(value) for name, value in found.items()):
            self.several.add(row.step)
        held.update(found)
        for name in found.keys() & {*FINITE}:
            self.beside[name] = self.beside.get(name, {*found}) & found.keys()

    def steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        """The values of each step, with NaN for one that is gone although what always comes with it is there."""
        usual = dict[str, int]()
        for step in sorted(self.by_step):
            values = dict(self.by_step[step])
            for name in FINITE if values.keys() - {"trainer/validation"} else ():
                if usual.get(name, 0) >= USUAL and self.beside[name] & values.keys():
                    values.setdefault(name, math.nan)
                elif usual.get(name, 0) < USUAL:
                    usual[name] = usual.get(name, 0) + 1 if name in values else 0
            if values:
                yield step, values


@dataclass(slots=True)
class History:
    """What the trainer logged: heedful's names and values for each step. Of two rows of a step the later one counts."""

    given: Mapping[str, str] = field(default_factory=dict)
    """heedful's name -> the trainer's key, as the user said."""
    files: list[ScalarFile] = field(default_factory=list)
    first: int = 0
    """The trainer's step that is step 0 of the rollouts. A validation before it belongs to it."""
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    named: list[Path] = field(default_factory=list)
    """The files at the last update."""
    changed: set[int] = field(default_factory=set)
    """The steps that the last update has changed."""
    numbers: list[int] = field(default_factory=list)
    """The steps in their order."""
    closed: float = math.inf
    """All scalars of steps before this one are there: each file that grows has come to it."""
    evaluated: list[int] = field(default_factory=list)
    """Steps whose rows are those of an evaluation, and were set aside."""
    apart: list[int] = field(default_factory=list)
    """Steps whose rows have another mean reward than the trainer says."""

    @classmethod
    def growing(cls, files: Sequence[Path], given: Mapping[str, str]) -> History:
        """The scalars of files that may not be there yet. `given`: heedful's name -> the trainer's key."""
        history = cls(given)
        history.name(files)
        return history

    def name(self, files: Sequence[Path]) -> None:
        """Read these files from now on, in this order."""
        known = {file.path: file for file in self.files}
        self.files = [known.get(file) or ScalarFile(file, self.given) for file in files]

    @classmethod
    def of(cls, files: Sequence[Path], given: Mapping[str, str], first: int = 0) -> History:
        """Read files that have ended. `given`: heedful's name -> the trainer's key, as the user said. `first`: the
        trainer's step that is step 0 of the rollouts.

        Raises ValueError for a file without scalars, and for a name or a key that is not there.
        """
        history = cls.growing(files, given)
        history.first = first
        history.update(ended=True)
        for file in history.files:
            next(scalar_rows(file.path, file.kind), None)  # raises for what is not there, or is no file of scalars
            if not file.count:
                raise ValueError(
                    f"Expected scalars in {file.path} ({file.kind}), found none: no whole row names a step. Name the "
                    "file that the trainer's logger writes."
                )
        keys = {key for file in history.files for key in file.keys}
        missing = [f"{name.partition('/')[2]}={key}" for name, key in given.items() if key not in keys]
        if missing:
            raise ValueError(
                f"Expected --map to name a key of the scalars ({listed(sorted(keys))}), found {listed(missing)}."
            )
        if files and not history.steps:
            unknown = sorted({key for file in history.files for key in file.names.unknown})
            raise ValueError(
                f"Expected scalars under the names of a trainer, found {listed(unknown)}. Say which is which: "
                "--map reward=KEY."
            )
        return history

    def update(self, ended: bool = False) -> bool:
        """Read what was added to the files. Returns whether anything may have changed."""
        named = [file.path for file in self.files]
        changed = [file.update(ended) for file in self.files]
        if not any(changed) and named == self.named:
            return False
        self.named = named
        before, self.steps = self.steps, {}
        for file in self.files:
            for step, values in file.steps():
                self.steps.setdefault(max(step - self.first, 0), {}).update(values)
        self.changed = {step for step, values in self.steps.items() if values != before.get(step)}
        self.numbers = sorted(self.steps)
        # A file that is far behind the others has ended, or is written now and then, as trainer_state.json is.
        last = [max(file.by_step, default=-1) - self.first for file in self.files]
        self.closed = (
            math.inf if ended else min((step for step in last if step >= max(last) - STEPS_HELD), default=math.inf)
        )
        return True

    @property
    def read(self) -> list[dict[str, Any]]:
        """For `audit.json`: each file, its kind, the key of each name, and the keys without a name."""
        return [
            {"file": file.path.name, "kind": file.kind, "keys": file.names.used, "unknown": sorted(file.names.unknown)}
            for file in self.files
        ]

    @property
    def sentences(self) -> list[str]:
        """What a person has to know of the files."""
        told = []
        for file in self.files:
            if file.kind == "console" and "epoch" in file.names.unknown:  # a key of transformers alone
                told.append(
                    f"{file.path.name} names no step, as TRL's console does not: its lines of training were counted. "
                    "With logging_steps above 1 these are not the steps of the rollouts; trainer_state.json names them."
                )
            if file.again and file.last < max(file.by_step):
                told.append(
                    f"{file.path.name} begins again at step {file.first} and ends at step {file.last}: the steps after "
                    "it are those of an earlier run."
                )
            if len(file.counts) > 1:
                told.append(
                    f"{file.path.name} counts steps in several ways ({listed(sorted(file.counts))}), which were taken "
                    "for one: where a step of one is not a step of the other, their values do not belong together."
                )
            if 2 * len(file.several) > len(file.by_step):
                told.append(
                    f"{file.path.name} has several rows for most of its steps, as logs of ranks, of single rollouts or "
                    "of a second run have. The last one of each step was read: for means, write one row for each step."
                )
            for name, several in file.names.unclear.items():
                told.append(
                    f"{file.path.name} has several keys for {name} ({listed(several)}), and none was read: say which "
                    f"with --map {name.partition('/')[2]}=KEY."
                )
        return told

    def is_evaluation(self, step: LoggedStep) -> bool:
        """Whether the rows of this step are those of an evaluation.

        TRL writes the rows of an evaluation over those of training. Rows with another mean reward than training are set
        aside where the evaluation has theirs. TRL keeps the last batch alone, whose mean need not be that of the whole
        evaluation: so they are set aside, too, where transformers logged an evaluation at this step. Rows that heedful
        has numbered are told apart by their numbers.
        """
        values = self.steps.get(step.number, {})
        rewards = [
            reward
            for group in step.groups
            for member in group.trajectories
            if (reward := member.reward) is not None and math.isfinite(reward)
        ]
        trained, known = values.get("trainer/reward", math.nan), values.get("trainer/validation")
        if not rewards or not math.isfinite(trained) or _alike(fmean(rewards), trained):
            return False
        overwritten = any(file.of_transformers for file in self.files)
        evaluated = known is not None and not self.first and (overwritten or _alike(fmean(rewards), known))
        (self.evaluated if evaluated else self.apart).append(step.number)
        return evaluated

    def found(self) -> Iterator[str]:
        """What the files of scalars hold, in sentences."""
        for read in self.read:
            names = listed([name.partition("/")[2] for name in read["keys"]], most=20) or "nothing that is known"
            yield f"{read['file']} ({read['kind']}): {names}; keys not read: {len(read['unknown'])} (audit.json)."
        yield from self.sentences
        for name, key in self.given.items():
            if not any(key in file.keys for file in self.files):
                yield f"No file of scalars holds {key}, which --map names for {name.partition('/')[2]}."
        if self.evaluated:
            yield (
                f"Steps {listed(self.evaluated)} hold completions of an evaluation, which the trainer wrote over those "
                "of training: they were set aside, and the scalars of these steps are those of training."
            )
        if self.apart:
            yield (
                f"In steps {listed(self.apart)} the mean reward of the rows is not the one that the trainer logged: "
                "the log holds a part of the rollouts, or other weights of the rewards."
            )


def scalar_metrics(values: Mapping[str, float], tasks: int | None = None) -> list[Metric]:
    """`trainer/*` of a step, with `trainer/not_finite`: how many of `FINITE` are no finite numbers.

    `tasks`: how many are behind a validation score. It is a share then, and gets Wilson's interval.
    """
    told = []
    for name, value in values.items():
        finite = math.isfinite(value)
        metric = Metric(name, value if finite else None, why="" if finite else "not finite")
        if name == "trainer/validation" and tasks and finite and 0 <= value <= 1:
            interval = wilson(value * tasks, tasks)
            metric = replace(metric, n=tasks, low=interval.low, high=interval.high)
        told.append(metric)
    watched = [values[name] for name in FINITE if name in values]
    broken = [name.partition("/")[2] for name in FINITE if not math.isfinite(values.get(name, 0.0))]
    if not watched:
        return told
    return [*told, Metric("trainer/not_finite", float(len(broken)), len(watched), why=", ".join(broken))]


def mapped(entries: Sequence[str]) -> dict[str, str]:
    """`NAME=KEY` -> heedful's name and the key. Raises ValueError for another form, and for an unknown name."""
    given = {}
    for entry in entries:
        name, _, key = entry.partition("=")
        full = f"trainer/{name.removeprefix('trainer/')}"
        if full not in ALIASES or not key:
            known = listed([known.partition("/")[2] for known in ALIASES], most=20)
            raise ValueError(f"Expected --map NAME=KEY with a NAME of {known}, found {entry!r}.")
        given[full] = key
    return given


def _print_of(content: bytes, size: int) -> tuple[int, bytes]:
    """The length and the digest of its first bytes."""
    return size, hashlib.blake2b(memoryview(content)[:size]).digest()


def _alike(one: float, other: float) -> bool:
    """Equal but for the rounding of a logger."""
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3)
