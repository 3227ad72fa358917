"""The parts of a page about what went wrong: alarms with their evidence, and why prompts taught nothing.

They are made from the run's own metrics and rollouts. Where there is nothing to show, a sentence says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from markupsafe import Markup

from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.task_triage import (
    ADVICE,
    CAUSES,
    UNTOLD,
    Shares,
    TaskHistory,
    Triaged,
    histories,
    reports_progress,
    shares_by_tag,
    shares_of,
    triage,
)
from heedful.report.record import Losses, RunRecord, Series
from heedful.storage import read_rollouts

MOST_TASKS = 24
"""Rows of the table per task."""
MOST_TAGS = 12
HUES = {"mixed": 1, "solved": 3, "blind": 5, "failed": 2}
"""As in the chart of groups by kind."""
STRIP = 160
"""Width of a task's strip of visits."""


@dataclass(frozen=True, slots=True)
class RaisedAlarm:
    """One alarm that was raised."""

    name: str
    collapse: bool
    when: str
    """`steps 10 to 14, 20 to the end`."""
    evidence: str
    """When it was raised first."""
    advice: str


@dataclass(frozen=True, slots=True)
class AlarmTable:
    """All alarms of a run."""

    raised: tuple[RaisedAlarm, ...]
    quiet: tuple[str, ...]
    unknown: tuple[tuple[str, str], ...]
    """Names of the alarms that were never known, and why."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One kind of group over the run."""

    cause: str
    hue: int
    early: str
    late: str
    advice: str


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task over the run."""

    task: str
    tags: str
    visits: int
    trained: str
    stay: str
    """`failed at 5 visits in a row, steps 3 to 19`."""
    now: str
    last: int
    strip: Markup
    advice: str


@dataclass(frozen=True, slots=True)
class Triage:
    """What is known of groups without signal."""

    causes: tuple[CauseRow, ...]
    notes: tuple[str, ...]
    tasks: tuple[TaskRow, ...]
    tags: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Tag, groups, and shares in the order of `CAUSES`."""


def alarm_table(run: RunRecord) -> AlarmTable:
    """Every `alarm/*` of the run: raised, the earliest first, quiet or never known."""
    rules = {rule.name: rule for rule in standard_rules(AlarmConfig())}
    raised, quiet, unknown = [], [], []
    for metric, series in run.series.items():
        if not metric.startswith("alarm/"):
            continue
        name = metric.removeprefix("alarm/")
        known = [point for point in series.points if point.number is not None]
        if any(point.number for point in known):
            rule = rules.get(name)
            whys = [point.metric.why for point in known if point.number and point.metric.why]
            collapse, advice = (rule.collapse, rule.advice) if rule else (False, "")
            first = next(point.step for point in known if point.number)
            raised.append((first, RaisedAlarm(name, collapse, _stretches(series), "".join(whys[:1]), advice)))
        elif known:
            quiet.append(name)
        else:
            unknown.append((name, series.points[-1].metric.why or "no reason given"))
    in_order = sorted(raised, key=lambda found: found[0])
    return AlarmTable(tuple(alarm for _, alarm in in_order), tuple(quiet), tuple(unknown))


def _stretches(series: Series) -> str:
    found: list[list[int]] = []
    standing = False
    for point in series.points:
        if point.number:
            found[-1].append(point.step) if standing else found.append([point.step])
        standing = bool(point.number)
    texts = [str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}" for steps in found]
    if standing:
        texts[-1] = f"{found[-1][0]} to the end" if len(found[-1]) > 1 else f"{found[-1][0]}, the last one"
    return f"step{'s' if len(found) > 1 or len(found[0]) > 1 else ''} {', '.join(texts)}"


def triage_of(run: RunRecord, losses: Losses) -> Triage:
    """The triage of a run's groups, from its values and, task by task, from its rollouts."""
    triaged, progress = _triaged(run, losses)
    notes = []
    if (triaged and not progress) or _said(run, "signal/blind"):
        notes.append(UNTOLD)
    tasks: tuple[TaskRow, ...] = ()
    if not triaged:
        notes.append(
            "Task by task nothing is known: an audit keeps no rollouts, they are in the log."
            if run.audited
            else "Task by task nothing is known: the run stored no rollouts."
        )
    else:
        tasks, note = _tasks(triaged, run.steps)
        notes.append(note)
    return Triage(_causes(run), tuple(notes), tasks, _tags(triaged))


