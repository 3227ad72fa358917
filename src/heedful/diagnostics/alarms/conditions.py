"""What an alarm is made of: conditions on metrics, rules that join them, and what a condition says of a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from heedful.diagnostics.statistics.change_point import Design, Point, Shift, largest_shift

Series = Mapping[str, Sequence[Point]]
"""The values of each metric, by ascending step."""


@dataclass(frozen=True, slots=True)
class Change:
    """A metric has shifted against its own past."""

    metric: str
    """Stands for several metrics in a mixed batch: `<family>/<scope>/<environment>/<metric>`."""
    design: Design
    other_unit: str = ""
    """The last part of the name of the same quantity in another unit. Its change is said too, and decides nothing."""
    beside: tuple[str, ...] = ()
    """The last parts of the names of metrics whose levels before and since are said."""
    paid_by: tuple[str, ...] = ()
    """Metrics that excuse the change, if the first of them that is recorded has risen by `payment` since."""
    payment: float = 0.0

    @property
    def siblings(self) -> tuple[str, ...]:
        """The metrics that are said and do not decide."""
        return tuple(sibling(self.metric, last) for last in (self.other_unit, *self.beside) if last)


@dataclass(frozen=True, slots=True)
class Beyond:
    """The last `count` values of a metric are all above (or at or below) a limit: a definition, not a test.

    It ends when `count` values in a row are on the other side."""

    metric: str
    limit: float
    above: bool
    count: int
    once_within: bool = False
    """It counts only after `count` values in a row were on the other side: there was something to lose."""
    with_reason: bool = False
    """The evidence holds what the metric says of its value."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of counted things exceeds a limit: the pooled count of the last values, in standard errors."""

    metric: str
    limit: float
    threshold: float
    count: int


@dataclass(frozen=True, slots=True)
class Jump:
    """A value exceeds `times` the highest of all earlier ones, of which there are at least `count`: a definition.

    A warm-up, a decay and a warm restart of a learning rate never do.
    """

    metric: str
    times: float
    count: int


@dataclass(frozen=True, slots=True)
class Spike:
    """A value exceeds `times` the median of the `count` values before it, and their logs by `deviations` robust ones.

    At least `first` values come before it.
    """

    metric: str
    times: float
    deviations: float
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Runaway:
    """The mean of the last 5 values is `times` that of 5 around the middle of the `count` latest ones, and `least`.

    Linear growth from zero gives 2, quadratic growth 4. At least `first` values come before it.
    """

    metric: str
    times: float
    least: float
    first: int
    count: int


Condition = Change | Beyond | Share | Jump | Spike | Runaway
Severity = Literal["collapse", "warning", "notice"]
"""With `--on-collapse stop` a run ends at a collapse. A notice may be harmless."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One alarm: raised while one condition of each group holds and none of `unless` does."""

    name: str
    all_of: tuple[tuple[Condition, ...], ...]
    unless: tuple[Condition, ...] = ()
    severity: Severity = "warning"
    of_update: bool = False
    """It watches metrics of the update, so it is judged after it."""
    optional: bool = False
    """Not written where its metrics were never recorded, and before there are enough of them."""

    @property
    def collapse(self) -> bool:
        return self.severity == "collapse"


def sibling(name: str, last: str) -> str:
    """The metric of the same measurement whose name ends in `last`."""
    return f"{name.rsplit('/', 1)[0]}/{last}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a condition holds (`None`: not known yet), in words."""

    holds: bool | None
    words: str = ""


@dataclass(slots=True)
class SeriesTest:
    """What one condition on one metric remembers."""

    start: int = 0
    """The first step whose values count."""
    held: Shift | None = None
    """The change that was found and has not ended."""
    since: int | None = None
    """The step since which the metric is beyond its limit."""
    within: bool = False
    """The metric has been within its limit."""
    highest: float | None = None
    """The highest value that was no jump."""
    seen: int = 0
    """The number of values."""


def follow_change(design: Design, points: Sequence[Point], test: SeriesTest) -> None:
    """Judge the last value: a change is found, or the one that is held ends.

    It ends when the mean of as many values as make a baseline is back within the change that matters. Those values are
    the new baseline.
    """
    if test.held is None:
        shift = largest_shift(points, design)
        test.held = shift if shift is not None and shift.z >= design.threshold else None
        return
    since = [point for point in points if point.step >= test.held.since][-design.baseline :]
    mean = fmean(point.value for point in since)
    if len(since) == design.baseline and not design.matters(test.held.before, mean):
        test.held, test.start = None, since[0].step


def found_change(change: Change, name: str, series: Series, shift: Shift, other: SeriesTest | None) -> Finding:
    """The change that was found, with what the other unit alone would have said."""
    words, moved = _words_of_change(name, change.design, shift, series[name][-1]), _moved(change.design)
    if other is not None:
        alone = f"{moved} as well" if other.held is not None else f"alone has not {_moved(change.design, True)}"
        words += f"; {change.other_unit} {alone}{_levels(sibling(name, change.other_unit), series, shift)}"
    return Finding(True, words + _words_beside(change, name, series, shift))


def found_other_change(change: Change, name: str, series: Series, shift: Shift) -> Finding:
    """A change that only the other unit shows: it does not count, and that is said."""
    other = sibling(name, change.other_unit)
    words = _words_of_change(other, change.design, shift, series[other][-1])
    levels = _means(series[name], shift)
    last = name.rsplit("/", 1)[-1]
    words += f"; {last} has not {_moved(change.design, True)}{_levels(name, series, shift)}"
    words += _words_beside(change, name, series, shift)
    if levels is None or change.design.matters(*levels):
        return Finding(False, f"{words}: not beyond doubt")
    return Finding(False, f"{words}: a change of the length alone")


