"""What the episodes of a batch were like: `reward/*`, `success/*`, `format/*`, `length/*` and the policy's entropy.

Episodes of one task are not independent, so intervals are clustered by task. Episodes that were never scored are left
out of rewards and successes. They do not count as zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.diagnostics.statistics.group_statistics import scored
from heedful.diagnostics.statistics.intervals import (
    Interval,
    cluster_interval,
    cluster_rate_interval,
    deleted_means,
    effective_clusters,
    wilson,
)
from heedful.types import Group, Metric, Reply, Span, Trajectory

Cluster = list[Trajectory]

_LIKE_THE_SUM = re.compile("(component/)*mean")


def behaviour(groups: Sequence[Group]) -> list[Metric]:
    """Means over trajectories (`reward`, `success`, `length/turns`), over turns (`format`, the other `length`) or over
    sampled tokens (`policy/entropy_per_token`, nats), each with its n and a 95% interval.

    `success/progress` is how far episodes got, from 0 to 1: where the reward is blind, or outcomes are rare, it moves
    when success cannot.

    `policy/thought_entropy_per_token` and `/answer_entropy_per_token` are over the tokens of thoughts and of answers,
    `/solved_entropy_per_token` over all sampled tokens of successful episodes: the average over all episodes hides
    opposite changes of certainty in different ways to answer. `text/distinct_thoughts`: the share of different
    first thoughts, by their ids, within a group. It grows with 1 / G: compare values of equal group size.

    `format/trailing_tokens` counts the sampled tokens after the answer but for the one that ends the turn. In a reply
    without an answer those after the thought. Evaluation calls this with one or several episodes per task.
    """
    by_task: dict[str, Cluster] = {}  # groups of the same task join: they share its difficulty
    for group in groups:
        by_task.setdefault(group.task.id, []).extend(group.trajectories)
    tasks = list(by_task.values())
    components = sorted({name for task in tasks for episode in task for turn in episode.turns for name in turn.rewards})
    successes = [scored([_as_number(episode.success) for episode in task]) for task in tasks]
    unscored = "no episode was scored"
    success = rate("success/rate", successes, unscored)
    return [
        mean("reward/mean", [scored([episode.reward for episode in task]) for task in tasks], unscored),
        *(
            mean(_component(name), [scored([episode.component(name) for episode in task]) for task in tasks], unscored)
            for name in components
        ),
        success,
        rate("success/any_of_group", _any_of_group(groups), unscored),
        mean("success/progress", _progress(tasks), "the environment reports no progress"),
        *_at_most(success.clusters, [*_format_and_length(tasks), *_entropies(tasks)]),
        _distinct_thoughts(groups),
    ]


def _component(name: str) -> str:
    """The metric of a reward component. `reward/mean` is that of the sum, so `mean` has another name."""
    return f"reward/component/{name}" if _LIKE_THE_SUM.fullmatch(name) else f"reward/{name}"


def component_of(metric: str) -> str:
    """The reward component of such a metric."""
    name = metric.removeprefix("reward/")
    return name.removeprefix("component/") if _LIKE_THE_SUM.fullmatch(name) else name


def _at_most(clusters: float | None, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics with at most as many effective tasks as success has.

    Where nearly all tasks are solved, or nearly none, the others are a rare kind. What a batch lacks of them, noise
    that all tasks share hides in lengths and entropies.
    """
    if clusters is None:
        return list(metrics)
    return [one if one.clusters is None else replace(one, clusters=min(one.clusters, clusters)) for one in metrics]


def _format_and_length(tasks: Sequence[Cluster]) -> list[Metric]:
    turns = [[turn for episode in task for turn in episode.turns] for task in tasks]
    none = "no turn was played"
    trailing = [
        [float(max(0, len(each.ids) - each.answer.end - (0 if each.cut else 1))) for each in replies]
        for replies in ([turn.reply for turn in task] for task in turns)
    ]
    return [
        rate("format/valid_rate", [[float(turn.valid) for turn in task] for task in turns], none),
        rate("format/closed_rate", [[float(turn.reply.closed) for turn in task] for task in turns], none),
        mean("format/trailing_tokens", trailing, none),
        mean("length/reasoning_tokens", [[float(len(turn.reply.thought)) for turn in task] for task in turns], none),
        mean("length/response_tokens", [[float(len(turn.reply.ids)) for turn in task] for task in turns], none),
        mean("length/turns", [[float(len(episode.turns)) for episode in task] for task in tasks], "no episode"),
    ]


