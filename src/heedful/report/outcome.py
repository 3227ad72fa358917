"""What a measured folder comes to, for a program that asks: alarms and figures as JSON, Markdown and an exit code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from heedful.boundary import listed
from heedful.diagnostics.alarms.causes import READ, Cause, likely
from heedful.diagnostics.alarms.conditions import Rule
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.report.record import RunRecord, Series, read_run
from heedful.types import Metric

RAISED, NOT_JUDGED = 3, 4
"""Exit codes: an alarm that `--fail-on` names was raised; nothing that it names could be judged."""
NEVER = "never"
SEVERITIES = ("notice", "warning", "collapse")
"""In ascending order. Each stands for the alarms of its own severity and those above."""
FIGURES = {
    "reward/mean": "reward",
    "trainer/reward": "reward, as the trainer says",
    "success/rate": "success",
    "trainer/validation": "validation, as the trainer says",
    "signal/mixed": "groups with spread",
    "trainer/zero_std": "groups without spread, as the trainer says",
    "trainer/entropy": "entropy, as the trainer says",
    "trainer/kl": "KL, as the trainer says",
    "trainer/length": "length, as the trainer says",
    "text/judge_accuracy_8way": "prompt named from words, 8-way",
    "mi": "mutual information",
    "mi_ceiling": "its ceiling",
    "gap_per_token": "gap per token",
    "accuracy": "retrieval accuracy",
    "chance": "its chance",
}
"""What is shown first and last: a metric's name, or the end of one of the first turn -> its words."""
_TEN = 10
WORDS = "text/judge_accuracy_8way"
JOIN = "`--join N` reads N steps as one."


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm as it was raised first."""

    name: str
    severity: str
    step: int
    last: int
    """The last step at which it is raised."""
    evidence: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The alarms and figures of a run or an audit."""

    run: RunRecord
    raised: tuple[Raised, ...]
    judged: frozenset[str]
    """The alarms that could be judged at some step."""
    unknown: Mapping[str, str]
    """The others, each with the reason at the last step."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read a folder with `metrics.jsonl`. Raises ValueError as `read_run` does."""
        return cls.of_run(read_run(folder))

    @classmethod
    def of_run(cls, run: RunRecord) -> Self:
        raised, judged, unknown = [], set(), {}
        for name, series in run.series.items():
            alarm = name.removeprefix("alarm/")
            if alarm == name:
                continue
            if not series.numeric:
                unknown[alarm] = series.points[-1].metric.why or "no reason given"
                continue
            judged.add(alarm)
            if at := [point for point in series.numeric if point.number]:
                severity = _RULES[alarm].severity if alarm in _RULES else "warning"
                raised.append(Raised(alarm, severity, at[0].step, at[-1].step, at[0].metric.why))
        return cls(run, tuple(sorted(raised, key=lambda one: one.step)), frozenset(judged), unknown)

    @property
    def quiet(self) -> list[str]:
        """The alarms that could be judged and were not raised."""
        return sorted(self.judged - {one.name for one in self.raised})

    def causes(self) -> tuple[Cause, ...]:
        """The likely causes of what was raised, the likeliest first."""
        first = min((one.step for one in self.raised), default=0)
        points = ((name, point) for name in READ for point in self.run.get(name).points if point.step <= first)
        readings = {name: point.number for name, point in points if point.number is not None}
        return likely({one.name: one.step for one in self.raised}, readings)

    def told_causes(self) -> list[str]:
        """Sentences on the first three of them, and before them on what forks and a split update say."""
        from heedful.report.attribution import measured_causes  # with what draws pages

        measured = measured_causes(self.run.folder, self.raised[-1].step) if self.raised else []
        return measured + [cause.sentence() for cause in self.causes()[:3]]

    def not_judged(self) -> list[str]:
        """Says that thoughts were read and no alarm on their words can be judged, and why."""
        readings = self.run.get(WORDS).points
        return [words_not_judged(readings[-1].metric.why)] if readings and not self.run.get(WORDS).numeric else []

    def code(self, fail_on: Sequence[str]) -> int:
        """The exit code: 0, `RAISED` or `NOT_JUDGED`. `fail_on`: as `named_alarms` reads it."""
        named = named_alarms(fail_on)
        if any(one.name in named for one in self.raised):
            return RAISED
        return NOT_JUDGED if named and not named & self.judged else 0

    def figures(self) -> list[tuple[str, Series]]:
        """The words and readings of the main metrics that were recorded."""
        return [
            (words, series)
            for name, words in FIGURES.items()
            for key, series in self.run.series.items()
            if key == name or re.fullmatch(rf"(information|retrieval)(@[^/]*)?/first_turn/{name}", key)
        ]

    def to_json(self) -> dict[str, Any]:
        """One object. `schema` rises when a key changes its meaning."""
        verdict = self.run.verdict
        return {
            "schema": 1,
            "folder": str(self.run.folder.path),
            "name": self.run.name,
            "steps": list(self.run.steps),
            "verdict": list(verdict.sentences) if verdict else [],
            "read": list(verdict.read) if verdict else [],
            "alarms": [asdict(one) for one in self.raised],
            "causes": [asdict(cause) for cause in self.causes()],
            "judged": sorted(self.judged),
            "figures": {
                series.name: {"words": words, "first": series.points[0].number, "last": series.points[-1].number}
                for words, series in self.figures()
            },
            "report": str(self.run.folder.report),
        }

    def markdown(self) -> str:
        """A summary for the page of a CI job."""
        lines = [f"### heedful: {_cell(self.run.name)}", ""]
        lines += [f"- {_cell(sentence)}" for sentence in (self.run.verdict.sentences if self.run.verdict else ())]
        lines += (
            ["", "| alarm | severity | steps | evidence |", "|---|---|---|---|"] if self.raised else ["", "No alarm."]
        )
        for one in self.raised:
            lines.append(f"| {one.name} | {one.severity} | {one.step} to {one.last} | {_cell(one.evidence)} |")
        if causes := self.told_causes():
            lines += ["", "Likely causes:", ""]
            lines += [f"{place}. {_cell(sentence)}" for place, sentence in enumerate(causes, start=1)]
        lines += ["", "| | first | last |", "|---|---|---|"]
        for words, series in self.figures()[:_TEN]:
            lines.append(f"| {words} | {shown(series.points[0].metric)} | {shown(series.points[-1].metric)} |")
        return "\n".join([*lines, "", f"Page: `{_cell(str(self.run.folder.report))}`", ""])


_RULES: dict[str, Rule] = {rule.name: rule for rule in logged_rules(AlarmConfig())}


def words_not_judged(why: str) -> str:
    """The sentence for a reason why the words of thoughts were not read among 8 prompts."""
    return f"The alarm words_uninformed is not judged: {why}. {JOIN}"


def named_alarms(fail_on: Sequence[str]) -> frozenset[str]:
    """The alarms that `--fail-on` names: by name, or by severity. Raises ValueError for a word that is neither."""
    found: set[str] = set()
    for word in fail_on:
        if word in SEVERITIES:
            least = SEVERITIES.index(word)
            found |= {name for name, rule in _RULES.items() if SEVERITIES.index(rule.severity) >= least}
        elif word in _RULES:
            found.add(word)
        elif word != NEVER:
            raise ValueError(
                f"Expected --fail-on {NEVER}, {listed(reversed(SEVERITIES))}, or alarms ({listed(_RULES, most=40)}), "
                f"found {word!r}."
            )
    return frozenset(found)


def shown(metric: Metric) -> str:
    """A reading with three decimals. `-` where there is none."""
    return "-" if metric.number is None else f"{metric.number:.3f}"


def _cell(text: str) -> str:
    """Text in a table of Markdown."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
