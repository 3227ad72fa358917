"""What a study may ask of its runs beyond measures: what separates arms, what comes first, and which runs collapse."""

from __future__ import annotations

from dataclasses import dataclass, field

from heedful.boundary import refuse_below
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.storage.measurements import SIZES

MOST_SIMULATED = 100_000
"""Simulated series of a lead, at most. Each takes about a millisecond."""


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
        refuse_sizes(self, "wanted")
        refuse_no_steps(self.title, self.from_step, self.to_step)


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
        refuse_sizes(self, "points", "correlation")
        refuse_below(self, drift_free=0)
        if self.drift_free > MOST_SIMULATED:
            raise ValueError(f"drift_free must be at most {MOST_SIMULATED:,}, found {self.drift_free}")
        if not 0 <= self.correlation < 1:
            raise ValueError(f"correlation must be at least 0 and below 1, found {self.correlation!s:.80}")


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
        refuse_sizes(self, "errors", "least_valid")
        if not self.metrics or not 0 < self.fall < 1:
            raise ValueError(f"{self.title!r}: expected metrics, and a fall between 0 and 1, found {self.fall!s:.80}")
        refuse_below(self, window=1)


@dataclass(frozen=True, slots=True)
class Factor:
    """A setting of two levels."""

    name: str
    """The level whose effect is told, such as `top_p`."""
    against: str
    """The other level."""
    arms: tuple[str, ...]
    """The arms at the first of the two."""


@dataclass(frozen=True, slots=True)
class Factorial:
    """What each of several settings does on average over the others: their levels are crossed in these arms."""

    title: str
    arms: tuple[str, ...]
    factors: tuple[Factor, ...]
    measures: tuple[str, ...] = ()
    """Titles of the measures that are read; empty = all. The verdict tells the effects on the first one."""

    def __post_init__(self) -> None:
        if not self.factors:
            raise ValueError(f"{self.title!r}: expected factors, found none")
        for factor in self.factors:
            beyond = [name for name in factor.arms if name not in self.arms]
            if beyond:
                raise ValueError(
                    f"{self.title!r}: expected the arms of factor {factor.name!r} among those of the design, found "
                    f"{', '.join(beyond)}"
                )


def refuse_sizes(config: object, *names: str) -> None:
    """Raise ValueError for the first field that is no number, or one that no chart can draw."""
    for name in names:
        found = getattr(config, name)
        if found and not SIZES[0] <= abs(found) <= SIZES[1]:
            raise ValueError(f"{name} must be 0, or of a size between {SIZES[0]} and {SIZES[1]}, found {found}")


def refuse_no_steps(title: str, first: int, last: int | None) -> None:
    """Raise ValueError for a reading of steps that ends before it begins."""
    if last is not None and last < first:
        raise ValueError(f"{title!r}: expected to_step at or after from_step ({first}), found {last}")
