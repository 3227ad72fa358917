"""The report of one run: `report.html`.

Promise: the page is made only from the files of the run and is complete without a network. The same files give the same
bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from heedful.report.drawing.chart import Frame
from heedful.report.drawing.panel import DrawnPanel, Section, draw
from heedful.report.embedding import inert_json
from heedful.report.outcome import Outcome
from heedful.report.panels import sections
from heedful.report.record import RunRecord, read_run
from heedful.report.retrieval_map import retrieval_frames
from heedful.report.tables import alarms, key_figures, measurements, regime_kind, stages, timeline
from heedful.report.templates import fill
from heedful.report.trajectories import tags_of, trajectory_sample
from heedful.report.triage import alarm_table, triage_of
from heedful.storage import RunFolder, write_whole
from heedful.version import __version__


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
    frames, images = retrieval_frames(run.folder)
    trajectories = trajectory_sample(run.folder, tags_of(run.config), images)
    triage = triage_of(run)
    spent, total = stages(run)
    regime = run.verdict.regime if run.verdict else ""
    return fill(
        "report.html",
        {
            "name": run.name,
            "audited": bool(run.audited),
            "version": __version__,
            "steps": run.steps,
            "verdict": run.verdict,
            "regime_kind": regime_kind(regime),
            "key_figures": key_figures(run),
            "lanes": timeline(run),
            "sections": [(section, _drawn(section, frame)) for section in sections(run)],
            "alarms": alarm_table(run),
            "causes": Outcome.of_run(run).told_causes(),
            "triage": triage,
            "stages": spent,
            "total_time": total,
            "frames": inert_json(frames),
            "has_frames": bool(frames),
            "trajectories": inert_json(trajectories.steps),
            "has_trajectories": bool(trajectories.steps),
            "pictures": inert_json(trajectories.pictures),
            "has_pictures": bool(trajectories.pictures),
            "families": measurements(run),
            "config": run.config,
            "environment": run.environment,
        },
        refresh,
    )


def _drawn(section: Section, frame: Frame) -> list[DrawnPanel]:
    drawn = (draw(panel, frame) for panel in section.panels)
    return [panel for panel in drawn if panel is not None]
