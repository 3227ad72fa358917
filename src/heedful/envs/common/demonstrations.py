"""What the demonstrations of all solvers share: how an episode is played, and the thoughts they write.

A template thought is fluent and varied, and depends only on the generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.envs.common.tools import in_form
from heedful.protocols import Episode
from heedful.types import Task

Played = TypeVar("Played", bound=Episode)

PLAN_SHOWN = 4
"""Moves of a plan that a thought spells out (more only if a turn may execute more)."""

_SUBJECTS = ("i must", "i should", "i will", "we should", "now i", "let me")
_LOOKS = ("scan the grid", "check the map", "look around", "study the board", "read the state", "think it over")
_LINKS = ("then", "and then", "and", "so i can", "before i")
_ACTS = ("move on", "go ahead", "take a step", "pick the path", "make my move", "walk to the end")
_MANNERS = ("with care", "quickly", "step by step", "in a good way", "without risk", "as planned")
_CLOSINGS = ("and stay safe", "to reach my aim", "and win", "to be done soon", "and avoid danger", "as best i can")


def template_thought(rng: random.Random) -> str:
    """A fluent sentence that says nothing about the state: one of 38,880."""
    slots = (_SUBJECTS, _LOOKS, _LINKS, _ACTS, _MANNERS, _CLOSINGS)
    return " ".join(rng.choice(slot) for slot in slots)


def choose_plan(
    best: Sequence[str], actions: Sequence[str], actions_per_turn: int, imperfect: float, rng: random.Random
) -> list[str]:
    """The moves that a thought states: the best plan's first, or with probability `imperfect` as many random ones."""
    shown = list(best[: max(PLAN_SHOWN, actions_per_turn)])
    if rng.random() < imperfect:
        return [rng.choice(actions) for _ in shown]
    return shown


def played_through(episode: Played, task: Task, reply: Callable[[Played], str]) -> list[tuple[str, str]]:
    """The (observation, reply) pairs of one episode, played as member 0 by a function that sees its inner state.

    `reply` writes plain replies. Where the environment wants tool calls they become calls.
    """
    observation = episode.start(task, member=0)
    pairs: list[tuple[str, str]] = []
    while True:
        pairs.append((observation.text, in_form(getattr(episode, "env", None), reply(episode))))
        step = episode.step(pairs[-1][1])
        if step.ending is not None:
            return pairs
        observation = step.observation