def _entropies(tasks: Sequence[Cluster]) -> list[Metric]:
    solved = [[episode for episode in task if episode.success] for task in tasks]
    return [
        _entropy("policy/entropy_per_token", tasks, lambda reply: reply.entropies),
        _entropy("policy/thought_entropy_per_token", tasks, lambda reply: _within(reply, reply.thought)),
        _entropy("policy/answer_entropy_per_token", tasks, lambda reply: _within(reply, reply.answer)),
        _entropy("policy/solved_entropy_per_token", solved, lambda reply: reply.entropies),
    ]


def _entropy(name: str, tasks: Sequence[Cluster], of: Callable[[Reply], Sequence[float]]) -> Metric:
    replies = [[turn.reply for episode in task for turn in episode.turns] for task in tasks]
    values = [[value for reply in task for value in of(reply)] for task in replies]
    sums, counts = [math.fsum(task) for task in values], [len(task) for task in values]
    if not sum(counts):
        reported = any(reply.entropies for task in replies for reply in task)
        why = "no such token was sampled" if reported or not any(replies) else "the sampler reports no entropies"
        return Metric(name, None, 0, why=why)
    filled = [(total, count) for total, count in zip(sums, counts, strict=True) if count]
    sums, counts = [total for total, _ in filled], [count for _, count in filled]
    return _pooled(name, sums, counts, cluster_interval(sums, counts), floor=0.0)


def _within(reply: Reply, span: Span) -> Sequence[float]:
    return reply.entropies[span.start : span.end]


def _distinct_thoughts(groups: Sequence[Group]) -> Metric:
    shares: dict[str, list[float]] = {}
    for group in groups:
        replies = [trajectory.turns[0].reply for trajectory in group.trajectories if trajectory.turns]
        thoughts = [reply.ids[reply.thought.start : reply.thought.end] for reply in replies]
        thoughts = [thought for thought in thoughts if thought]
        if len(thoughts) > 1:
            shares.setdefault(group.task.id, []).append(len(set(thoughts)) / len(thoughts))
    return mean("text/distinct_thoughts", list(shares.values()), "no group has two thoughts")


def _progress(tasks: Sequence[Cluster]) -> list[list[float]]:
    """How far scored episodes got; a success got all the way, whatever is reported of it."""
    if not any(episode.progress is not None for task in tasks for episode in task):
        return []
    return [
        scored([1.0 if episode.success else episode.progress for episode in task if episode.outcome is not None])
        for task in tasks
    ]


def _any_of_group(groups: Sequence[Group]) -> list[list[float]]:
    """For each task, whether any member succeeded in each of its groups that has a scored one."""
    found: dict[str, list[float]] = {}
    for group in groups:
        members = scored([_as_number(trajectory.success) for trajectory in group.trajectories])
        if members:
            found.setdefault(group.task.id, []).append(max(members))
    return list(found.values())


def _as_number(success: bool | None) -> float | None:
    return None if success is None else float(success)


def mean(
    name: str, values_by_task: Sequence[Sequence[float]], why: str, floor: float = -math.inf, ceiling: float = math.inf
) -> Metric:
    """The mean of values with an interval clustered by task, cut to the range. `why`: the reason if there are none.

    Tasks that all agree give no interval: its width would be zero, which is not certainty.
    """
    sums, counts = [math.fsum(values) for values in values_by_task], [len(values) for values in values_by_task]
    if not sum(counts):
        return Metric(name, None, 0, why=why)
    return _pooled(name, sums, counts, cluster_interval(sums, counts), floor, ceiling)


def rate(name: str, values_by_task: Sequence[Sequence[float]], why: str) -> Metric:
    """The rate of binary values with Wilson's interval for as many trials as the tasks' agreement leaves. Every task
    counts as one trial when each has one value, and when all tasks agree on 0 or on 1."""
    filled = [values for values in values_by_task if values]
    sums, counts = [math.fsum(values) for values in filled], [len(values) for values in filled]
    if not counts:
        return Metric(name, None, 0, why=why)
    if max(counts) == 1 or math.fsum(sums) in (0, sum(counts)):
        agreed = math.fsum(total / count for total, count in zip(sums, counts, strict=True))
        return _pooled(name, sums, counts, wilson(agreed, len(counts)))
    return _pooled(name, sums, counts, cluster_rate_interval(sums, counts))


def _pooled(
    name: str,
    sums: Sequence[float],
    counts: Sequence[int],
    interval: Interval | None,
    floor: float = -math.inf,
    ceiling: float = math.inf,
) -> Metric:
    value = math.fsum(sums) / sum(counts)
    if interval is None:
        return Metric(name, value, sum(counts), why="no interval: a single task")
    if interval.low == interval.high:
        return Metric(name, value, sum(counts), why="no interval: all tasks agree")
    clusters = effective_clusters(deleted_means(sums, counts))
    return Metric(name, value, sum(counts), *interval.cut(floor, ceiling), clusters=clusters)
