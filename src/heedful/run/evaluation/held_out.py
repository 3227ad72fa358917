"""Success on held-out tasks, with intervals, next to the success of a random and the best input-blind policy.

Every number is computed over tasks. Samples of one task are never counted as independent. Gains are paired by task.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from heedful.boundary import cut
from heedful.diagnostics.behaviour_metrics import behaviour, rate
from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.diagnostics.statistics.intervals import effective_clusters, mean_interval, wilson
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import TaskStream, evaluation_tasks
from heedful.protocols import Environment, Policy
from heedful.rollout import FULL_HISTORY, Collector, Context, LockStep, Request
from heedful.rollout.baselines import (
    SuccessCount,
    best_fixed_sequence,
    fixed_sequence_success,
    has_blind_player,
    has_random_player,
    random_policy_success,
)
from heedful.seeds import derive
from heedful.storage import refuse_typed, write_whole
from heedful.storage.measurements import FIELDS
from heedful.types import Ending, Group, Metric, Task

_LOCK_STEP = LockStep()

BASELINE_TASKS = 512
"""Training tasks on which the best input-blind action sequence is searched. Fewer where an environment's
`start_states` is small."""


@dataclass(frozen=True, slots=True)
class Baselines:
    """The success of policies that do not read the input, and of the best that does, where it is known."""

    random: Metric
    fixed: Metric
    sequence: tuple[str, ...]
    """The best input-blind action sequence found on training tasks."""
    best: Metric | None = None
    """The best possible success. `None`: the environment cannot say."""

    @property
    def metrics(self) -> list[Metric]:
        return [self.random, self.fixed, *([] if self.best is None else [self.best])]


def success_metric(name: str, groups: Sequence[Group]) -> Metric:
    """The success rate over scored episodes, with an interval over tasks."""
    error = first_error(groups)
    why = f"no episode was scored; the first error: {error}" if error else "no episode was scored"
    return rate(name, [_successes(group) for group in groups], why)


def first_error(groups: Sequence[Group]) -> str:
    """The text of the first error that ended an episode, cut to what a person reads. `""` if none did."""
    errors = (member.error for group in groups for member in group.trajectories if member.outcome is None)
    return cut(next(filter(None, errors), ""))


def broken_sentence(groups: Sequence[Group], kind: str) -> str | None:
    """How many episodes broke, with the first error, and how many had no room for a reply. `None` if none did.

    `kind`: of the episodes, such as "sampled" or "greedy".
    """
    members = [member for group in groups for member in group.trajectories]
    broken = sum(member.outcome is None for member in members)
    full = sum(member.ending is Ending.OUT_OF_TOKENS for member in members)
    told = []
    if broken:
        error = first_error(groups)
        told.append(f"{broken} of {len(members)} {kind} episodes broke and were not scored.")
        told += [f"The first: {error}"] if error else []
    if full:
        told.append(f"{full} of {len(members)} {kind} episodes failed as out_of_tokens: the model's window was full.")
    return " ".join(told) or None


def evaluation_metrics(
    prefix: str, sampled: Sequence[Group], greedy: Sequence[Group] | None, baselines: Baselines
) -> list[Metric]:
    """The metrics of an evaluation under `eval/<split>`. `greedy`: `None` if no greedy episode was played."""
    seen = {metric.name: metric for metric in behaviour(sampled)}
    name = f"{prefix}/greedy/success"
    return [
        success_metric(f"{prefix}/sampled/success", sampled),
        Metric(name, None, why="greedy episodes were not asked for")
        if greedy is None
        else success_metric(name, greedy),
        *baselines.metrics,
        *(
            replace(seen[name], name=f"{prefix}/sampled/{name.partition('/')[2]}")
            for name in ("success/any_of_group", "format/valid_rate", "format/closed_rate", "length/turns")
        ),
    ]


def any_scored(metrics: Sequence[Metric]) -> bool:
    """Whether the metrics of an evaluation hold the success of any episode, sampled or greedy."""
    played = ("/sampled/success", "/greedy/success")
    return any(metric.value is not None for metric in metrics if metric.name.endswith(played))


def evaluation_seed(seed: int, kind: str, version: int) -> int:
    """The seed of the sampling noise when a run with this seed is evaluated after `version` steps."""
    return derive(seed, f"evaluation {kind}", version)


def paired_gain(name: str, before: Sequence[Group], after: Sequence[Group]) -> Metric:
    """Mean over tasks of the success rate after minus before, with Student's interval over tasks."""
    gains = task_gains(task_rates(before), task_rates(after))
    if not gains:
        return Metric(name, None, 0, why="no task was scored both before and after")
    return over_tasks(name, [gains])


def task_rates(groups: Sequence[Group]) -> dict[str, float]:
    """Success rate of each task over its scored episodes; tasks without one are left out."""
    found = ((group.task.id, _successes(group)) for group in groups)
    return {task: fmean(successes) for task, successes in found if successes}