def judge_beyond(condition: Beyond, name: str, points: Sequence[Point], test: SeriesTest) -> Finding:
    if len(points) < condition.count:
        return Finding(None, f"{len(points)} of the first {condition.count} readings of {name}")
    beyond = [(point.value > condition.limit) == condition.above for point in points]
    if all(beyond) and test.since is None:
        test.since = points[0].step
    elif not any(beyond):
        test.since, test.within = None, True
    if test.since is None or (condition.once_within and not test.within):
        return Finding(False)
    side = "above" if condition.above else "at or below"
    shown = ", ".join(f"{point.value:.3g}" for point in points)
    return Finding(True, f"{name} is {side} {condition.limit:g} since step {test.since} (last {shown})")


def judge_share(condition: Share, name: str, points: Sequence[Point]) -> Finding:
    counted = [(point.value, point.n) for point in points if point.n]
    if len(counted) < condition.count // 2 or not counted:
        return Finding(None, f"{len(counted)} of the first {condition.count // 2} readings of {name}")
    total = sum(n for _, n in counted if n)
    share = sum(value * n for value, n in counted if n) / total
    limit = condition.limit
    # Of a share at the limit, so that fewer than one series in a million that stays below it gets here.
    error = max((limit * (1 - limit) / total) ** 0.5, 1 / total)
    if (share - limit) / error < condition.threshold:
        return Finding(False)
    return Finding(
        True,
        f"{name} was {share:.3g} of {total} in steps {points[0].step} to {points[-1].step}, "
        f"{(share - limit) / error:.1f} standard errors above {limit:g}",
    )


def judge_jump(condition: Jump, name: str, points: Sequence[Point], test: SeriesTest, step: int) -> Finding:
    if not points or points[-1].step != step:
        return Finding(None if test.seen <= condition.count else False)
    now, highest = points[-1], test.highest
    test.seen += 1
    if test.seen <= condition.count or highest is None or now.value <= condition.times * highest:
        test.highest = now.value if highest is None else max(highest, now.value)
        need = f"{test.seen} of the first {condition.count + 1} readings of {name}"
        return Finding(False) if test.seen > condition.count else Finding(None, need)
    return Finding(
        True, f"{name} is {now.value:.3g} at step {now.step}, {now.value / highest:.3g} times its highest value before"
    )


def judge_spike(condition: Spike, name: str, points: Sequence[Point], test: SeriesTest, step: int) -> Finding:
    if len(points) <= condition.first:
        return Finding(None, f"{len(points)} of the first {condition.first + 1} readings of {name}")
    *before, now = points
    logs = [math.log(max(point.value, 1e-30)) for point in before]
    middle = median(logs)
    scatter = 1.4826 * median(abs(each - middle) for each in logs)
    times = now.value / math.exp(middle)
    if now.step != step or times <= condition.times or math.log(times) <= condition.deviations * scatter:
        return Finding(False)
    return Finding(True, f"{name} is {now.value:.3g} at step {now.step}, {times:.3g} times the median before")


def judge_runaway(condition: Runaway, name: str, points: Sequence[Point]) -> Finding:
    if len(points) <= condition.first:
        return Finding(None, f"{len(points)} of the first {condition.first + 1} readings of {name}")
    half = len(points) // 2
    before = fmean(point.value for point in points[half - 3 : half + 2])
    now = fmean(point.value for point in points[-5:])
    if now < condition.least or now < condition.times * before:
        return Finding(False)
    return Finding(
        True, f"{name} grew from {before:.3g} around step {points[half].step} to {now:.3g} at step {points[-1].step}"
    )


def is_paid(change: Change, series: Series, shift: Shift) -> bool:
    """Whether the last 8 values of what excuses a change are higher than the 8 before it, by enough."""
    points = next((series[name] for name in change.paid_by if series.get(name)), ())
    before = [point.value for point in points if point.step < shift.since][-8:]
    return bool(before) and fmean(point.value for point in points[-8:]) - fmean(before) >= change.payment


def _moved(design: Design, participle: bool = False) -> str:
    if design.direction == "up":
        return "risen" if participle else "rose"
    return "fallen" if participle else "fell"


def _words_of_change(name: str, design: Design, shift: Shift, now: Point) -> str:
    return (
        f"{name} {_moved(design)} from {shift.before:.3g} (steps {shift.first} to {shift.last}) to {shift.after:.3g} "
        f"[{shift.low:.3g}, {shift.high:.3g}] since step {shift.since}, {shift.z:.1f} standard errors; "
        f"{now.value:.3g} at step {now.step}"
    )


def _words_beside(change: Change, name: str, series: Series, shift: Shift) -> str:
    return "".join(f"; {last}{_levels(sibling(name, last), series, shift)}" for last in change.beside)


def _levels(name: str, series: Series, shift: Shift) -> str:
    means = _means(series.get(name, ()), shift)
    return " (not recorded then)" if means is None else f" ({means[0]:.3g}, then {means[1]:.3g})"


def _means(points: Sequence[Point], shift: Shift) -> tuple[float, float] | None:
    """The mean of a metric in the two stretches of a change; `None` where one of them has no value of it any more."""
    before = [point.value for point in points if shift.first <= point.step <= shift.last]
    since = [point.value for point in points if point.step >= shift.since]
    return (fmean(before), fmean(since)) if before and since else None
