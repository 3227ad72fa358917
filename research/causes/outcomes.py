"""What the studies of causes read out of their runs: signs of slopes, kept runs, and causes that forks name."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from heedful.boundary.jsontext import read_json
from heedful.report.drawing.numerals import numeral
from heedful.report.record import RunRecord
from heedful.storage import RunFolder
from heedful.studies.declaration import Pool, Study
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from heedful.studies.paired import Count, mean_over
from heedful.studies.tables import signed
from heedful.types import Metric
from research.detector.candidates import Hunt, read_hunt


@dataclass(frozen=True, slots=True)
class Slope:
    """One arm: the slope of a metric over the steps, mean over seeds, and what attribution says of the change."""

    arm: str
    predicted: int
    slope: Metric
    """Per step. Student's interval over seeds."""
    contradicted: bool
    """The slope is clear of 0, on another side than predicted, or at all where 0 was predicted."""
    attributed: float | None
    """Sum over steps of the total of split updates, over the sum of their measured changes; mean over seeds."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """Does the gap move to the predicted side under one term alone?"""

    metric: str
    signs: tuple[tuple[str, int], ...]
    """Arms with the registered sign."""
    title: str = "Signs of the gap under one term alone"

    @property
    def arms_read(self) -> tuple[str, ...]:
        return tuple(arm for arm, _ in self.signs)

    def among(self, arms: Collection[str]) -> Slopes | None:
        kept = tuple((arm, sign) for arm, sign in self.signs if arm in arms)
        return Slopes(self.metric, kept, self.title) if kept else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        found = [self._slope(arm, sign, outcomes) for arm, sign in self.signs]
        rows: Rows = [["arm", "registered", "slope per step", "contradicted", "attributed / measured"]]
        for each in found:
            share = "–" if each.attributed is None else numeral(each.attributed)
            side = {-1: "−", 0: "0", 1: "+"}[each.predicted]
            rows.append([each.arm, side, signed(each.slope), "yes" if each.contradicted else "no", share])
        against = [each.arm for each in found if each.contradicted]
        near = [each for each in found if each.attributed is not None and abs(each.attributed - 1) <= 0.25]
        known = sum(each.attributed is not None for each in found)
        said = f"Contradicted: {', '.join(against)}." if against else "No registered sign is contradicted."
        sentence = f"{said} Attribution is within 25% of the measured change in {len(near)} of {known} arms."
        return Reading({each.arm: each for each in found}, (Table(self.title, "", self.title, rows),), (sentence,))

    def _slope(self, arm: str, predicted: int, outcomes: Outcomes) -> Slope:
        runs = [(each.record, _begun(each.run.folder)) for each in outcomes.of_arm(arm)]
        values = [value for record, step in runs if (value := slope_of(record, self.metric, step)) is not None]
        slope = mean_over("slope", values)
        low, high = slope.low, slope.high
        clear = low is not None and high is not None and (low > 0 or high < 0)
        contradicted = clear and np.sign(float(slope.value or 0.0)) != predicted
        shares = [share for record, step in runs if (share := _explained(record, step)) is not None]
        return Slope(arm, predicted, slope, bool(contradicted), float(np.mean(shares)) if shares else None)


def _begun(folder: RunFolder) -> int:
    """The first step of a run itself. A fork's metrics begin with those of its parent."""
    return int(read_json(folder.fork)["checkpoint"]) if folder.fork.exists() else 0


def slope_of(record: RunRecord, metric: str, begun: int = 0) -> float | None:
    """Least squares over the steps of a run from `begun` on; `None` for fewer than three readings."""
    points = [point for point in record.get(metric).numeric if point.step >= begun]
    if len(points) < 3:
        return None
    steps = [point.step for point in points]
    return float(np.polyfit(steps, [float(point.number or 0.0) for point in points], 1)[0])


def _explained(record: RunRecord, begun: int) -> float | None:
    totals, measured = (
        sum(
            float(point.number or 0.0) for point in record.get(f"attribution/gap/{name}").numeric if point.step >= begun
        )
        for name in ("total", "measured")
    )
    return totals / measured if measured else None


@dataclass(frozen=True, slots=True)
class Kept:
    """In how many runs of each way the thoughts kept the input, by the rule of a hunt."""

    hunt: Hunt
    ways: tuple[Pool, ...]
    title: str = "Runs that kept the input"

    @property
    def arms_read(self) -> tuple[str, ...]:
        return tuple(arm for way in self.ways for arm in way.arms)

    def among(self, arms: Collection[str]) -> Kept | None:
        kept = (Pool(way.name, tuple(arm for arm in way.arms if arm in arms)) for way in self.ways)
        return Kept(self.hunt, tuple(way for way in kept if way.arms), self.title)

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        seeds = {each.run.label: each.run.seed for each in outcomes.runs}
        counts = {}
        for way in self.ways:
            judged = read_hunt(self.hunt, {arm: outcomes.records([arm]) for arm in way.arms}, seeds).runs
            known = [run for run in judged if run.fall is not None]
            counts[way.name] = Count(sum(not run.candidate for run in known), len(known))
        rows: Rows = [["way", "runs that kept the input"], *([way, str(count)] for way, count in counts.items())]
        sentence = "Kept the input: " + ", ".join(f"{way} {count}" for way, count in counts.items()) + "."
        return Reading(counts, (Table(self.title, "", self.title, rows),), (sentence,))


@dataclass(frozen=True, slots=True)
class ForkCauses:
    """Do forks, and does attribution, name the cause that was planted?"""

    planted: tuple[tuple[str, str], ...]
    """Arms of forks with the arm of the removal that is right. Empty: nothing was planted."""
    title: str = "Causes that forks name"

    @property
    def arms_read(self) -> tuple[str, ...]:
        return tuple(arm for arm, _ in self.planted)

    def among(self, arms: Collection[str]) -> ForkCauses | None:
        kept = tuple((arm, right) for arm, right in self.planted if arm in arms)
        return ForkCauses(kept, self.title) if kept else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        rows: Rows = [["forks", "planted", "first", "named", "attribution", "alarm", "first likely cause"]]
        named, first, agreed, wrong = [], [], [], []
        for arm, right in self.planted:
            for each in outcomes.of_arm(arm):
                found = json.loads((each.run.folder.path / "forked.json").read_text())
                removals = found["removals"]
                best = max((row["success"]["value"] for row in removals), default=None)
                leading = " = ".join(row["arm"]["name"] for row in removals if row["success"]["value"] == best)
                called = next((row["arm"]["name"] for row in removals if row["named"]), "")
                known = [row for row in removals if row["attributed"] is not None]
                worst = min(known, key=lambda row: row["attributed"], default=None)
                blamed = worst["arm"]["name"] if worst is not None and worst["attributed"] < 0 else ""
                told = [each.run.label, right or "–", leading, called or "–", blamed or "–"]
                rows.append([*told, *(", ".join(found[key]) or "–" for key in ("alarm", "advice"))])
                if right:
                    named.append(called == right)
                    first.append(leading == right)
                    agreed.append(blamed == right)
                else:
                    wrong.append(bool(called))
        counts = {
            "named right": Count(sum(named), len(named)),
            "first": Count(sum(first), len(first)),
            "largest negative part of success": Count(sum(agreed), len(agreed)),
            "named in a healthy run": Count(sum(wrong), len(wrong)),
        }
        sentence = "; ".join(f"{name}: {count}" for name, count in counts.items()) + "."
        return Reading(counts, (Table(self.title, "", self.title, rows),), (sentence,))
