"""Does the split of updates name the cause that was planted, before the first alarm of a collapse?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from heedful.report.record import RunRecord
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from heedful.studies.paired import Count
from heedful.studies.tables import signed
from heedful.types import Metric
from research.causes.unfiltered import UNNAMED, summed

SUCCESS = "attribution/success/"


@dataclass(frozen=True, slots=True)
class NamedCauses:
    """Which part of the updates up to the first alarm took most success, run by run.

    A run names a part if its sum is the lowest of all and the sum's interval is below 0. Sums are over the updates that
    were split, with half intervals added in quadrature. `carried` and `decay` are no candidates.
    """

    title: str
    induced: tuple[str, ...]
    planted: tuple[str, ...]
    """The part that each induced arm should name."""
    expected: tuple[str, ...]
    """The alarm that bears the name of each induced arm's collapse: the rival."""
    healthy: tuple[str, ...]
    alarms: tuple[str, ...]
    """Patterns of the alarms of a collapse. The first of them ends the sums."""
    task: str = "solved"
    """The reward of the task. Its parts are no false cause in a healthy run."""
    floor: float = 0.01
    """A second rule asks for a sum below minus this, so that a clear part of no size names nothing."""

    @property
    def arms_read(self) -> tuple[str, ...]:
        return (*self.induced, *self.healthy)

    def among(self, arms: Collection[str]) -> NamedCauses | None:
        """With the arms that are left; `None` without any."""
        kept = [place for place, arm in enumerate(self.induced) if arm in arms]
        induced, planted, expected = (
            tuple(each[place] for place in kept) for each in (self.induced, self.planted, self.expected)
        )
        healthy = tuple(arm for arm in self.healthy if arm in arms)
        if not kept and not healthy:
            return None
        return replace(self, induced=induced, planted=planted, expected=expected, healthy=healthy)

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The table of runs, and the counts in sentences."""
        records = {arm: outcomes.records([arm]) for arm in self.arms_read}
        found = tuple(read_run(self, arm, label, one) for arm in records for label, one in records[arm].items())
        lead = (
            "Change of success by the part that took most, summed over the updates that were split up to the first "
            "alarm. It names the part if the interval is below 0."
        )
        table = Table(self.title, lead, f"{self.title}.", _rows(found))
        return Reading(NamedTable(found), (table,), tuple(_sentences(self, found)))


@dataclass(frozen=True, slots=True)
class NamedRun:
    """One run: what took most success before its first alarm."""

    run: str
    alarm: int | None
    """The first step with an alarm."""
    names: tuple[str, ...]
    """The alarms of that step."""
    updates: int
    """Updates whose parts were added up."""
    parts: Mapping[str, Metric]
    """Part -> its sum."""
    planted: str
    """The part that should be named; empty for a healthy run."""
    expected: str

    @property
    def lowest(self) -> str:
        return min(self.parts, key=lambda part: float(self.parts[part].value or 0.0))

    def named(self, above: float = 0.0) -> str:
        """The part that the run names, if its sum is at most minus `above`; else nothing."""
        lowest = self.parts[self.lowest]
        clear = lowest.high is not None and lowest.high < 0 and float(lowest.value or 0.0) <= -above
        return self.lowest if clear else ""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """All runs that are over."""

    runs: tuple[NamedRun, ...]


def read_run(spec: NamedCauses, arm: str, label: str, record: RunRecord) -> NamedRun:
    """One run. Raises ValueError where it split no update up to its first alarm."""
    raised: dict[int, list[str]] = {}
    for name, series in record.series.items():
        if any(fnmatchcase(name, pattern) for pattern in spec.alarms):
            for point in series.numeric:
                if point.number:
                    raised.setdefault(point.step, []).append(name)
    alarm = min(raised, default=None)
    found: dict[str, list[Metric]] = {}
    updates: set[int] = set()
    for name, series in record.series.items():
        part = name.removeprefix(SUCCESS)
        if not name.startswith(SUCCESS) or part in UNNAMED:
            continue
        read = [point for point in series.numeric if alarm is None or point.step <= alarm]
        updates.update(point.step for point in read)
        found[part] = [point.metric for point in read]
    if not updates:
        raise ValueError(f"Expected split updates in the run {label}, found none up to its first alarm.")
    induced = spec.induced.index(arm) if arm in spec.induced else None
    return NamedRun(
        label,
        alarm,
        tuple(raised.get(alarm, ())) if alarm is not None else (),
        len(updates),
        {part: summed(part, metrics) for part, metrics in found.items()},
        "" if induced is None else spec.planted[induced],
        "" if induced is None else spec.expected[induced],
    )


def _rows(found: Sequence[NamedRun]) -> Rows:
    rows = [["run", "first alarm", "updates", "lowest part of success", "its sum", "planted"]]
    for run in found:
        alarm = "–" if run.alarm is None else f"{run.alarm}: {', '.join(run.names)}"
        rows.append([run.run, alarm, str(run.updates), run.lowest, signed(run.parts[run.lowest]), run.planted or "–"])
    return rows


def _sentences(spec: NamedCauses, found: Sequence[NamedRun]) -> list[str]:
    induced, healthy = ([run for run in found if bool(run.planted) == side] for side in (True, False))

    def false(above: float) -> Count:
        named = [run.named(above) for run in healthy]
        return Count(sum(bool(part) and not part.startswith(spec.task) for part in named), len(named))

    right = Count(sum(run.named() == run.planted for run in induced), len(induced))
    large = Count(sum(run.named(spec.floor) == run.planted for run in induced), len(induced))
    rival = Count(sum(run.expected in run.names for run in induced), len(induced))
    return [
        f"The planted part is named in {right} induced runs; with a sum below -{spec.floor:g} in {large}.",
        f"The first alarm of a collapse bears the name of the planted kind in {rival} induced runs.",
        f"A part that is not of the task is named in {false(0.0)} healthy runs; with a sum below -{spec.floor:g} in "
        f"{false(spec.floor)}.",
    ]