def task_gains(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """After minus before, for the tasks that were scored both times."""
    return {task: rate - before[task] for task, rate in after.items() if task in before}


def over_tasks(name: str, gains: Sequence[Mapping[str, float]]) -> Metric:
    """The mean of the tasks' gains, each averaged over the seeds, with Student's interval over tasks, cut at -1 and 1.

    It answers: would these trained policies gain as much on other tasks? It says nothing about other seeds.
    `gains` holds one mapping of task to gain per seed; a seed without any task is left out. Only the tasks that every
    other seed has are pooled, so the mean can differ from the mean over seeds where an episode broke.
    """
    pooled = [by_task for by_task in gains if by_task]
    if not pooled:
        return Metric(name, None, 0, why="no task was evaluated twice, or its rollouts are not kept")
    shared = [task for task in pooled[0] if all(task in by_task for by_task in pooled)]
    values = [fmean(by_task[task] for by_task in pooled) for task in shared]
    interval = mean_interval(values)
    if interval is not None and is_constant(values):
        # Student's interval would have no width: certainty out of tasks that happen to agree.
        return Metric(name, fmean(values), len(values), why="all gains are equal: no spread to take an interval from")
    if interval is None:
        why = "a single task has no interval" if values else "the seeds share no task"
        return Metric(name, fmean(values) if values else None, len(values), why=why)
    return Metric(name, fmean(values), len(values), *interval.cut(-1.0, 1.0), clusters=effective_clusters(values))


def _successes(group: Group) -> list[float]:
    return [float(t.success) for t in group.trajectories if t.success is not None]


def play_tasks(
    policy_of: Callable[[int], Policy],
    seed: int,
    env: Environment,
    tasks: Sequence[Task],
    *,
    samples: int,
    at_once: int,
    context: Context = FULL_HISTORY,
    collect: Collector = _LOCK_STEP,
) -> list[Group]:
    """Play every task `samples` times, at most `at_once` episodes together, with the policy of `policy_of(seed)`.

    The first chunk is sampled with `seed`, each later one with a seed derived from it.
    """
    size = max(1, at_once // samples)
    groups: list[Group] = []
    for number, start in enumerate(range(0, len(tasks), size)):
        policy = policy_of(seed if number == 0 else derive(seed, "chunk", number))
        groups += collect(policy, Request(env.episode, tasks[start : start + size], samples, turns_of(env), context))
    return groups


def measure_baselines(env: Environment, split: str, tasks: int, search_tasks: int = BASELINE_TASKS) -> Baselines:
    """The random policy and the best fixed sequence of actions, or of answers, on the evaluation's tasks.

    The sequence is found on up to `search_tasks` training tasks (greedy extension, then one pass of single changes). So
    its score on the evaluation's tasks is not inflated by the search. An environment that neither lists its `actions`
    nor offers `random_answer` and `blind_answers` has neither baseline. With `search_tasks` 0 there is no search. An
    environment with `best_success` has the best possible success, too.
    """
    prefix = f"eval/{split}"
    wanted = has_random_player(env) or has_blind_player(env) or hasattr(env, "best_success")
    held_out = evaluation_tasks(env, split, tasks) if wanted else []
    at_random = Metric(f"{prefix}/random/success", None, why="the environment has no fixed list of actions")
    if has_random_player(env):
        rng = random.Random(derive(0, "random policy", split))
        at_random = _rate_metric(at_random.name, random_policy_success(env, held_out, rng))
    searched = has_blind_player(env) and search_tasks > 0
    sequence: tuple[str, ...] = ()
    if searched:
        # With few start states, a third can be drawn before the last ones take long to find.
        few: int | None = getattr(env, "start_states", None)
        count = min(search_tasks, few // 3) if few else search_tasks
        tasks_of = TaskStream(env, "train", derive(0, "fixed sequence"))
        sequence = best_fixed_sequence(env, tasks_of.next(count, fewer=True))
    why = "the environment offers no answer to a player who does not read"
    fixed = Metric(f"{prefix}/fixed/success", None, why=why if search_tasks else "it was not searched (search_tasks 0)")
    if sequence:
        fixed = _rate_metric(fixed.name, fixed_sequence_success(env, held_out, sequence))
    best = None
    if hasattr(env, "best_success"):  # exact, so it has no interval
        values = [value for task in held_out if (value := env.best_success(task)) is not None]
        known = bool(values) and len(values) == len(held_out)
        why = "" if known else "the environment does not know it for every task"
        best = Metric(f"{prefix}/best/success", sum(values) / len(values) if known else None, len(values), why=why)
    return Baselines(at_random, fixed, sequence, best)


def _rate_metric(name: str, count: SuccessCount) -> Metric:
    if not count.episodes:
        return Metric(name, None, 0, why="the environment broke in every episode")
    low, high = wilson(count.solved, count.episodes)
    return Metric(name, count.rate, count.episodes, low, high)


def refuse_numbers(path: Path | None) -> None:
    """Refuse a typed place for the numbers of an evaluation, before anything is measured."""
    if path is not None:
        refuse_typed(path, b'{\n "subject": ')


def write_numbers(path: Path, about: Mapping[str, object], metrics: Sequence[Metric], sequence: Sequence[str]) -> None:
    """Write the numbers of an evaluation as JSON. `about`: the entries that say what was evaluated, and how."""
    tree = {
        **about,
        "metrics": {metric.name: {field: getattr(metric, field) for field in FIELDS} for metric in metrics},
        "fixed_sequence": sequence,
    }
    write_whole(path, json.dumps(tree, indent=1) + "\n")
