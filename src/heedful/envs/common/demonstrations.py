"""What the demonstrations of all solvers share: how an episode is played, and the thoughts they write.

A template thought is fluent and varied, and depends only on the generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.envs.common.base import Thoughts
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


_OPENINGS = (
    "Let me think about this carefully.",
    "I want to look at this calmly.",
    "It helps to take a moment here.",
    "I should not rush this turn.",
    "This needs a little care.",
    "There is no need to hurry.",
    "I will go through this slowly.",
)
_ENGLISH_LOOKS = (
    "I look at all that is shown",
    "I consider what I was told",
    "I compare the possible choices",
    "I recall what the task wants",
    "I check the details again",
    "I weigh what could go wrong",
)
_ENGLISH_MANNERS = (
    "and keep the aim in mind.",
    "and try to stay patient.",
    "without losing sight of the aim.",
    "before I settle on anything.",
    "so that nothing is missed.",
    "as a careful player would.",
)
_TURNS = ("After that", "Then", "With this in mind", "Next", "In the end", "Once this is done")
_ENGLISH_ACTS = (
    "I make the choice that seems best",
    "I follow the plan I trust most",
    "I act on what I have seen",
    "I do what makes the most sense",
    "I pick what looks safe to me",
    "I answer as well as I can",
)
_HOPES = (
    "and expect it to work.",
    "and see where it leads.",
    "and stay with that decision.",
    "so that the task gets done.",
    "to come closer to success.",
    "and learn from the result.",
)


def wording(rng: random.Random) -> random.Random:
    """A generator for the words of one thought. It depends on the state of `rng`, which does not move on.

    So a demonstration makes the same random choices, and gives the same answers, however its thoughts are written.
    """
    ahead = random.Random(0)
    ahead.setstate(rng.getstate())
    return random.Random(f"english:{ahead.getrandbits(64)}")


def phrase(words: random.Random, *slots: Sequence[str]) -> str:
    """One text of each slot, with spaces between them."""
    return " ".join(words.choice(slot) for slot in slots)


def listed(things: Sequence[object]) -> str:
    """`84`, `84 and 98`, or `84, 84 and 98`."""
    *others, last = map(str, things)
    return f"{', '.join(others)} and {last}" if others else last


def sentence(text: str) -> str:
    """`text` with a capital at its begin."""
    return text[:1].upper() + text[1:]


def english_template(rng: random.Random) -> str:
    """A fluent English thought that says nothing about the state: one of 54,432, of 23 to 40 words."""
    return phrase(rng, _OPENINGS, _ENGLISH_LOOKS, _ENGLISH_MANNERS, _TURNS, _ENGLISH_ACTS, _HOPES)


def template_in(thoughts: Thoughts, rng: random.Random) -> str:
    """The thought of a `template` turn, terse or in English. `rng` moves on equally far."""
    words = wording(rng)
    terse = template_thought(rng)
    return english_template(words) if thoughts == "english" else terse
