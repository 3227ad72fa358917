"""The scalars of a run by step, from all files that were named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from heedful.auditing.scalars.aliases import ALIASES, Names
from heedful.auditing.scalars.files import scalar_kind, scalar_rows
from heedful.auditing.steps import LoggedStep
from heedful.boundary import listed
from heedful.diagnostics.statistics.intervals import wilson
from heedful.types import Metric

FINITE = ("trainer/grad_norm", "trainer/loss", "trainer/reward")
"""Scalars that a healthy update always has."""
USUAL = 5
"""Steps in a row with a scalar after which its absence counts as a number that is not finite, if a scalar that always
comes with it is there: prime-rl writes no key then."""


@dataclass(slots=True)
class History:
    """What the trainer logged: heedful's names and values for each step. Of two rows of a step the later one counts."""

    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    read: list[dict[str, Any]] = field(default_factory=list)
    """For `audit.json`: each file, its kind, the key of each name, and the keys without a name."""
    sentences: list[str] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    """Steps whose rows are those of an evaluation, and were set aside."""
    apart: list[int] = field(default_factory=list)
    """Steps whose rows have another mean reward than the trainer says."""
    overwritten: bool = False
    """The trainer is transformers' with evaluations. TRL writes their rows over those of training."""

    @classmethod
    def of(cls, files: Sequence[Path], given: Mapping[str, str]) -> History:
        """Read all files. `given`: heedful's name -> the trainer's key, as the user said.

        Raises ValueError for a file without scalars, and for a name or a key that is not there.
        """
        history, keys = cls(), set[str]()
        for file in files:
            names, count, kind = Names(given), 0, scalar_kind(file)
            usual, beside = dict[str, int](), dict[str, set[str]]()
            by_step: dict[int, dict[str, float]] = {}
            for row in scalar_rows(file, kind):
                keys.update(row.values)
                found = names.translated(row.values)
                by_step.setdefault(row.step, {}).update(found)
                for name in found.keys() & {*FINITE}:
                    beside[name] = beside.get(name, {*found}) & found.keys()
                count += 1
            for step in sorted(by_step):
                values = by_step[step]
                for name in FINITE if values.keys() - {"trainer/validation"} else ():
                    if usual.get(name, 0) >= USUAL and beside[name] & values.keys():
                        values.setdefault(name, math.nan)
                    elif usual.get(name, 0) < USUAL:
                        usual[name] = usual.get(name, 0) + 1 if name in values else 0
                if values:
                    history.steps.setdefault(step, {}).update(values)
            if not count:
                raise ValueError(
                    f"Expected scalars in {file} ({kind}), found none: no whole row names a step. Name the file that "
                    "the trainer's logger writes."
                )
            if names.unknown & {"epoch", "train/epoch"} and names.used.get("trainer/validation", "").startswith("eval"):
                history.overwritten = True
            history.read.append({"file": file.name, "kind": kind, "keys": names.used, "unknown": sorted(names.unknown)})
            if kind == "console" and "epoch" in names.unknown:  # a key of transformers alone
                history.sentences.append(
                    f"{file.name} names no step, as TRL's console does not: its lines of training were counted. With "
                    "logging_steps above 1 these are not the steps of the rollouts; trainer_state.json names them."
                )
            for name, several in names.unclear.items():
                history.sentences.append(
                    f"{file.name} has several keys for {name} ({listed(several)}), and none was read: say which with "
                    f"--map {name.partition('/')[2]}=KEY."
                )
        missing = [f"{name}={key}" for name, key in given.items() if key not in keys]
        if missing:
            raise ValueError(
                f"Expected --map to name a key of the scalars ({listed(sorted(keys))}), found {listed(missing)}."
            )
        if files and not history.steps:
            unknown = sorted({key for read in history.read for key in read["unknown"]})
            raise ValueError(
                f"Expected scalars under the names of a trainer, found {listed(unknown)}. Say which is which: "
                "--map reward=KEY."
            )
        return history

    def trained(self, steps: Iterable[LoggedStep]) -> Iterator[LoggedStep]:
        """The steps without those whose rows are of an evaluation.

        TRL writes the rows of an evaluation over those of training. Rows with another mean reward than training are set
        aside where the evaluation has theirs. TRL keeps the last batch alone, whose mean need not be that of the whole
        evaluation: so they are set aside, too, where transformers logged an evaluation at this step.
        """
        for step in steps:
            values = self.steps.get(step.number, {})
            rewards = [
                reward
                for group in step.groups
                for member in group.trajectories
                if (reward := member.reward) is not None and math.isfinite(reward)
            ]
            trained = values.get("trainer/reward", math.nan)
            if rewards and math.isfinite(trained) and not _alike(fmean(rewards), trained):
                known = values.get("trainer/validation")
                if known is not None and (self.overwritten or _alike(fmean(rewards), known)):
                    self.evaluated.append(step.number)
                    continue
                self.apart.append(step.number)
            yield step

    def beside(self, steps: Iterable[LoggedStep]) -> Iterator[tuple[int, LoggedStep | None]]:
        """Each step with its rows, if it has any, and the steps between them that have scalars alone."""
        waiting = sorted(self.steps)
        for step in steps:
            while waiting and waiting[0] <= step.number:
                if (number := waiting.pop(0)) < step.number:
                    yield number, None
            yield step.number, step
        yield from ((number, None) for number in waiting)

    def found(self) -> Iterator[str]:
        """What the files of scalars hold, in sentences."""
        for read in self.read:
            names = listed([name.partition("/")[2] for name in read["keys"]], most=20) or "nothing that is known"
            yield f"{read['file']} ({read['kind']}): {names}; keys not read: {len(read['unknown'])} (audit.json)."
        yield from self.sentences
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

    def metrics(self, step: int, tasks: int | None = None) -> list[Metric]:
        """`trainer/*` of a step, with `trainer/not_finite`: how many of `FINITE` are no finite numbers.

        `tasks`: how many are behind a validation score. It is a share then, and gets Wilson's interval.
        """
        values = self.steps.get(step)
        if values is None:
            return []
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


def _alike(one: float, other: float) -> bool:
    """Equal but for the rounding of a logger."""
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3)
