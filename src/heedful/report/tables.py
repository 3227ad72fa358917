"""The parts of a page that are tables and bars: time by stage, marks of alarms, all metrics.

Promise: a figure that was never taken appears as absent with its reason.
"""

from __future__ import annotations

from typing import Any

from heedful.diagnostics.catalogue import entry_of
from heedful.diagnostics.names import CPU
from heedful.report.drawing.chart import Mark, draw_sparkline
from heedful.report.drawing.numerals import covers, interval, numeral
from heedful.report.record import RunRecord
from heedful.types import Metric


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


_KINDS = ("diverse", "template", "compressed", "low-entropy")


def regime_kind(label: str) -> str:
    """The style of a regime's label; `unknown` for one this page has no colour for."""
    return label.lower() if label.lower() in _KINDS else "unknown"


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
