"""The alarms of each step, with their evidence in words and numbers: `alarm/*`.

Promise: what is raised depends only on the values so far. A resumed run, an audit and a replay of `metrics.jsonl` raise
the same alarms at the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from heedful.diagnostics.alarms.causes import likely
from heedful.diagnostics.alarms.conditions import (
    Beyond,
    Change,
    Condition,
    Finding,
    Jump,
    Rule,
    Runaway,
    SeriesTest,
    Severity,
    Spike,
    follow_change,
    found_change,
    found_other_change,
    is_paid,
    judge_beyond,
    judge_jump,
    judge_runaway,
    judge_share,
    judge_spike,
    sibling,
)
from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.statistics.change_point import Design, Point, Shift
from heedful.types import Metric

MARGIN = 2
"""Steps between a fork's checkpoint and the first step of the alarm's change, at least."""
_SINCE = re.compile(r"since step (\d+)")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm at the moment it is raised."""

    name: str
    step: int
    evidence: str
    advice: str
    """The likely cause, and what to try (`causes.likely`, with the alarms before it). Empty for an own rule."""
    severity: Severity

    @property
    def collapse(self) -> bool:
        return self.severity == "collapse"

    def sentence(self) -> str:
        return f"Alarm {self.name} at step {self.step}: {self.evidence}. {self.advice}".rstrip()


def before_change(step: int, evidence: str) -> int:
    """The latest step from which a fork shows what came before an alarm of `step`.

    The evidence of an alarm names the steps since which a metric has changed.
    """
    return min([step, *map(int, _SINCE.findall(evidence))]) - MARGIN


@dataclass(frozen=True, slots=True)
class StepAlarms:
    """The alarms of one step."""

    step: int
    metrics: tuple[Metric, ...]
    """`alarm/<name>`: 1 with the evidence as `why`, 0, or `None` before there is a baseline and why."""
    raised: tuple[Alarm, ...]
    """Alarms that were not raised at the step before."""


