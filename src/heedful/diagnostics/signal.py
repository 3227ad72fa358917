"""What there is to learn from a batch, and what the filter did about it: `signal/*` and `filter/*`.

All groups count, dropped ones included. Every average carries its n, and what cannot be known is `None` with the
reason. `spread_metrics` and `verdict_metrics` need plain numbers only, so any trainer can report them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

from heedful.diagnostics.actions.strategies import strategy_metrics
from heedful.diagnostics.behaviour_metrics import behaviour
from heedful.diagnostics.statistics.group_statistics import (
    is_constant,
    sample_variance,
    scored,
    values_on,
)
from heedful.diagnostics.statistics.intervals import effective_clusters, mean_interval
from heedful.types import PROBE, Group, Metric, Verdict

UNPAID = 2
"""Members that got all the way without success: one may be an accident, two show that the task is not paid."""

_NO_SPREAD = "no group has two scored members"


def rollout_metrics(
    groups: Sequence[Group], verdicts: Sequence[Verdict], on: str, alike: Sequence[Group] | None = None
) -> list[Metric]:
    """Everything that can be read off a step's groups and verdicts without a model.

    `on` is the filter's: the values whose spread `signal/*` and `filter/mass_kept` describe. `alike`: where groups are
    unequal, these groups with as many members each. All but `filter/*` is read from them, since the filter saw whole
    groups.
    """
    alike = groups if alike is None else alike
    values_PG = values_on(alike, on)
    return [
        *spread_metrics(values_PG),
        *cause_metrics(alike, values_PG),
        *verdict_metrics(values_on(groups, on), verdicts),
        *episode_metrics(alike),
    ]


def episode_metrics(groups: Sequence[Group]) -> list[Metric]:
    """What the episodes were like. Where a chooser chose the tasks, of its probes alone, drawn uniformly from the pool.

    A chooser looks for tasks of a certain success, so the success of its choice says little of the policy. It is
    written as `success/chosen`.
    """
    probes = [group for group in groups if PROBE in group.task.tags]
    found = [*behaviour(probes or groups), *strategy_metrics(probes or groups)]
    if not probes:
        return found
    chosen = behaviour([group for group in groups if PROBE not in group.task.tags])
    return [*found, *(replace(each, name="success/chosen") for each in chosen if each.name == "success/rate")]


def spread_metrics(values_PG: Sequence[Sequence[float | None]]) -> list[Metric]:
    """`signal/reward_std`, `signal/reward_variance` (sample, 1/(G - 1), mean over groups) and their dispersion.

    `signal/variance_dispersion` = std(variance) / mean(variance) over groups, both sample statistics: near 0 all
    groups promise the same and there is nothing to choose. `n` counts the groups with two scored members.
    """
    variances = [sample_variance(values) for values in map(scored, values_PG) if len(values) >= 2]
    deviations = [math.sqrt(variance) for variance in variances]
    dispersion = Metric("signal/variance_dispersion", None, len(variances), why="all groups are constant")
    if len(variances) < 2:
        dispersion = replace(dispersion, why="fewer than two groups have two scored members")
    elif (mean := fmean(variances)) != 0:
        dispersion = replace(dispersion, value=stdev(variances) / mean, why="")
    return [
        _group_mean("signal/reward_std", deviations),
        _group_mean("signal/reward_variance", variances),
        dispersion,
    ]


def cause_metrics(groups: Sequence[Group], values_PG: Sequence[Sequence[float | None]]) -> list[Metric]:
    """`signal/mixed`, `/solved`, `/unpaid`, `/failed`: why groups do or do not spread, as shares of the scored groups.

    In this order: the values spread; they are constant and all members succeeded; they are constant although some
    member succeeded, or at least two got all the way (`UNPAID`) and none succeeded: the reward is broken; the rest.
    The shares add to 1. Members that failed after different progress are failed: their task is hard, and its reward
    may be right. Without `progress` from the environment `unpaid` is `None`, since an unpaid group then looks like a
    failed one. Where a constant group has a reward and no member whose success is known, all but `mixed` are `None`.
    """
    names = ("mixed", "solved", "unpaid", "failed")
    known = [(group, scored(values_G)) for group, values_G in zip(groups, values_PG, strict=True)]
    known = [(group, values) for group, values in known if len(values) >= 2]
    causes = [cause_of(group, values) for group, values in known]
    if not causes:
        return [Metric(f"signal/{name}", None, 0, why=_NO_SPREAD) for name in names]
    counts = Counter(causes)
    shares = {name: Metric(f"signal/{name}", counts[name] / len(causes), len(causes)) for name in names}
    successes = [{member.success for member in group.trajectories} for group, values in known if is_constant(values)]
    unknown = successes.count({None})
    if unknown:
        why = f"success is unknown in {unknown} of the groups without spread"
        shares |= {name: Metric(f"signal/{name}", None, len(causes), why=why) for name in names[1:]}
    if not any(trajectory.progress is not None for group in groups for trajectory in group.trajectories):
        shares["unpaid"] = Metric("signal/unpaid", None, len(causes), why="the environment reports no progress")
    return list(shares.values())


def verdict_metrics(values_PG: Sequence[Sequence[float | None]], verdicts: Sequence[Verdict]) -> list[Metric]:
    """`filter/kept_ratio`, `/kept_groups`, `/mass_kept`, `/kept_without_signal` and `/dropped/<reason>` (counts).

    `mass_kept` is the kept groups' share of the total sample variance; `kept_without_signal` the share of the kept
    groups that are constant, by weight: they pull nothing but the regularisers. `dropped/constant` and
    `dropped/unscored` are always there, other reasons when they occur.
    """
    groups = len(verdicts)
    kept = sum(verdict.kept for verdict in verdicts)
    dropped = Counter({"constant": 0, "unscored": 0})
    dropped.update(verdict.reason for verdict in verdicts if not verdict.kept)
    return [
        Metric("filter/kept_ratio", kept / groups if groups else None, groups, why="" if groups else "no groups"),
        Metric("filter/kept_groups", float(kept), groups),
        _mass_kept(values_PG, verdicts),
        _kept_without_signal(values_PG, verdicts),
        *(Metric(f"filter/dropped/{reason}", float(count), groups) for reason, count in sorted(dropped.items())),
    ]


def _group_mean(name: str, values: Sequence[float]) -> Metric:
    if not values:
        return Metric(name, None, 0, why=_NO_SPREAD)
    interval = mean_interval(values)
    if interval is None:
        return Metric(name, fmean(values), 1, why="no interval: a single group")
    if interval.low == interval.high:
        return Metric(name, fmean(values), len(values), why="no interval: all groups agree")
    clusters = effective_clusters(values)
    return Metric(name, fmean(values), len(values), *interval.cut(floor=0.0), clusters=clusters)


def cause_of(group: Group, values: Sequence[float]) -> str:
    """`mixed`, `solved`, `unpaid` or `failed`, from a group's scored values: see `cause_metrics`."""
    if not is_constant(values):
        return "mixed"
    successes = [trajectory.success for trajectory in group.trajectories if trajectory.success is not None]
    if successes and all(successes):
        return "solved"
    progress = scored([trajectory.progress for trajectory in group.trajectories if trajectory.outcome is not None])
    return "unpaid" if any(successes) or sum(value >= 1 for value in progress) >= UNPAID else "failed"


def _mass_kept(values_PG: Sequence[Sequence[float | None]], verdicts: Sequence[Verdict]) -> Metric:
    masses = [sample_variance(scored(values_G)) for values_G in values_PG]
    total = math.fsum(masses)
    if total == 0:
        why = (
            "no group has any variance"
            if any(map(scored, values_PG))
            else "no episode has the value the filter looks at"
        )
        return Metric("filter/mass_kept", None, len(masses), why=why)
    kept = math.fsum(mass for mass, verdict in zip(masses, verdicts, strict=True) if verdict.kept)
    return Metric("filter/mass_kept", kept / total, len(masses))


def _kept_without_signal(values_PG: Sequence[Sequence[float | None]], verdicts: Sequence[Verdict]) -> Metric:
    name = "filter/kept_without_signal"
    kept = [(verdict.weight, scored(values_G)) for values_G, verdict in zip(values_PG, verdicts, strict=True)]
    total = math.fsum(weight for weight, _ in kept)
    if total <= 0:
        return Metric(name, None, 0, why="nothing was kept")
    silent = math.fsum(weight for weight, values in kept if is_constant(values))
    return Metric(name, silent / total, sum(weight > 0 for weight, _ in kept))
