"""Does an alarm come before success falls? Falls, leads, and false alarms of runs given as plain series.

Promise: a fall has to be larger than the noise of the evaluations that show it, and a lead is never counted from an
evaluation that was still good enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.studies.paired import Count
from heedful.types import Metric

Evaluations = Sequence[tuple[int, Metric]]
"""Success by step, ascending, each with its interval."""


@dataclass(frozen=True, slots=True)
class Fall:
    """Where success has fallen."""

    step: int
    """The first evaluation that shows it."""
    good_until: int
    """The last good evaluation: success fell between it and the evaluation that shows the fall."""
    start: float
    value: float


@dataclass(frozen=True, slots=True)
class RunLead:
    """One run: when it fell and when the alarm came."""

    run: str
    fall: Fall | None
    alarm: int | None
    """The first step at which any alarm was raised."""
    names: tuple[str, ...] = ()
    """The alarms raised at that step."""

    @property
    def lead(self) -> int | None:
        """Steps from the first alarm to the evaluation that shows the fall; negative = too late."""
        return None if self.fall is None or self.alarm is None else self.fall.step - self.alarm

    @property
    def before(self) -> bool:
        """The alarm came before the evaluation that shows the fall."""
        return self.lead is not None and self.lead > 0

    @property
    def surely_before(self) -> bool:
        """The alarm came no later than the last evaluation that had not fallen: not even between the two."""
        return self.fall is not None and self.alarm is not None and self.alarm <= self.fall.good_until


@dataclass(frozen=True, slots=True)
class LeadTable:
    """What alarms did in runs that were made to collapse and in healthy ones."""

    induced: tuple[RunLead, ...]
    healthy: tuple[RunLead, ...]

    @property
    def fallen(self) -> Count:
        """Induced runs whose success fell: only they can be warned of."""
        return Count(sum(run.fall is not None for run in self.induced), len(self.induced))

    @property
    def warned(self) -> Count:
        """Alarms before the fall, of the induced runs that fell."""
        fallen = [run for run in self.induced if run.fall is not None]
        return Count(sum(run.before for run in fallen), len(fallen))

    @property
    def surely_warned(self) -> Count:
        """Alarms no later than the last evaluation that was still good."""
        fallen = [run for run in self.induced if run.fall is not None]
        return Count(sum(run.surely_before for run in fallen), len(fallen))

    @property
    def false_alarms(self) -> Count:
        """Healthy runs in which any alarm was raised."""
        return Count(sum(run.alarm is not None for run in self.healthy), len(self.healthy))


def find_fall(evaluations: Evaluations, points: float = 0.10) -> Fall | None:
    """The first evaluation at which success lies `points` or more below its start, beyond doubt.

    Beyond doubt: the 95% upper limit of the difference to the start, from the two evaluations' own intervals (half
    widths added in quadrature), lies below zero. Evaluations without a value are passed over; one without an interval
    cannot show a fall. `None` where success never fell, or was not evaluated twice.
    """
    known = [(step, metric) for step, metric in evaluations if isinstance(metric.value, int | float)]
    if len(known) < 2:
        return None
    (last, start), *later = known
    assert not isinstance(start.value, str | None)
    for step, metric in later:
        assert not isinstance(metric.value, str | None)
        drop = start.value - metric.value
        # Rates are shares of episodes: a drop of exactly the asked points must not be lost to rounding.
        if drop >= points - 1e-12 and _noise(start, metric) < drop:
            return Fall(step, last, start.value, metric.value)
        last = step
    return None


def _noise(start: Metric, later: Metric) -> float:
    """Half the width of the interval of a difference; infinite where one of the two has none."""
    if start.low is None or start.high is None or later.low is None or later.high is None:
        return math.inf
    assert not isinstance(start.value, str | None)
    assert not isinstance(later.value, str | None)
    # The sides that face each other: intervals near 0 and 1 are not symmetric.
    return math.hypot(start.value - start.low, later.high - later.value)


def first_alarm(alarms: Mapping[str, Sequence[int]]) -> tuple[int | None, tuple[str, ...]]:
    """The first step at which any alarm was raised, and the names of those raised then."""
    raised = {name: min(steps) for name, steps in alarms.items() if steps}
    if not raised:
        return None, ()
    first = min(raised.values())
    return first, tuple(sorted(name for name, step in raised.items() if step == first))


def run_lead(run: str, evaluations: Evaluations, alarms: Mapping[str, Sequence[int]], points: float = 0.10) -> RunLead:
    """The lead of one run from its evaluations and the steps at which each of its alarms was raised."""
    return RunLead(run, find_fall(evaluations, points), *first_alarm(alarms))


BASELINE_READINGS = 3
"""Readings that say where a metric starts."""


def first_departure(readings: Evaluations, direction: str | None) -> int | None:
    """The first step at which a metric has clearly left where it started; `None` if it never did.

    Clearly: the whole 95% interval of the reading lies outside the range spanned by the intervals of the first three,
    on the side of `direction` (`higher`, `lower`; `None` = either). Readings without an interval are passed over.
    A plain rule for finding out which metrics move early; the alarms have rules of their own.
    """
    bounded = [(step, m.low, m.high) for step, m in readings if m.low is not None and m.high is not None]
    start, later = bounded[:BASELINE_READINGS], bounded[BASELINE_READINGS:]
    if len(start) < BASELINE_READINGS:
        return None
    floor, ceiling = min(low for _, low, _ in start), max(high for _, _, high in start)
    for step, low, high in later:
        if (direction != "lower" and low > ceiling) or (direction != "higher" and high < floor):
            return step
    return None
