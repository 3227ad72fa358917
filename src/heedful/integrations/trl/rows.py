"""Conversion of a TRL trainer's generation to plain completions, and to columns of its completion logs.

Rewards are the raw ones times the trainer's weights, never normalised values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.text import thought_text
from heedful.integrations.trl.pictures import as_files
from heedful.integrations.trl.rollouts import FIELD, environment_reward
from heedful.integrations.watching.completions import Completion, success_of
from heedful.types import Trajectory

PREFIX = "heedful_"
"""Prefix of the columns that heedful adds to TRL's completion logs."""
COLUMNS = ("id", "task", "reason", "reward", "outcome", "progress", "thought")


def completions_of(
    trainer: Any,
    inputs: Sequence[dict[str, Any]],
    prompt_ids: Sequence[Sequence[int]],
    ids: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]] | None,
    rewards: Sequence[Sequence[float]],
    outcome: str | None,
    images: Sequence[Sequence[Any] | None],
) -> list[Completion]:
    """The completions of this process. `rewards`: per row the raw reward of each function, NaN = none. `images`: per
    row the pictures of the prompt, and of what tools wrote, as TRL has them.

    Raises ValueError for an infinite reward and for an outcome outside 0 to 1.
    """
    weights = trainer.reward_weights.tolist()
    several = getattr(trainer, "environment_factories", None)  # RLOOTrainer has none
    functions = list(zip(trainer.reward_func_names, trainer.reward_funcs, weights, strict=True))
    pictures = as_files(images, getattr(trainer.processing_class, "image_processor", None))
    found = []
    for row, example in enumerate(inputs):
        named = [(name, weight, reward) for (name, _, weight), reward in zip(functions, rewards[row], strict=True)]
        played = _weighted(example.get(FIELD), functions)
        ours = {name for name, function, _ in functions if function is environment_reward and played is not None}
        found.append(
            Completion(
                prompt_ids=tuple(prompt_ids[row]),
                ids=tuple(ids[row]),
                sampled=tuple(map(bool, masks[row])) if masks is not None else (True,) * len(ids[row]),
                rewards=_summed([(name, weight * reward) for name, weight, reward in named if name not in ours]),
                outcome=success_of(
                    next((reward for name, _, reward in named if name == outcome), math.nan),
                    str(outcome),
                    "HeedfulConfig.outcome",
                ),
                environment=str(example.get("environment", "")) if several else "",
                played=played,
                images=pictures[row][0],
                unreadable=pictures[row][1],
            )
        )
    return found


def columns_of(
    trajectory: Trajectory, reason: str, name: str, logged: Any, tags: ThoughtTags
) -> dict[str, str | float | None]:
    """The columns of one completion: its name, its prompt's name, the filter's verdict, weighted reward, success.

    `logged`: the completion as TRL logs it. The first turn's thought is given by its position in that text. If TRL
    dropped special tokens from the text, it is given as `=` and the thought's own text. Empty without a thought.
    """
    thought = thought_text(trajectory.turns[0].reply, tags) if trajectory.turns else None
    at = _first_text(logged).find(thought) if thought is not None else -1
    place = f"{at}:{at + len(thought)}" if thought is not None and at >= 0 else f"={thought}"
    outcome = trajectory.outcome
    return {
        "id": name,
        "task": trajectory.task.id,
        "reason": reason,
        "reward": trajectory.reward,
        "outcome": None if outcome is None or math.isnan(outcome) else outcome,
        "progress": trajectory.progress,
        "thought": "" if thought is None else place,
    }


def _first_text(logged: Any) -> str:
    """The text of a completion, or of the policy's first message in it."""
    if isinstance(logged, list):
        logged = next((message.get("content") for message in logged if message.get("role") == "assistant"), "")
    return logged if isinstance(logged, str) else ""


def _summed(rewards: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Rewards by function, NaN where none of that name gave one; empty if none did. Functions may share a name."""
    found: dict[str, float] = {}
    for name, reward in rewards:
        if math.isinf(reward):
            raise ValueError(
                f"Expected a finite reward of the function {name!r}, times its weight and in TRL's float32, found "
                f"{reward}. Return a smaller number, or None for a completion without a reward."
            )
        if not math.isnan(reward):
            found[name] = found.get(name, 0.0) + reward
    return {name: found.get(name, math.nan) for name, _ in rewards} if found else {}


def _weighted(trajectory: Any, functions: Sequence[tuple[str, Any, float]]) -> Trajectory | None:
    """The episode with the trainer's weight applied to its components, or without untrained components."""
    if not isinstance(trajectory, Trajectory):
        return None
    weight = sum(weight for _, function, weight in functions if function is environment_reward)
    turns = [
        replace(turn, rewards={name: weight * value for name, value in turn.rewards.items()} if weight else {})
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))
