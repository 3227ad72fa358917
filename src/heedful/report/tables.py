"""The parts of a page that are tables and bars: key figures, time by stage, regimes and alarms, all metrics.

Promise: a figure that was never taken appears as absent with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.diagnostics.catalogue import entry_of, unit_of
from heedful.diagnostics.names import CPU
from heedful.report.drawing.chart import Mark, draw_sparkline
from heedful.report.drawing.numerals import covers, interval, numeral
from heedful.report.panels import splits
from heedful.report.record import Point, RunRecord, Series
from heedful.types import Metric


def key_figures(run: RunRecord) -> list[dict[str, Any]]:
    """The figures that a reader wants before any chart, first and last value each."""
    split = next(iter(splits(run)), "val")
    information = f"{run.family('information')}/first_turn"
    success = (
        [
            _key_figure("Success", run.get("success/rate")),
            _key_figure("Reward", run.get("reward/mean")),
            _key_figure("Prompt named from the words, 8-way", run.get("text/judge_accuracy_8way")),
        ]
        if run.audited
        else [
            _key_figure("Success, sampled", run.get(f"eval/{split}/sampled/success")),
            _key_figure("Success, greedy", run.get(f"eval/{split}/greedy/success")),
        ]
    )
    return [
        *success,
        _key_figure("Mutual information, first turn", run.get(f"{information}/mi")),
        _key_figure("Gap per token, first turn", run.get(f"{information}/gap_per_token")),
        _key_figure("Retrieval accuracy, first turn", run.get(f"{run.family('retrieval')}/first_turn/accuracy")),
        _key_figure("Right first actions by the thought", run.get("grounding/right_by_thought")),
        _key_figure("Influence of the thought", run.get("grounding/thought_influence")),
        _key_figure("Entropy of thoughts, given the prompt", run.get(f"{information}/entropy_conditional_per_token")),
        _key_figure("Replies executable as written", run.get("format/valid_rate")),
        _key_figure("Length of a thought", run.get("length/reasoning_tokens")),
        _key_figure("Groups kept by the filter", run.get("filter/kept_ratio")),
    ]


def _key_figure(label: str, series: Series) -> dict[str, Any]:
    """One measurement before and after; `why` there is none."""
    points, unit = series.numeric, unit_of(series.name)
    if not points:
        why = f"{series.name} was not recorded"
        if series.points:
            why = series.points[-1].metric.why or "no reason given"
        return {"label": label, "unit": unit, "why": why}
    first, last, moved = points[0], points[-1], len(points) > 1
    return {
        "label": label,
        "unit": unit,
        "before": numeral(first.number or 0.0) if moved else "",
        "after": numeral(last.number or 0.0),
        "first_step": f"step {first.step}",
        "last_step": str(last.step) if moved else f"step {last.step}",
        "after_interval": interval(last.metric),
        "no_interval": last.metric.why or "no interval",
        "covers": covers(last.metric),
        "n": "" if last.metric.n is None else f"n {last.metric.n:,}",
        "why": "",
        "spark": draw_sparkline(series),
    }


def alarms(run: RunRecord) -> tuple[Mark, ...]:
    """The step at which each alarm was raised, each time it was."""
    marks = []
    for name, series in run.series.items():
        if name.startswith("alarm/"):
            raised = False
            for point in series.points:
                if point.number and not raised:
                    evidence = f": {point.metric.why}" if point.metric.why else ""
                    marks.append(
                        Mark(point.step, f"alarm {name.removeprefix('alarm/')} at step {point.step}{evidence}")
                    )
                raised = bool(point.number)
    return tuple(marks)


def timeline(run: RunRecord) -> list[dict[str, Any]]:
    """Regimes as stretches of steps, alarms as the stretches in which they were raised: name and segments."""
    lanes = []
    for name, series in run.series.items():
        alarm = name.startswith("alarm/")
        if alarm and any(point.number for point in series.points):
            lanes.append({"name": name, "segments": _segments(run, series.points, alarm=True)})
        elif name.startswith("regime/") and "_closed" not in name:
            lanes.append({"name": name, "segments": _segments(run, series.points, alarm=False)})
    return sorted(lanes, key=lambda lane: str(lane["name"]).startswith("alarm/"))


def _segments(run: RunRecord, points: Sequence[Point], alarm: bool) -> list[dict[str, Any]]:
    """Stretches of steps with one label, in percent of the run."""
    first, last = run.steps
    width = max(1, last - first + 1)
    ends = [*(point.step for point in points[1:]), last + 1]
    merged: list[tuple[int, int, str, str]] = []
    for point, end in zip(points, ends, strict=True):
        label, why = _label(point.metric, alarm), point.metric.why
        if merged and merged[-1][2] == label:
            merged[-1] = (merged[-1][0], end, label, merged[-1][3])
        else:
            merged.append((point.step, end, label, why))
    return [
        {
            "left": round(100 * (start - first) / width, 3),
            "width": round(100 * (end - start) / width, 3),
            "label": label,
            "kind": _KINDS.get(label, "unknown"),
            "words": f"{label or 'quiet'}, steps {start} to {end - 1}" + (f": {why}" if why else ""),
        }
        for start, end, label, why in merged
        if label or not alarm
    ]


_KINDS = {
    "diverse": "diverse",
    "template": "template",
    "compressed": "compressed",
    "low-entropy": "low-entropy",
    "low_entropy": "low-entropy",
    "undecided": "undecided",
    "raised": "raised",
}


def regime_kind(label: str) -> str:
    """The style of a regime's label; `unknown` for one this page has no colour for."""
    return _KINDS.get(label.lower(), "unknown")


