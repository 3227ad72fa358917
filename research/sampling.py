"""The runs of jobs that do not train: batches and ranked pools of one fixed policy, and gradients of checkpoints.

Promise: the tasks, the sampling noise and the diagnosis of batch b depend on (seed, b) alone. So batches are
independent readings, and an interrupted run that goes on gives the readings of an uninterrupted one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.boundary import to_json
from heedful.console import SafeConsole
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import TaskStream
from heedful.filters import values_on
from heedful.models.load import pick_device
from heedful.policies import OpenPolicySource, Weights, open_with
from heedful.report import write_report
from heedful.report.gradients import write_gradients_page
from heedful.rollout import Request, isolated
from heedful.run.config import TrainConfig, read_config
from heedful.run.evaluation.subjects import choose_checkpoint
from heedful.run.gradients import GradientsSettings, measure_gradients
from heedful.run.parts import Parts, assemble
from heedful.run.terminal import GrowthBar
from heedful.seeds import derive, stream
from heedful.stopping import exit_code, finish_the_step_first
from heedful.storage import (
    RunFolder,
    StoredGradients,
    describe_environment,
    read_gradients,
    read_metrics,
    write_rollouts,
    write_whole,
)
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric
from research.detector.forced_thoughts import forced_thought_success
from research.ranking import RANKING, RankedTask, ranked, ranking_metrics, read_ranking, write_ranking

Batch = Callable[[Parts, OpenPolicySource, int], list[Metric]]
"""Plays batch number b and returns its measurements."""


def sample_batches(config: TrainConfig, batches: int, forced: int, folder: RunFolder) -> int:
    """Sample the batches that the folder lacks and take the full diagnosis of each, as `each_batch`.

    `forced`: tasks per batch for the direct test, 0 = none.
    """

    def sample(parts: Parts, source: OpenPolicySource, batch: int) -> list[Metric]:
        return _sample(config, parts, source, folder, batch) + _force(forced, config, parts, source, batch)

    return each_batch(config, batches, folder, sample)


def each_batch(config: TrainConfig, batches: int, folder: RunFolder, play: Batch) -> int:
    """Play the batches that the folder lacks, then write its report; 0, or 128 and the signal between batches."""
    _begin(folder, config)
    if not folder.environment.exists():
        found = describe_environment(str(pick_device(config.device)), config.threads)
        write_whole(folder.environment, json.dumps(found, indent=2) + "\n")
    # Whole batches alone count: a torn last line is cut off.
    lines = read_metrics(folder.metrics) if folder.metrics.exists() else []
    first = len({line.step for line in lines})
    folder.truncate_after(first - 1)
    console = SafeConsole(soft_wrap=True)
    with GrowthBar(console) as bar:
        parts = assemble(config, bar, None)
    blank = parts.diagnostician.state()
    tracker = JsonlTracker(folder.metrics)
    try:
        with (
            finish_the_step_first() as interrupt,
            isolated(parts.env, config.env_workers, config.env_timeout) as parts.env,
            open_with(config.policy, Weights(parts.model), console.print) as source,
        ):
            for batch in range(first, batches):
                parts.diagnostician.load_state(copy.deepcopy(blank))
                tracker.write(batch, play(parts, source, batch))
                console.print(f"batch {batch + 1}/{batches}")
                if interrupt.asked:
                    return exit_code(interrupt.signal)
    finally:
        tracker.close()
    write_report(folder)
    return 0


def _begin(folder: RunFolder, config: TrainConfig) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")


def _force(tasks: int, config: TrainConfig, parts: Parts, source: OpenPolicySource, batch: int) -> list[Metric]:
    """Success under own, foreign and empty thoughts on tasks of their own."""
    if not tasks:
        return []
    chosen = TaskStream(parts.env, "train", derive(config.seed, "forced tasks", batch), config.pool).next(tasks)
    seed, sampling = derive(config.seed, "forced", batch), config.policy.sampling(config.sampling)
    return forced_thought_success(
        source, parts.renderer, sampling, parts.env, chosen, seed=seed, context=config.context
    )


def _sample(config: TrainConfig, parts: Parts, source: OpenPolicySource, folder: RunFolder, batch: int) -> list[Metric]:
    env = parts.env
    tasks = TaskStream(env, "train", derive(config.seed, "tasks", batch), config.pool).next(config.groups)
    noise = derive(config.seed, "rollout", batch)
    policy = source.policy(parts.renderer, config.asked(config.sampling), noise)
    groups = config.collect(policy, Request(env.episode, tasks, config.group_size, turns_of(env), config.context))
    values_PG = values_on(groups, config.filter.on)
    verdicts = config.filter(values_PG, stream(config.seed, "filter", batch))
    diagnosis = parts.diagnostician.measure(batch, groups, verdicts, config.filter.on)
    if config.keep_rollouts == "all":
        write_rollouts(folder.rollouts(batch), batch, "train", groups, verdicts, env.name)
        diagnosis.store_scores(folder.scores(batch))
    return diagnosis.metrics


def rank_tasks(config: TrainConfig, tasks: int, passes: int, parts: int, folder: RunFolder) -> int:
    """Play the passes that the folder lacks, then write its report; 0, or 128 and the signal between passes."""
    path = folder.path / RANKING

    def play(run: Parts, source: OpenPolicySource, number: int) -> list[Metric]:
        env = run.env
        pool = TaskStream(env, "train", derive(config.seed, "ranking tasks")).next(tasks)
        known = [RankedTask(task.id, task.seed) for task in pool]
        if number:  # what a killed pass left behind goes
            known = [RankedTask(task.id, task.seed, task.values[:number]) for task in read_ranking(path)]
        size = max(1, config.evaluation.at_once // config.group_size)
        values = []
        for start in range(0, tasks, size):
            noise = derive(config.seed, "ranking", number, start)
            policy = source.policy(run.renderer, config.asked(config.sampling), noise)
            chunk = pool[start : start + size]
            # Member numbers that no training plays: an environment's noise would come again with them.
            first = (number + 1) * config.group_size
            request = Request(env.episode, chunk, config.group_size, turns_of(env), config.context, first)
            values += values_on(config.collect(policy, request), config.filter.on)
        known = [replace(task, values=(*task.values, tuple(its))) for task, its in zip(known, values, strict=True)]
        if number + 1 == passes:
            known = ranked(known, parts)
        facts = {"on": config.filter.on, "group_size": config.group_size, "passes": number + 1, "parts": parts}
        write_ranking(path, known, facts)
        return ranking_metrics(known, parts)

    return each_batch(config, passes, folder, play)


def measure_checkpoints(
    measured: RunFolder, checkpoints: Sequence[int], settings: GradientsSettings, folder: RunFolder
) -> int:
    """Measure the checkpoints that have no measurement yet, into the run they belong to; then copy all into `folder`.

    Returns 0. Raises ValueError where the run has no such checkpoint.
    """
    config, console = read_config(measured), SafeConsole(soft_wrap=True)
    asked = {name: getattr(settings, name) for name in ("groups", "group_size", "buckets", "seed")}
    found: dict[int, StoredGradients] = {}
    for step in checkpoints:
        if step:
            choose_checkpoint(measured, config, str(step))
        path = measured.gradients(step)
        # Another arm, or the user, may have measured the run with other settings.
        if not path.exists() or not asked.items() <= read_gradients(path).facts.items():
            measure_gradients(measured, config, step, settings, console)
        found[step] = read_gradients(path)
    write_gradients_page(measured)
    _begin(folder, config)
    folder.metrics.unlink(missing_ok=True)
    tracker = JsonlTracker(folder.metrics)
    for step in checkpoints:
        tracker.write(step, list(found[step].metrics.values()))
    tracker.close()
    write_report(folder)
    return 0
