"""The report of one run: `report.html`.

Promise: the page is made only from the files of the run and is complete without a network. The same files give the same
bytes. Texts of a large run stand in a folder beside the page, which loads them step by step.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.console import duration
from heedful.diagnostics.catalogue import entry_of
from heedful.diagnostics.names import CPU
from heedful.report.drawing.chart import Frame, Mark, draw_sparkline
from heedful.report.drawing.early import early_answers
from heedful.report.drawing.numerals import covers, interval, numeral
from heedful.report.drawing.panel import DrawnPanel, Panel, draw
from heedful.report.embedding import packed
from heedful.report.episodes import Episodes, episodes_of
from heedful.report.first import told
from heedful.report.outcome import Outcome
from heedful.report.panels import first_panels, questions
from heedful.report.record import RunRecord, read_run
from heedful.report.retrieval_map import retrieval_frames
from heedful.report.templates import fill
from heedful.report.triage import triage_of
from heedful.storage import RunFolder, write_whole
from heedful.types import Metric
from heedful.version import __version__

INLINE = 2_000_000
"""Most bytes of packed texts inside a page. More stand in a folder beside it."""
_REGIMES = ("diverse", "template", "compressed", "low-entropy")
"""Labels of a regime that have a colour of their own."""
NEWEST = 20
"""Last steps whose texts are on the page of a run that goes on."""


def write_report(run_folder: RunFolder | Path | str, refresh: int = 0) -> Path:
    """Write `report.html` into a run's folder and return its path.

    `refresh`: seconds after which a browser loads the page again, for a run that goes on. 0 = never.

    Raises:
        ValueError: the folder holds no measurements, or one of its files is malformed; the message names it.
    """
    run = read_run(run_folder)
    if refresh:
        run = replace(run, verdict=None)  # it is that of an earlier end
    outcome = Outcome.of_run(run)
    marks = (Mark(one.step, f"alarm {one.name} at step {one.step}: {one.evidence}") for one in outcome.raised)
    frame = Frame(run.steps, tuple(marks))
    spent, total = stages(run)
    regime = run.verdict.regime.lower() if run.verdict else ""
    page = fill(
        "report.html",
        {
            "name": run.name,
            "audited": bool(run.audited),
            "without_rollouts": run.without_rollouts,
            "version": __version__,
            "steps": run.steps,
            "verdict": run.verdict,
            "regime_kind": regime if regime in _REGIMES else "unknown",
            "told": told(run),
            "first": _drawn(first_panels(run), frame),
            "questions": [(question, _drawn(question.panels, frame)) for question in questions(run)],
            "outcome": outcome,
            "early": early_answers(run.folder),
            "triage": triage_of(run),
            "stages": spent,
            "total_time": total,
            **embedded([run], run.folder.report, NEWEST if refresh else None),
            "families": measurements(run),
            "config": run.config,
            "environment": run.environment,
        },
        refresh,
    )
    write_whole(run.folder.report, page)
    return run.folder.report


def embedded(
    runs: Sequence[RunRecord], page: Path, newest: int | None = None, names: Sequence[str] = ()
) -> dict[str, object]:
    """What the page's script reads of some runs: `packs` by name, and the folder `beside` it for what is too large.

    `newest`: of so many last steps alone. `names`: of the runs, where their own would not tell them apart.
    """
    found: list[Episodes] = [episodes_of(run, newest) for run in runs]
    packs, parts, swaps = dict[str, str](), dict[str, str](), False
    for number, (run, episodes) in enumerate(zip(runs, found, strict=True)):
        parts |= {f"{number}-{step}": part for step, part in episodes.parts.items()}
        maps = retrieval_frames(run.folder)
        if maps.frames:
            parts[f"{number}-frames"] = packed({"frames": maps.frames, "pictures": maps.pictures})
        swaps = swaps or any(frame["swaps"] for frame in maps.frames)
        name = names[number] if names else run.name
        episodes.index |= {"name": name, "frames": len(maps.frames), "scale": maps.scale}
    folder = page.with_name(f"{page.stem}_steps")
    if folder.is_dir():
        shutil.rmtree(folder)
    large = sum(map(len, parts.values())) > INLINE
    if large:
        folder.mkdir()
        for name, part in parts.items():
            write_whole(folder / f"{name}.js", f'heedfulPart("{name}", "{part}");\n')
    else:
        packs |= parts
    packs["runs"] = packed([episodes.index for episodes in found])
    return {
        "packs": packs,
        "beside": folder.name if large else "",
        "has_rollouts": any(episodes.parts for episodes in found),
        "has_maps": any(episodes.index["frames"] for episodes in found),
        "has_swaps": swaps,
    }


def _drawn(panels: Sequence[Panel], frame: Frame) -> list[DrawnPanel]:
    drawn = (draw(panel, frame) for panel in panels)
    return [panel for panel in drawn if panel is not None]


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
            "seconds": duration(spent, 1),
            "share": f"{100 * spent / total:.1f}%" if total else "",
            "percent": 100 * spent / total if total else 0.0,
            "per_step": numeral(spent / len(run.get(f"time/{name}").numeric)),
        }
        for name, spent in sorted(seconds.items(), key=lambda stage: -stage[1])
    ]
    return rows, duration(total, 1)


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
