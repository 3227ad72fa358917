"""What thoughts in English share: how a wording is chosen, how figures and names are joined, and thoughts on nothing.

Figures stay figures, so that a small model can copy them from the prompt. A wording never depends on whether the plan
is the solver's or a random one: nothing in it tells a right plan from a wrong one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.envs.common.demonstrations import template_thought
from heedful.envs.common.knobs import Thoughts

_OPENINGS = (
    "Let me think about this carefully.",
    "I want to look at this calmly.",
    "It helps to take a moment here.",
    "I should not rush this turn.",
    "This needs a little care.",
    "There is no need to hurry.",
    "I will go through this slowly.",
)
_LOOKS = (
    "I look at all that is shown",
    "I consider what I was told",
    "I compare the possible choices",
    "I recall what the task wants",
    "I check the details again",
    "I weigh what could go wrong",
)
_MANNERS = (
    "and keep the aim in mind.",
    "and try to stay patient.",
    "without losing sight of the aim.",
    "before I settle on anything.",
    "so that nothing is missed.",
    "as a careful player would.",
)
_TURNS = ("After that", "Then", "With this in mind", "Next", "In the end", "Once this is done")
_ACTS = (
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
    return phrase(rng, _OPENINGS, _LOOKS, _MANNERS, _TURNS, _ACTS, _HOPES)


def template_in(thoughts: Thoughts, rng: random.Random) -> str:
    """The thought of a `template` turn, terse or in English. `rng` moves on equally far."""
    words = wording(rng)
    terse = template_thought(rng)
    return english_template(words) if thoughts == "english" else terse