def _triaged(run: RunRecord, losses: Losses) -> tuple[list[Triaged], bool]:
    on = run.config.get("filter.on", "outcome")
    found, progress = [], False
    steps = {run.folder.rollouts(step): step for step in run.folder.rollout_steps()}
    for file, rollouts in losses.readable(partial(read_rollouts, replies=False), steps):
        found += triage(steps[file], rollouts.groups, rollouts.verdicts, on)
        progress = progress or reports_progress(rollouts.groups)
    return found, progress


def _said(run: RunRecord, name: str) -> bool:
    series = run.get(name)
    return bool(series.points) and not series.numeric


def _causes(run: RunRecord) -> tuple[CauseRow, ...]:
    """Mean shares in the first and in the last third of the steps. No row where nothing was read."""
    rows = []
    for cause in CAUSES:
        points = run.get(f"signal/{cause}").numeric
        if not points:
            continue
        third = max(1, len(points) // 3)
        early, late = ([point.number or 0.0 for point in part] for part in (points[:third], points[-third:]))
        rows.append(
            CauseRow(
                cause,
                HUES[cause],
                f"{sum(early) / third:.0%}",
                f"{sum(late) / third:.0%}",
                ADVICE.get(cause, "These teach: members of a group differ."),
            )
        )
    return tuple(rows)


def _tasks(triaged: Sequence[Triaged], steps: tuple[int, int]) -> tuple[tuple[TaskRow, ...], str]:
    """The tasks that taught nothing for longest, and a sentence about what the table leaves out."""
    found = histories(triaged)
    again = [history for history in found if len(history.visits) > 1]
    if 2 * len(again) < len(found):
        seen = f"{len(again)} of {len(found):,} tasks were seen more than once" if again else "No task was seen twice"
        note = f"{seen}: tasks are fresh at every step, so there is no history per task (--tasks N draws from a pool)."
        return (), note
    silent = [history for history in again if history.longest is not None]
    if not silent:
        return (), f"All {len(again):,} tasks that were seen again were mixed at every visit."
    shown = silent[:MOST_TASKS]
    rows = "all of them" if len(shown) == len(silent) else f"the {len(shown)} with the longest stretch"
    note = f"{len(silent):,} of the {len(found):,} tasks were without signal at some visit. Listed: {rows}."
    return tuple(_task_row(history, steps) for history in shown), note


def _task_row(history: TaskHistory, steps: tuple[int, int]) -> TaskRow:
    longest = history.longest
    assert longest is not None
    times = "once" if longest.visits == 1 else f"at {longest.visits} visits in a row"
    when = f"step {longest.first}" if longest.first == longest.last else f"steps {longest.first} to {longest.last}"
    now = history.stays[-1]
    return TaskRow(
        history.task,
        ", ".join(history.tags),
        len(history.visits),
        "–" if history.trained is None else str(history.trained),
        f"{longest.cause} {times}, {when}",
        now.cause,
        history.visits[-1].step,
        _strip(history, steps),
        ADVICE[longest.cause] if now.cause == longest.cause else f"No longer {longest.cause}.",
    )


def _strip(history: TaskHistory, steps: tuple[int, int]) -> Markup:
    """A mark per visit, coloured by kind, from the first step of the run to the last."""
    first, last = steps
    scale = (STRIP - 8) / max(1, last - first)
    gaps = [(later.step - earlier.step) * scale for earlier, later in pairwise(history.visits)]
    width = max(2.0, min(8.0, min(gaps, default=8.0) - 1))
    marks = [
        Markup(
            '<rect class="area c{}" x="{:.1f}" y="2" width="{:.1f}" height="12"><title>step {}: {}</title></rect>'
        ).format(HUES[visit.cause], (visit.step - first) * scale, width, visit.step, visit.cause)
        for visit in history.visits
    ]
    return Markup('<svg class="visits" viewBox="0 0 {} 16" width="{}" height="16" role="img">{}</svg>').format(
        STRIP, STRIP, Markup("").join(marks)
    )


def _tags(triaged: Sequence[Triaged]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    rows = shares_by_tag(triaged)[:MOST_TAGS]
    if rows and (untagged := [one.cause for one in triaged if not one.tags]):
        rows.append(shares_of("(no tag)", untagged))
    return tuple((row.label, f"{row.groups:,}", _percent(row)) for row in rows)


def _percent(row: Shares) -> tuple[str, ...]:
    shares: Mapping[str, float] = row.shares
    return tuple(f"{shares[cause]:.0%}" for cause in CAUSES)
