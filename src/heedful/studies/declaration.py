"""A study as data: a question, arms x seeds, and the measures that are read from the runs.

Promise: a study written as JSON is read back equal. A file that cannot be understood is refused with a sentence.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful.configuration import Choice, from_json, parse, refuse_below, to_json
from heedful.configuration.command_line import split
from heedful.configuration.jsontext import read_json
from heedful.configuration.trust import untrusted
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.storage.measurements import SIZES
from heedful.studies.jobs import JOBS, Job, TrainingJob, refuse_name

When = Literal["last", "first", "change", "mean", "highest", "lowest", "first_at_least", "first_at_most", "total_until"]

MOST_SIMULATED = 100_000
"""Simulated series of a lead, at most. Each takes about a millisecond."""

MOST_RUNS = 10_000
"""Runs of a study, at most: arms x seeds."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run: a name and what is done for each seed."""

    name: str
    """Names its folder, too: letters, digits, `_`, `-` and `.`."""
    job: Annotated[Any, Choice(JOBS)] = field(default_factory=TrainingJob)
    level: float | None = None
    """The arm's value on the study's dial, such as a planted share; none = the arms have no order."""
    line: str = ""
    """The line that joins this arm with others in figures over the dial; empty = one line per measure."""

    def __post_init__(self) -> None:
        _refuse_sizes(self, "level")
        refuse_name("an arm", self.name)

    @property
    def after(self) -> str | None:
        """The arm whose run of the same seed this arm's job reads."""
        return getattr(self.job, "after", None)


@dataclass(frozen=True, slots=True)
class Pair:
    """A comparison, seed by seed: an arm against its control."""

    arm: str
    control: str

    def __post_init__(self) -> None:
        if self.arm == self.control:
            raise ValueError(f"expected pairs of two arms, found {self.arm} as its own control")


@dataclass(frozen=True, slots=True)
class Measure:
    """One number per run: a metric, and at what point it is read."""

    title: str
    metric: str
    """A name of metrics.jsonl."""
    when: When = "last"
    """last or first reading; change = last minus first; mean, highest or lowest reading; first_at_least or
    first_at_most = the first step at which the reading reaches `level`; total_until = the sum of all readings until
    `reaches` is at least `level`."""
    level: float | None = None
    """Limit for first_at_least, first_at_most and total_until."""
    reaches: str = ""
    """total_until: the metric that has to reach `level`, such as success/rate."""
    window: int = 8
    """total_until: steps over which that metric is averaged."""
    from_step: int = 0
    to_step: int | None = None
    """Readings of earlier and later steps are left out."""

    def __post_init__(self) -> None:
        _refuse_sizes(self, "level")
        if (self.when == "total_until" or self.when.startswith("first_at")) != (self.level is not None):
            raise ValueError(
                f"{self.title!r}: `level` belongs to first_at_least, first_at_most and total_until, and to them alone"
            )
        if (self.when == "total_until") != bool(self.reaches):
            raise ValueError(f"{self.title!r}: `reaches` belongs to total_until, and to it alone")
        refuse_below(self, window=1)
        _refuse_no_steps(self)


@dataclass(frozen=True, slots=True)
class Separation:
    """ROC analysis: which metrics separate the readings of collapsed arms from those of healthy arms."""

    title: str
    collapsed: tuple[str, ...]
    healthy: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    """Patterns of names, such as information/first_turn/*; empty = every number that both sides report."""
    without: tuple[str, ...] = ("time/*", "tokens/*", "cost/*", "*chance*", "*/mi_ceiling", "forced/*")
    """Patterns of names that are left out."""
    from_step: int = 0
    to_step: int | None = None
    """Readings of earlier and later steps are left out."""
    wanted: float = 0.99
    """The area that the best metric should reach."""

    def __post_init__(self) -> None:
        _refuse_sizes(self, "wanted")
        _refuse_no_steps(self)


