"""Drawn batches of a model, and what a run would read of them: rightness by carrier, and information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.console import SafeConsole
from heedful.diagnostics.actions.rightness import RIGHTNESS_NAMES
from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags, first_turn_thoughts
from heedful.envs.common.contract import rightness_of, turns_of
from heedful.envs.common.tasks import TaskStream
from heedful.measuring.swapped import exchanged_thoughts
from heedful.rollout import LockStep, Request
from heedful.run.config import TrainConfig
from heedful.run.evaluation.subjects import LoadedModel, Subject, load
from heedful.scorers.hf import HFScorer
from heedful.seeds import derive
from heedful.types import Group, Metric, Rightness

MI, GAP = "information/first_turn/mi", "information/first_turn/gap_per_token"
RIGHT = tuple(f"grounding/{name}" for name in RIGHTNESS_NAMES)
BY_THOUGHT = "grounding/right_by_thought"
KEPT = (*RIGHT, MI, GAP, "success")
INFORMED = 16
"""Prompts whose thoughts are scored under each other. Mutual information is at most the logarithm of this."""


def loading(config: TrainConfig) -> Any:
    """The model that the configuration begins with, as a context manager: grown now where it is not in the cache."""
    return load(Subject("the untrained model", config), SafeConsole(quiet=True))


def drawn(loaded: LoadedModel, config: TrainConfig, prompts: int, members: int, seed: int) -> list[Group]:
    """Fresh training tasks, played by the model."""
    env = config.env
    tasks = TaskStream(env, "train", derive(seed, "tasks")).next(prompts)
    policy = loaded.policy(config.asked(config.sampling), derive(seed, "rollout"))
    return LockStep()(policy, Request(env.episode, tasks, members, turns_of(env), config.context))


def readings(
    loaded: LoadedModel,
    config: TrainConfig,
    groups: Sequence[Group],
    seed: int,
    right: Rightness | None = None,
    rows: int | None = None,
) -> dict[str, Metric]:
    """The readings named in `KEPT`. Thoughts are exchanged in blocks, information is that of the first 16 prompts.

    `right`: in place of the environment's. `rows`: the number of exchanged thoughts, all by default.
    """
    scorer, temperature = HFScorer(loaded.model), config.sampling.temperature
    labels = rightness_of(config.env) if right is None else right
    exchanged = rows or sum(len(group.trajectories) for group in groups)
    metrics, _ = exchanged_thoughts(scorer, groups, temperature, exchanged, len(groups), right=labels)
    thoughts = first_turn_thoughts(groups, ThoughtTags(), INFORMED)
    if thoughts.thoughts_M:
        scores = scorer.cross_score(thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M, temperature)
        metrics += information(scores, "first_turn", np.random.default_rng(derive(seed, "permutations"))).metrics
    outcomes = [float(one.success or 0) for group in groups for one in group.trajectories]
    metrics.append(Metric("success", sum(outcomes) / len(outcomes), len(outcomes)))
    return {metric.name: metric for metric in metrics if metric.name in KEPT}


def of_batches(config: TrainConfig, seeds: Sequence[int]) -> list[dict[str, float | None]]:
    """For each seed the numbers of a batch of 32 prompts x 2 thoughts, of the model that a run would begin with."""
    with loading(config) as loaded:
        return [numbers(readings(loaded, config, drawn(loaded, config, 32, 2, one), one)) for one in seeds]


def numbers(found: dict[str, Metric]) -> dict[str, float | None]:
    """The values alone, to store."""
    return {name: each.number for name, each in found.items()}
