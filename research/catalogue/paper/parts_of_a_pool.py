"""The paper's interventional check: training on the prompts of one quarter of a pool, by the variance of rewards."""

from __future__ import annotations

from itertools import pairwise

from heedful.studies.declaration import Arm, Measure, Pair, Study, settings
from research.catalogue.paper.lean_runs import CURVES, LEAN, WATCHED
from research.jobs import PartJob, RankingJob

QUARTERS = {"q1_lowest": 1, "q2": 2, "q3": 3, "q4_highest": 4}
"""Arm -> part of the ranking. The paper counts from the other end: its Q1 is the highest."""

PUBLISHED = "--algorithm.kl 0.001 --algorithm.entropy 0.001"
"""The paper's coefficients."""


def quartiles() -> Study:
    """FrozenLake: one model per quarter of a pool, and one on as many tasks drawn at random."""
    return _quartiles("quartiles", "frozen_lake", steps=49, minutes=3.0)


def quartiles_sokoban() -> Study:
    """The same on Sokoban, on which the paper reports it."""
    return _quartiles("quartiles_sokoban", "sokoban", steps=49, minutes=9.0)


def _quartiles(name: str, env: str, steps: int, minutes: float) -> Study:
    flags = f"{PUBLISHED} --filter keep_all --steps {steps} {LEAN}"
    config = settings(env, flags)
    arms = (
        Arm("ranking", RankingJob(config, tasks=512, passes=8)),
        *(Arm(arm, PartJob(config, part=part), level=part) for arm, part in QUARTERS.items()),
        Arm("random_quarter", PartJob(config)),
    )
    names = list(QUARTERS)
    pairs = [Pair(names[-1], names[0]), *(Pair(arm, "random_quarter") for arm in names)]
    pairs += [Pair(above, below) for below, above in pairwise(names)]
    of_ranking = ("reward_variance", "mean", "hard")
    return Study(
        name,
        f"Does a model learn more from {env} tasks whose rewards vary more, at an equal budget?",
        arms,
        seeds=(0, 1, 2),
        pairs=tuple(pairs),
        measures=(
            *WATCHED,
            Measure("variance of rewards at the first step", "signal/reward_variance", "first"),
            Measure("agreement of two halves of the ranking", "ranking/half_spearman"),
            Measure("agreement of one group with the ranking", "ranking/group_spearman"),
            Measure("tasks that both halves put into one quarter", "ranking/same_part"),
            *(
                Measure(f"{what.replace('_', ' ')} of quarter {part}, on the other half", f"ranking/part_{part}/{what}")
                for what in of_ranking
                for part in QUARTERS.values()
            ),
        ),
        curves=CURVES,
        dial="quarter by variance of rewards (1 = lowest)",
        minutes=minutes,
        notes=(
            "Each seed has a pool of its own: 512 tasks of the training split, played by the policy at the start 8 "
            "times in groups of 8. These episodes are in no training. ranking/sN/ranking.json holds the tasks, what "
            "each episode earned, the variances and the quarters.",
            "Each arm trains on the 128 tasks of its quarter with the same number of steps, groups and episodes, "
            "without a filter. random_quarter has 128 tasks drawn from the whole pool. All are evaluated on the same "
            "held-out tasks.",
            "KL and entropy have the published coefficient 0.001, so a group without signal is pulled on.",
            "A quarter differs from another in difficulty as well. The lowest one holds tasks that are always solved "
            "and tasks that are never solved: its share of hard tasks is in the tables.",
            "The paper keeps the quarter of each step's groups, ranked by the very groups that are trained on. Here "
            "the ranking comes from other episodes, so training does not see the luck that ranked a task high.",
        ),
    )