@dataclass(frozen=True, slots=True)
class Lead:
    """Whether alarms come before success falls, and how often they come without reason."""

    title: str
    induced: tuple[str, ...]
    healthy: tuple[str, ...]
    success: str
    """The metric whose fall is to be foreseen."""
    points: float = 0.10
    """Success has fallen when it is this far below its start, beyond the intervals of the evaluations."""
    alarms: tuple[str, ...] = ("alarm/*",)
    """Patterns of names; a value above 0 is a raised alarm."""
    replayed: bool = False
    """Replay the alarms on the measurements with `thresholds`, instead of reading those that the runs recorded."""
    thresholds: AlarmConfig = field(default_factory=AlarmConfig)
    """Thresholds of replayed alarms, and of alarms on simulated series."""
    drift_free: int = 200
    """Simulated series in which nothing happens, made of the levels and the noise of the healthy runs; 0 = none."""
    from_step: int = 0
    """The healthy runs' levels and noise are read from here on: before it they are still learning."""
    correlation: float = 0.5
    """Correlation between the noise of neighbouring simulated readings."""

    def __post_init__(self) -> None:
        _refuse_sizes(self, "points", "correlation")
        refuse_below(self, drift_free=0)
        if self.drift_free > MOST_SIMULATED:
            raise ValueError(f"drift_free must be at most {MOST_SIMULATED:,}, found {self.drift_free}")
        if not 0 <= self.correlation < 1:
            raise ValueError(f"correlation must be at least 0 and below 1, found {self.correlation:g}")


@dataclass(frozen=True, slots=True)
class Hunt:
    """Which runs lose what their reasoning says of the input, while their replies stay valid."""

    title: str
    metrics: tuple[str, ...]
    """A run is a candidate if any of these falls."""
    fall: float = 1 / 3
    """The part of its start that a metric has to lose."""
    errors: float = 2.0
    """Standard errors that it has to lose at least, from the intervals of its readings."""
    valid: str = "format/valid_rate"
    least_valid: float = 0.9
    """Replies are valid where this metric, averaged over the same steps, is at least so high."""
    window: int = 2
    """Readings that are averaged: the first ones are the start, and the lowest later ones decide."""
    fresh_seeds: tuple[int, ...] = ()
    """Seeds with which a candidate is to be repeated."""

    def __post_init__(self) -> None:
        _refuse_sizes(self, "errors", "least_valid")
        if not self.metrics or not 0 < self.fall < 1:
            raise ValueError(f"{self.title!r}: expected metrics, and a fall between 0 and 1, found {self.fall:g}")
        refuse_below(self, window=1)


