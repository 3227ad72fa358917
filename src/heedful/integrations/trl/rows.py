"""From what a TRL trainer holds after a generation to plain completions, and to columns of its completion logs.

Promise: rewards are the raw ones times the trainer's weights; nothing normalised is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.integrations.trl.batch import Completion
from heedful.integrations.trl.rollouts import FIELD, environment_reward
from heedful.types import Trajectory

PREFIX = "heedful_"
"""Of the columns that are added to TRL's completion logs."""
COLUMNS = ("id", "reason", "reward", "outcome")


def completions_of(
    trainer: Any,
    inputs: Sequence[dict[str, Any]],
    prompt_ids: Sequence[Sequence[int]],
    ids: Sequence[Sequence[int]],
    masks: Sequence[Sequence[bool]] | None,
    rewards: Sequence[Sequence[float]],
    outcome: str | None,
) -> list[Completion]:
    """This process's completions. `rewards`: per row the raw reward of each function, NaN = none.

    Raises ValueError for an outcome outside 0 to 1.
    """
    weights = trainer.reward_weights.tolist()
    functions = list(zip(trainer.reward_func_names, trainer.reward_funcs, weights, strict=True))
    found = []
    for row, example in enumerate(inputs):
        named = [(name, weight, reward) for (name, _, weight), reward in zip(functions, rewards[row], strict=True)]
        played = _weighted(example.get(FIELD), functions)
        ours = {name for name, function, _ in functions if function is environment_reward and played is not None}
        found.append(
            Completion(
                prompt_ids=tuple(prompt_ids[row]),
                ids=tuple(ids[row]),
                sampled=tuple(masks[row]) if masks is not None else (True,) * len(ids[row]),
                rewards={
                    name: weight * reward for name, weight, reward in named if name not in ours and reward == reward
                },
                outcome=_outcome(outcome, {name: reward for name, _, reward in named}),
                environment=str(example.get("environment", "")) if trainer.environment_factories else "",
                played=played,
            )
        )
    return found


def columns_of(completion: Completion, step: int, group: int, member: int, reason: str) -> dict[str, Any]:
    """The columns of one completion: who it is, what the filter said of its group, its weighted reward, its success."""
    played = completion.played
    turns = played.turns if played is not None else ()
    parts = [value for turn in turns for value in turn.rewards.values()] + list(completion.rewards.values())
    broken = played is not None and played.outcome is None
    outcome = played.outcome if played is not None else completion.outcome
    return {
        "id": f"{step}/{group}/{member}",
        "reason": reason,
        "reward": None if broken or not (parts or played is not None) else math.fsum(parts),
        "outcome": None if outcome is None or math.isnan(outcome) else outcome,
    }


def _weighted(trajectory: Any, functions: Sequence[tuple[str, Any, float]]) -> Trajectory | None:
    """The episode with its components weighted as the trainer weighs their sum; without them where it does not."""
    if not isinstance(trajectory, Trajectory):
        return None
    weight = sum(weight for _, function, weight in functions if function is environment_reward)
    turns = [
        replace(turn, rewards={name: weight * value for name, value in turn.rewards.items()} if weight else {})
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))


def _outcome(name: str | None, rewards: dict[str, float]) -> float:
    if name is None:
        return math.nan
    outcome = rewards[name]
    if not (math.isnan(outcome) or 0 <= outcome <= 1):
        raise ValueError(
            f"Expected the reward function {name!r}, which HeedfulConfig.outcome names, to give success from 0 to 1, "
            f"found {outcome}. Name a function that does, or none."
        )
    return outcome