def _label(metric: Metric, alarm: bool) -> str:
    if alarm:
        return "raised" if metric.value and not isinstance(metric.value, str) else ""
    return "not yet" if metric.value is None else str(metric.value)


def stages(run: RunRecord) -> tuple[list[dict[str, Any]], str]:
    """Time by stage, longest first, and the total in words. A stage called `total` or `step` contains the others."""
    seconds = {
        name.removeprefix("time/"): sum(point.number or 0.0 for point in series.numeric)
        for name, series in run.series.items()
        if name.startswith("time/") and name != CPU and series.numeric
    }
    whole = max((seconds.pop(name, 0.0) for name in ("total", "step")), default=0.0)
    total = max(whole, sum(seconds.values()))
    rows = [
        {
            "name": name,
            "seconds": _duration(spent),
            "share": f"{100 * spent / total:.1f}%" if total else "",
            "percent": 100 * spent / total if total else 0.0,
            "per_step": numeral(spent / len(run.get(f"time/{name}").numeric)),
        }
        for name, spent in sorted(seconds.items(), key=lambda stage: -stage[1])
    ]
    return rows, _duration(total)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{numeral(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def measurements(run: RunRecord) -> dict[str, list[dict[str, Any]]]:
    """Everything measured, by family (the first part of the name): one row for each metric."""
    families: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(run.series):
        series, known = run.series[name], entry_of(name)
        taken, missing = series.measured, series.missing
        last = taken[-1].metric if taken else None
        row = {
            "name": name,
            "unit": known.unit if known else "",
            "definition": known.text if known else "",
            "spark": draw_sparkline(series),
            "first": _value(taken[0].metric) if taken else "–",
            "last": _value(last) if last else "–",
            "interval": interval(last) if last else "",
            "covers": covers(last) if last else "",
            "n": "" if last is None or last.n is None else f"{last.n:,}",
            "count": f"{len(taken)}" + (f" of {len(series.points)}" if missing else ""),
            "why": "; ".join(dict.fromkeys(point.metric.why or "no reason given" for point in missing)),
        }
        families.setdefault(name.split("/")[0], []).append(row)
    return families


def _value(metric: Metric) -> str:
    return metric.value if isinstance(metric.value, str) else numeral(metric.value or 0.0)