@dataclass(frozen=True, slots=True)
class Study:
    """A declared study: everything that decides its numbers."""

    name: str
    question: str
    """One sentence."""
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    pairs: tuple[Pair, ...] = ()
    measures: tuple[Measure, ...] = ()
    """The first one decides the verdict's sentence."""
    curves: tuple[str, ...] = ()
    """Metrics that the page draws over steps, one band per arm."""
    dial: str = ""
    """What the arms' `level` means; the page then draws the measures over it."""
    separations: tuple[Separation, ...] = ()
    leads: tuple[Lead, ...] = ()
    hunts: tuple[Hunt, ...] = ()
    minutes: float | None = None
    """Minutes of one run on one core, about; none = unknown."""
    notes: tuple[str, ...] = ()
    """Sentences for the page: limits of the design, what was chosen and why."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of finished runs (10 MB each and more)."""
    flat: bool = False
    """The runs of the only arm are in the study's folder itself, as s0, s1, ...: `heedful train ENV --seeds 0,1`."""

    def __post_init__(self) -> None:
        refuse_name("a study", self.name)
        _refuse_sizes(self, "minutes")
        refuse_below(self, minutes=0)
        names = [arm.name for arm in self.arms]
        if len(names) * len(self.seeds) > MOST_RUNS:
            raise ValueError(
                f"study {self.name}: expected at most {MOST_RUNS:,} runs, found {len(names):,} x {len(self.seeds):,} "
                "(arms x seeds); leave some out"
            )
        for what, values in (("arms", names), ("seeds", self.seeds)):
            if not values:
                raise ValueError(f"study {self.name}: expected {what}, found none")
            if len({str(value).lower() for value in values}) < len(values):  # some disks do not tell A from a
                raise ValueError(f"study {self.name}: expected distinct {what}, found {', '.join(map(str, values))}")
        if self.flat and len(names) > 1:
            raise ValueError(f"study {self.name}: flat is for a single arm, found {', '.join(names)}")
        unknown = [name for name in self._arms_named() if name not in names]
        if unknown:
            raise ValueError(
                f"study {self.name}: {', '.join(dict.fromkeys(unknown))} is compared or read, but no arm has that "
                f"name; the arms are {', '.join(names)}"
            )
        for name in names:
            if name in self.read_by(name):
                raise ValueError(f"study {self.name}: arm {name} waits for its own run; `after` names an earlier arm")

    def _arms_named(self) -> list[str]:
        """Every arm that a pair, an analysis or another arm refers to."""
        named = [name for pair in self.pairs for name in (pair.arm, pair.control)]
        named += [arm.after for arm in self.arms if arm.after is not None]
        named += [name for each in self.separations for name in (*each.collapsed, *each.healthy)]
        return named + [name for each in self.leads for name in (*each.induced, *each.healthy)]

    def read_by(self, name: str) -> set[str]:
        """The arms whose runs this arm's runs read, and those that these read in turn."""
        read: set[str] = set()
        after = self.arm(name).after
        while after is not None and after not in read:
            read.add(after)
            after = self.arm(after).after
        return read

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


def train(name: str, flags: str = "", own_seedling: bool = False, model: str | None = None) -> TrainingJob:
    """The job of `heedful train NAME [--model MODEL] FLAGS`."""
    return TrainingJob(settings(name, flags, model), own_seedling)


def settings(name: str, flags: str = "", model: str | None = None) -> TrainConfig:
    """The configuration of `heedful train NAME [--model MODEL] FLAGS`. Wrong flags end as they do there."""
    return parse(TrainConfig, preset(name, model), shlex.split(flags), f"heedful train {name}", "")


def narrowed(study: Study, arms: tuple[str, ...] = (), seeds: tuple[int, ...] = (), steps: int | None = None) -> Study:
    """A study for a quick look: some of its arms, other seeds, other steps.

    `arms`: names, or patterns such as `sokoban_*`. Comparisons with an arm that is left out go with it. Raises
    ValueError for a name or a pattern that no arm has.
    """
    unknown = [wanted for wanted in arms if not any(fnmatchcase(arm.name, wanted) for arm in study.arms)]
    if unknown:
        known = ", ".join(arm.name for arm in study.arms)
        raise ValueError(f"Expected --arms among {known}, or patterns of them, found {', '.join(unknown)}.")
    asked = {arm.name for arm in study.arms if not arms or any(fnmatchcase(arm.name, wanted) for wanted in arms)}
    asked = asked.union(*map(study.read_by, asked))
    kept = tuple(arm for arm in study.arms if arm.name in asked)
    minutes = study.minutes
    if steps is not None:
        declared = sum(arm.job.steps for arm in kept)
        minutes = None if minutes is None else minutes * steps * len(kept) / declared
        kept = tuple(replace(arm, job=arm.job.with_steps(steps)) for arm in kept)
    names = {arm.name for arm in kept}
    separations = (
        replace(each, collapsed=_only(each.collapsed, names), healthy=_only(each.healthy, names))
        for each in study.separations
    )
    leads = (
        replace(each, induced=_only(each.induced, names), healthy=_only(each.healthy, names)) for each in study.leads
    )
    return replace(
        study,
        arms=kept,
        seeds=seeds or study.seeds,
        minutes=minutes,
        pairs=tuple(pair for pair in study.pairs if {pair.arm, pair.control} <= names),
        separations=tuple(each for each in separations if each.collapsed and each.healthy),
        leads=tuple(each for each in leads if each.induced or each.healthy),
    )


