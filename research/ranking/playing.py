"""The run of a ranking job: every task of a pool is played in several passes by the policy before training."""

from __future__ import annotations

from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import TaskStream
from heedful.policies import OpenPolicySource
from heedful.rollout import Request
from heedful.run.config import TrainConfig
from heedful.run.parts import Parts
from heedful.seeds import derive
from heedful.storage import RunFolder
from heedful.types import Metric
from research.ranking.estimate import (
    RANKING,
    RankedTask,
    played,
    ranked,
    ranking_metrics,
    read_ranking,
    write_ranking,
)
from research.sampling import each_batch


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
        known = played(known, values)
        if number + 1 == passes:
            known = ranked(known, parts)
        facts = {"on": config.filter.on, "group_size": config.group_size, "passes": number + 1, "parts": parts}
        write_ranking(path, known, facts)
        return ranking_metrics(known, parts)

    return each_batch(config, passes, folder, play)
