"""A study as data: a question, arms x seeds, and the measures that are read from the runs.

Promise: a study written as JSON is read back equal. A file that cannot be understood is refused with a sentence.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful.boundary import Choice, Count, Natural, NotNegative, from_json, import_held, parse, to_json
from heedful.boundary import settings as declared_settings
from heedful.boundary.command_line import split
from heedful.boundary.jsontext import expecting, read_json
from heedful.boundary.trust import untrusted
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.studies.jobs import JOBS, TrainingJob, refuse_name

When = Literal["last", "first", "change", "mean", "highest", "lowest", "first_at_least", "first_at_most", "total_until"]


def _own_outcomes() -> Mapping[str, type]:
    """By name, loaded when a study names them: they read what is declared here."""
    return {"forks": import_held("heedful.studies.forks:Forks")}


@declared_settings
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
        refuse_name("an arm", self.name)

    @property
    def after(self) -> str | None:
        """The arm whose run of the same seed this arm's job reads."""
        return getattr(self.job, "after", None)


@declared_settings
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
    window: Count = 8
    """total_until: steps over which that metric is averaged."""
    from_step: Natural = 0
    to_step: Natural | None = None
    """Readings of earlier and later steps are left out."""

    def __post_init__(self) -> None:
        if (self.when == "total_until" or self.when.startswith("first_at")) != (self.level is not None):
            raise ValueError(
                f"{self.title!r}: `level` belongs to first_at_least, first_at_most and total_until, and to them alone"
            )
        if (self.when == "total_until") != bool(self.reaches):
            raise ValueError(f"{self.title!r}: `reaches` belongs to total_until, and to it alone")
        if self.to_step is not None and self.to_step < self.from_step:
            raise ValueError(f"{self.title!r}: expected to_step at or after {self.from_step}, found {self.to_step}")


@declared_settings
class Pool:
    """Several arms as one: of each measure the mean over the arms, seed by seed. Pairs name it like an arm."""

    name: str
    arms: tuple[str, ...]


@declared_settings
class Pair:
    """A comparison, seed by seed: an arm, or a pool of arms, against its control."""

    arm: str
    control: str

    def __str__(self) -> str:
        return f"{self.arm} − {self.control}"

    @property
    def names(self) -> str:
        return f"{self.arm} against {self.control}"


@declared_settings
class Interaction:
    """Whether a comparison comes out otherwise in another setting: a pair's difference minus that of a base pair."""

    pair: Pair
    base: Pair

    def __str__(self) -> str:
        return f"({self.pair}) − ({self.base})"

    @property
    def names(self) -> str:
        return f"({self.pair.names}) less ({self.base.names})"