def _refuse_sizes(config: object, *names: str) -> None:
    """Raise ValueError for the first field that is no number, or one that no chart can draw."""
    for name in names:
        found = getattr(config, name)
        if found and not SIZES[0] <= abs(found) <= SIZES[1]:
            raise ValueError(f"{name} must be 0, or of a size between {SIZES[0]} and {SIZES[1]}, found {found}")


def _refuse_no_steps(reading: Measure | Separation) -> None:
    first, last = reading.from_step, reading.to_step
    if last is not None and last < first:
        raise ValueError(f"{reading.title!r}: expected to_step at or after from_step ({first}), found {last}")


def _only(named: tuple[str, ...], kept: set[str]) -> tuple[str, ...]:
    return tuple(name for name in named if name in kept)


def study_to_json(study: Study) -> dict[str, Any]:
    """The whole declaration; configurations in full."""
    return to_json(study)


def study_from_json(tree: Mapping[str, Any]) -> Study:
    """A study from its tree.

    A job may be given as `heedful train` takes it: `{"type": "train", "preset": "echo", "flags": "--steps 5"}`, with
    `config` as a partial configuration between the two.

    Raises:
        ValueError: a setting is unknown, missing or wrong; one line per problem.
    """
    arms = tree.get("arms")
    if isinstance(arms, list):
        tree = {**tree, "arms": [_resolved(arm) for arm in arms]}
    return from_json(Study, tree)


def read_study(path: Path) -> Study:
    """A study from a file of the user's own. Raises ValueError where it cannot be read or understood."""
    try:
        tree = read_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"Expected a study as JSON in {path}, found {error}.") from error
    if not isinstance(tree, dict):
        raise ValueError(f"Expected a study as a JSON object in {path}, found a {type(tree).__name__}.")
    try:
        return study_from_json(tree)
    except ValueError as error:
        raise ValueError(f"The study in {path} cannot be used. {error}") from error


def _resolved(arm: Any) -> Any:
    """The arm with its job's preset and flags turned into a whole configuration."""
    job = arm.get("job") if isinstance(arm, dict) else None
    if not isinstance(job, dict) or not {"preset", "flags"} & job.keys():
        return arm
    name, flags, partial = job.get("preset"), job.get("flags", ""), job.get("config", {})
    if not isinstance(name, str) or not isinstance(flags, str):
        raise ValueError(
            f"Expected `preset` and `flags` of arm {arm.get('name')!r} as texts, found {name!r}, {flags!r}."
        )
    refused = untrusted(name) if ":" in name else ""
    if refused:
        raise ValueError(f"The preset of arm {arm.get('name')!r} cannot be used: {refused}.")
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise ValueError(f"Expected the flags of arm {arm.get('name')!r} as on a command line: {error}.") from error
    asking = [given.flag for given in split(words, {})[0] if given.path in (("help",), ("print_config",))]
    if asking:
        raise ValueError(f"Expected settings as the flags of arm {arm.get('name')!r}, found {asking[0]}.")
    base = from_json(TrainConfig, partial, preset(name))
    config = parse(TrainConfig, base, words, f"arm {arm.get('name')} (heedful train {name})", "")
    rest = {key: value for key, value in job.items() if key not in ("preset", "flags", "config")}
    return {**arm, "job": {**rest, "config": to_json(config)}}


__all__ = [
    "Arm",
    "Hunt",
    "Job",
    "Lead",
    "Measure",
    "Pair",
    "Separation",
    "Study",
    "narrowed",
    "read_study",
    "settings",
    "study_from_json",
    "study_to_json",
    "train",
]