@dataclass(slots=True)
class Alarms:
    """Watches a run. Feed it every step, in order.

    A change that was found is held on to, with the level before it, until that level is back.
    """

    config: AlarmConfig = field(default_factory=AlarmConfig)
    rules: tuple[Rule, ...] = ()
    """Empty: the standard ones."""
    _series: dict[str, list[Point]] = field(default_factory=dict)
    _tests: dict[str, SeriesTest] = field(default_factory=dict)
    _raised: dict[str, int] = field(default_factory=dict)
    """Alarm -> the step since which it is raised."""
    _first: dict[str, int] = field(default_factory=dict)
    """Alarm -> the step at which it was raised first."""

    def __post_init__(self) -> None:
        self.rules = self.rules or standard_rules(self.config)

    def observe(self, step: int, metrics: Sequence[Metric], of_update: bool | None = None) -> StepAlarms:
        """The alarms after this step's metrics. Metrics that no rule watches may be among them, or missing.

        `of_update`: only the rules on metrics of the update, or only the others. `None`: all, for recorded steps.
        """
        seen = {metric.name: metric for metric in metrics}
        self._remember(step, metrics)
        found, raised = [], []
        for rule in self.rules:
            if of_update is not None and rule.of_update is not of_update:
                continue
            finding = self._judge_rule(rule, step, seen)
            if rule.optional and finding.holds is None:
                continue
            if not finding.holds:
                self._raised.pop(rule.name, None)
            elif rule.name not in self._raised:
                self._raised[rule.name] = step
                self._first.setdefault(rule.name, step)
                raised.append(Alarm(rule.name, step, finding.words, "", rule.severity))
            value = None if finding.holds is None else float(finding.holds)
            found.append(Metric(f"alarm/{rule.name}", value, why=finding.words))
        if raised:
            readings = {name: each.number for name, each in seen.items() if each.number is not None}
            advice = next((f"Likely cause: {cause.sentence()}" for cause in likely(self._first, readings)), "")
            raised = [replace(alarm, advice=advice) for alarm in raised]
        return StepAlarms(step, tuple(found), tuple(raised))

    def _remember(self, step: int, metrics: Sequence[Metric]) -> None:
        conditions = [each for rule in self.rules for group in (*rule.all_of, rule.unless) for each in group]
        changes = [each for each in conditions if isinstance(each, Change)]
        watched = {each.metric for each in conditions}
        watched |= {name for each in changes for name in (*each.siblings, *each.paid_by)}
        most = max(self.config.window, *(each.count for each in conditions if not isinstance(each, Change)), 0)
        for metric in metrics:
            if metric.name in self._series or any(stands_for(pattern, metric.name) for pattern in watched):
                series = self._series.setdefault(metric.name, [])
                point = Point.of(step, metric)
                if point is not None:
                    series.append(point)
                    del series[:-most]

    def _judge_rule(self, rule: Rule, step: int, seen: Mapping[str, Metric]) -> Finding:
        groups = [[self._judge(condition, step, seen) for condition in group] for group in rule.all_of]
        verdicts = [_any(finding.holds for finding in group) for group in groups]
        if False in verdicts:
            told = groups[verdicts.index(False)] if verdicts.count(False) == 1 else []
            return Finding(False, "; ".join(finding.words for finding in told if finding.words))
        if None in verdicts:
            unknown = groups[verdicts.index(None)]
            return Finding(None, "; ".join(dict.fromkeys(finding.words for finding in unknown)))
        if any(self._judge(condition, step, seen).holds for condition in rule.unless):
            return Finding(False)
        return Finding(True, "; ".join(finding.words for group in groups for finding in group if finding.holds))

    def _judge(self, condition: Condition, step: int, seen: Mapping[str, Metric]) -> Finding:
        """Where the name stands for several metrics, one of them is enough."""
        names = [name for name in self._series if stands_for(condition.metric, name)]
        own = [name for name in names if "@" not in name]
        findings = [self._judge_series(condition, name, step) for name in own or names]
        verdict = _any(finding.holds for finding in findings)
        if verdict is None and not any(finding.words for finding in findings):
            return Finding(None, f"{condition.metric} was not recorded")
        if verdict is None:
            whys = [metric.why for name in own or names if (metric := seen.get(name)) and metric.value is None]
            reason = f" ({whys[0]})" if whys and whys[0] else ""
            return Finding(None, "; ".join(finding.words for finding in findings if finding.holds is None) + reason)
        words = "; ".join(each.words for each in findings if each.holds == verdict and each.words)
        if verdict and isinstance(condition, Beyond) and condition.with_reason:
            words += "".join(f": {seen[name].why}" for name in own or names if name in seen)
        return Finding(verdict, words)

    def _judge_series(self, condition: Condition, name: str, step: int) -> Finding:
        if isinstance(condition, Change):
            return self._judge_change(condition, name, step)
        points = self._series[name][-condition.count :]
        if isinstance(condition, Beyond):
            key = f"{name} {condition.above:d} {condition.limit:g} {condition.count}"
            return judge_beyond(condition, name, points, self._tests.setdefault(key, SeriesTest()))
        if isinstance(condition, Jump | Spike):
            test = self._tests.setdefault(f"{name} {type(condition).__name__}", SeriesTest())
            if isinstance(condition, Jump):
                return judge_jump(condition, name, points, test, step)
            return judge_spike(condition, name, self._series[name][-condition.count - 1 :], test, step)
        if isinstance(condition, Runaway):
            return judge_runaway(condition, name, points)
        return judge_share(condition, name, points)

    def _judge_change(self, change: Change, name: str, step: int) -> Finding:
        test = self._follow(change.design, name, step)
        other = self._follow(change.design, sibling(name, change.other_unit), step) if change.other_unit else None
        if test is None:
            need = change.design.baseline + change.design.confirm
            return Finding(None, f"{len(self._series[name])} of the first {need} readings of {name}")
        if test.held is not None and change.paid_by and is_paid(change, self._series, test.held):
            return Finding(False)
        if test.held is not None:
            return found_change(change, name, self._series, test.held, other)
        if other is not None and other.held is not None:
            return found_other_change(change, name, self._series, other.held)
        return Finding(False)

    def _follow(self, design: Design, name: str, step: int) -> SeriesTest | None:
        """The test of a change of this metric after this step; `None` while it has too few values."""
        key = f"{name} {design.direction} {design.least:g} {design.threshold:g}"
        key += " estimated" if design.estimated else ""
        test = self._tests.setdefault(key, SeriesTest())
        points = [point for point in self._series.get(name, ()) if point.step >= test.start][-self.config.window :]
        if test.held is None and len(points) < design.baseline + design.confirm and test.start == 0:
            return None
        if points and points[-1].step == step:
            follow_change(design, points, test)
        return test

    def forget_raised(self) -> None:
        """No alarm counts as raised: one that still stands is reported again. Levels before a change stay known."""
        self._raised, self._first = {}, {}

    def state(self) -> dict[str, Any]:
        """What a later step needs of the earlier ones, as a JSON tree."""
        return {
            "series": {
                name: [[point.step, point.value, point.variance, point.n] for point in series]
                for name, series in self._series.items()
            },
            "tests": {key: asdict(test) for key, test in self._tests.items()},
            "raised": dict(self._raised),
            "first": dict(self._first),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on after the steps of a `state`."""
        self._series = {name: [Point(*point) for point in series] for name, series in state["series"].items()}
        self._tests = {
            key: SeriesTest(**{**test, "held": test["held"] and Shift(**test["held"])})
            for key, test in state["tests"].items()
        }
        self._raised = dict(state["raised"])
        self._first = dict(state.get("first", state["raised"]))  # as 0.1.0 wrote it


def replay(
    run: Iterable[tuple[int, Mapping[str, Metric]]],
    config: AlarmConfig | None = None,
    rules: Sequence[Rule] = (),
) -> list[StepAlarms]:
    """What the alarms would have said of recorded steps: (step, metrics by name), in order.

    Recorded `alarm/*` values are not used, so a run can be replayed with other thresholds or other rules.
    """
    alarms = Alarms(config or AlarmConfig(), tuple(rules))
    return [alarms.observe(step, list(metrics.values())) for step, metrics in run]


def first_raised(steps: Iterable[StepAlarms]) -> dict[str, Alarm]:
    """Each alarm that was ever raised, as it was raised first."""
    found: dict[str, Alarm] = {}
    for each in steps:
        for alarm in each.raised:
            found.setdefault(alarm.name, alarm)
    return found


@lru_cache(maxsize=1 << 14)
def stands_for(pattern: str, name: str) -> bool:
    """Whether `name` is the metric, or that of one environment of a mixed batch, or as another scorer sees it."""
    if name == pattern:
        return True
    family, *rest = pattern.split("/")
    own_family, *own_rest = name.split("/")
    if own_family.split("@")[0] != family:
        return False
    return own_rest == rest or (len(own_rest) == len(rest) + 1 and [*own_rest[:-2], own_rest[-1]] == rest)


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    """True if any holds; `None` only if none of them is known."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return any(known) if known else None
