"""The report of one run: `report.html`.

Promise: the page is made only from the files of the run and is complete without a network. The same files give the same
bytes. Texts of a large run stand in a folder beside the page, which loads them step by step.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heedful.report.drawing.chart import Frame
from heedful.report.drawing.early import early_answers
from heedful.report.drawing.panel import DrawnPanel, Panel, draw
from heedful.report.embedding import packed
from heedful.report.episodes import Episodes, episodes_of
from heedful.report.first import told
from heedful.report.outcome import Outcome
from heedful.report.panels import first_panels, questions
from heedful.report.record import RunRecord, read_run
from heedful.report.retrieval_map import retrieval_frames
from heedful.report.tables import alarms, measurements, regime_kind, stages
from heedful.report.templates import fill
from heedful.report.triage import triage_of
from heedful.storage import RunFolder, write_whole
from heedful.version import __version__

INLINE = 2_000_000
"""Most bytes of packed texts inside a page. More stand in a folder beside it."""
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
    write_whole(run.folder.report, _page(run, refresh))
    return run.folder.report


def _page(run: RunRecord, refresh: int = 0) -> str:
    frame = Frame(run.steps, alarms(run))
    spent, total = stages(run)
    return fill(
        "report.html",
        {
            "name": run.name,
            "audited": bool(run.audited),
            "without_rollouts": run.without_rollouts,
            "version": __version__,
            "steps": run.steps,
            "verdict": run.verdict,
            "regime_kind": regime_kind(run.verdict.regime if run.verdict else ""),
            "told": told(run),
            "first": _drawn(first_panels(run), frame),
            "questions": [
                (question, [(section, _drawn(section.panels, frame)) for section in question.sections])
                for question in questions(run)
            ],
            "outcome": Outcome.of_run(run),
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
