"""Why prompts taught nothing, from the run's own metrics and rollouts. Where nothing is known, a sentence says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, mean, median
from typing import Any

from heedful.diagnostics.task_triage import (
    ADVICE,
    CAUSES,
    UNTOLD,
    TaskHistory,
    Triaged,
    histories,
    reports_progress,
    room_of,
    shares_by_tag,
    shares_of,
    triage,
)
from heedful.report.record import RunRecord
from heedful.storage import read_rollouts
from heedful.types import HELPED, without_help

MOST_TAGS = 12
MOST_NAMED = 5
HUES = {"mixed": 1, "solved": 3, "unpaid": 5, "failed": 2}
"""As in the chart of groups by kind."""


def triage_of(run: RunRecord) -> dict[str, Any]:
    """What is known of a run's groups without signal, from its values and, task by task, from its rollouts.

    `causes`: one row for each kind of group. `tags`: tag, groups, and shares in the order of `CAUSES`. `notes`: what
    cannot be said, and why.
    """
    on, triaged, progress = run.config.get("filter.on", "outcome"), list[Triaged](), False
    sizes: dict[str, list[int]] = {}
    for step in run.folder.rollout_steps():
        rollouts = read_rollouts(run.folder.rollouts(step), replies=False)
        triaged += triage(step, rollouts.groups, on)
        progress = progress or reports_progress(rollouts.groups)
        for group in rollouts.groups:
            sizes.setdefault(without_help(group.task)[0].id, []).append(len(group.trajectories))
    unpaid = run.get("signal/unpaid")
    notes = [UNTOLD] if (triaged and not progress) or (unpaid.points and not unpaid.numeric) else []
    as_they_are = histories(one for one in triaged if HELPED not in one.tags)
    notes += [*_budget_notes(run, sizes), *_treated(run), *_pool_notes(as_they_are)]
    if not triaged:
        why = "No group has two known outcomes." if run.folder.rollout_steps() else run.without_rollouts
        notes.append(f"Task by task nothing is known. {why}")
    shares = shares_by_tag(triaged)[:MOST_TAGS]
    if shares and (untagged := [one.cause for one in triaged if not one.tags]):
        shares.append(shares_of("(no tag)", untagged))
    tags = [(row.label, f"{row.groups:,}", [f"{row.shares[cause]:.0%}" for cause in CAUSES]) for row in shares]
    return {"causes": _causes(run), "notes": notes, "tags": tags}


def _treated(run: RunRecord) -> list[str]:
    """What was done about tasks that teach nothing (`--treat`)."""
    skipped, helped, turns = (run.get(f"treat/{name}").numeric for name in ("skipped", "helped", "turns"))
    if not skipped:
        return []
    means = [fmean(point.number or 0.0 for point in points) if points else 0.0 for points in (skipped, helped, turns)]
    dealt = ", dealt to other tasks by chance" if run.config.get("treat_dealt") == "true" else ""
    replays = [point.number or 0.0 for point in run.get("treat/replayed").numeric]
    unpaid = run.get("treat/unpaid").points[-1].metric.why
    return [
        f"Treated{dealt}: in a step {means[0]:.1f} solved tasks were left out, and {means[1]:.1f} groups began with "
        f"{means[2]:.1f} turns of the solver (means over steps)."
        + (f" In {sum(replays):.0f} groups an earlier success was replayed." if replays else "")
        + (f" Unpaid tasks: {unpaid}. Mend their reward." if unpaid else "")
    ]


def _pool_notes(tasks: Sequence[TaskHistory]) -> list[str]:
    """What the tasks of a pool are by all their visits without help, and what a choice among them could gain."""
    again = [task for task in tasks if len(task.visits) > 1]
    if 2 * len(again) < len(tasks) or not again:
        return []
    kinds = Counter(task.now for task in again)
    unpaid = [task.task for task in again if task.now == "unpaid"][:MOST_NAMED]
    notes = [
        f"{len(again):,} tasks were seen more than once. By all their visits: "
        + ", ".join(f"{kinds[cause]:,} {cause}" for cause in CAUSES)
        + "."
        + (f" Do not train on unpaid ones, such as {', '.join(unpaid)}." if unpaid else "")
    ]
    if (gain := room_of(again)).value is not None:
        notes.append(
            f"Room to choose: the best eighth of the tasks varies {gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}] "
            "times as much as all. One half of the visits ranks them, and the other measures. At 1 no choice can gain."
        )
    return notes


def _budget_notes(run: RunRecord, sizes: Mapping[str, Sequence[int]]) -> list[str]:
    """What a pool's tasks got: rounds, groups, episodes and tokens. `sizes`: the groups of each task, in episodes."""
    groups = sorted(size for of_task in sizes.values() for size in of_task)
    if len(groups) < 2 * len(sizes) or not groups:
        return []
    visits = [len(of_task) for of_task in sizes.values()]
    alike = sum(visits) ** 2 / sum(count**2 for count in visits)
    tokens = sum(point.number or 0.0 for point in run.get("tokens/collect").numeric) / len(sizes)
    rounds = [point.number or 0.0 for point in run.get("filter/draws").numeric]
    spread = f"{groups[0]}" if groups[0] == groups[-1] else f"{groups[0]} to {groups[-1]} (median {median(groups):g})"
    return [
        f"{len(sizes):,} tasks were played, effectively {alike:,.1f} of them alike. A task got {mean(visits):.1f} "
        f"groups of {spread} episodes, {sum(groups) / len(sizes):.1f} episodes"
        + (f" and {tokens:,.0f} sampled tokens" if tokens else "")
        + (f". A step had {mean(rounds):.2f} rounds." if rounds else ".")
    ]


def _causes(run: RunRecord) -> list[dict[str, Any]]:
    """Mean shares in the first and in the last third of the steps. No row where nothing was read."""
    rows = []
    for cause in CAUSES:
        points = run.get(f"signal/{cause}").numeric
        if points:
            third = max(1, len(points) // 3)
            early, late = (sum(point.number or 0.0 for point in part) for part in (points[:third], points[-third:]))
            advice = ADVICE.get(cause, "These teach: members of a group differ.")
            shares = {"early": f"{early / third:.0%}", "late": f"{late / third:.0%}"}
            rows.append({"cause": cause, "hue": HUES[cause], "advice": advice, **shares})
    return rows