@declared_settings
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
    pools: tuple[Pool, ...] = ()
    """Rows of their own in the tables, after the arms."""
    interactions: tuple[Interaction, ...] = ()
    """Differences of differences, in a table of their own."""
    curves: tuple[str, ...] = ()
    """Metrics that the page draws over steps, one band per arm."""
    dial: str = ""
    """What the arms' `level` means; the page then draws the measures over it."""
    outcomes: tuple[Annotated[Any, Choice(_own_outcomes)], ...] = ()
    """Further readings of the runs, each a class of its own that follows `heedful.studies.Outcome`."""
    minutes: NotNegative | None = None
    """Minutes of one run on one core, about; none = unknown."""
    notes: tuple[str, ...] = ()
    """Sentences for the page: limits of the design, what was chosen and why."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of finished runs (10 MB each and more)."""
    flat: bool = False
    """The runs of the only arm are in the study's folder itself, as s0, s1, ...: `heedful train ENV --seeds 0,1`."""

    def __post_init__(self) -> None:
        refuse_name("a study", self.name)
        names = [arm.name for arm in self.arms]
        pools = [pool.name for pool in self.pools]
        for what, values in (("arms", names), ("seeds", self.seeds), ("arms and pools", names + pools)):
            if not values:
                raise ValueError(f"study {self.name}: expected {what}, found none")
            if len({str(value).lower() for value in values}) < len(values):  # some disks do not tell A from a
                raise ValueError(f"study {self.name}: expected distinct {what}, found {', '.join(map(str, values))}")
        unknown = [name for name in self._arms_named() if name not in names]
        if unknown:
            raise ValueError(
                f"study {self.name}: {', '.join(dict.fromkeys(unknown))} is compared or read, but no arm has that "
                f"name; the arms are {', '.join(names)}"
            )

    def _arms_named(self) -> list[str]:
        """Every arm that a pair, an analysis or another arm refers to."""
        pools = [pool.name for pool in self.pools]
        pairs = [*self.pairs, *(pair for each in self.interactions for pair in (each.pair, each.base))]
        named = [name for pair in pairs for name in (pair.arm, pair.control) if name not in pools]
        named += [name for pool in self.pools for name in pool.arms]
        named += [arm.after for arm in self.arms if arm.after is not None]
        return named + [name for each in self.outcomes for name in each.arms_read]

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

    `arms`: names, or patterns such as `sokoban_*`. Pools and comparisons with an arm that is left out go with
    it. Raises ValueError for a name or a pattern that no arm has.
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
    pools = tuple(pool for pool in study.pools if names.issuperset(pool.arms))
    compared = names.union(pool.name for pool in pools)

    def stays(pair: Pair) -> bool:
        return {pair.arm, pair.control} <= compared

    return replace(
        study,
        arms=kept,
        seeds=seeds or study.seeds,
        minutes=minutes,
        pools=pools,
        pairs=tuple(filter(stays, study.pairs)),
        interactions=tuple(each for each in study.interactions if stays(each.pair) and stays(each.base)),
        outcomes=tuple(filter(None, (each.among(names) for each in study.outcomes))),
    )


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
    arms = tree.get("arms") if isinstance(tree, Mapping) else None
    if isinstance(arms, list):
        tree = {**tree, "arms": [_resolved(arm) for arm in arms]}
    return from_json(Study, tree)


def read_study(path: Path) -> Study:
    """A study from a file of the user's own. Raises ValueError where it cannot be read or understood."""
    with expecting(f"a study as JSON in {path}"):
        tree = read_json(path)
    try:
        return study_from_json(tree)
    except ValueError as error:
        raise ValueError(f"The study in {path} cannot be used. {error}") from error


_SEEDS, _TRUST = "The `seeds` of the study decide.", "Type it on the command line of heedful study."
_NO_SETTINGS: Mapping[tuple[str, ...], str] = {
    ("help",): "",
    ("print_config",): "",
    ("config",): "Write its settings as the job's `config`.",
    ("seed",): _SEEDS,
    ("seeds",): _SEEDS,
    ("trust",): _TRUST,
    ("trust_model_code",): _TRUST,
}
"""Flags that mean nothing within an arm -> what to do."""


def _resolved(arm: Any) -> Any:
    """The arm with its job's preset and flags turned into a whole configuration."""
    job = arm.get("job") if isinstance(arm, dict) else None
    if not isinstance(job, dict) or not {"preset", "flags"} & job.keys():
        return arm
    rest = dict(job)
    name, flags, partial = rest.pop("preset", None), rest.pop("flags", ""), rest.pop("config", {})
    who = f"of arm {arm.get('name')!r}"
    if not isinstance(name, str) or not isinstance(flags, str):
        raise ValueError(f"Expected `preset` and `flags` {who} as texts, found {name!r}, {flags!r}.")
    refused = untrusted(name) if ":" in name else ""
    if refused:
        raise ValueError(f"The preset {who} cannot be used: {refused}.")
    with expecting(f"the flags {who} as on a command line"):
        words = shlex.split(flags)
    asking = [(given.flag, given.path) for given in split(words, {})[0] if given.path in _NO_SETTINGS]
    if "seed" in partial:
        asking.append(("`seed` in its config", ("seed",)))
    for found, path in asking:
        raise ValueError(f"Expected settings as the flags {who}, found {found}. {_NO_SETTINGS[path]}".rstrip())
    line = f"heedful train {name}"
    base = from_json(TrainConfig, partial, preset(name))
    config = parse(TrainConfig, base, words, f"arm {arm.get('name')} ({line})", "", line)
    return {**arm, "job": {**rest, "config": to_json(config)}}
