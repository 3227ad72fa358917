"""The thoughts of demonstrations of Countdown, terse and in English."""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.envs.common.english import listed
from heedful.envs.countdown.problems import Problem, Term

_MOST_STEPS = 4
"""Steps of the two expressions that an English thought tells. With more of them it tells the last one alone."""


def terse_thought(terms: Sequence[Term], target: int) -> str:
    """Each expression step by step, its value and the target, and whether they are equal."""
    return " ".join(f"{' '.join(term.steps)} {target} {'yes' if term.value == target else 'no'}" for term in terms)


def english_thought(problem: Problem, terms: Sequence[Term], words: random.Random) -> str:
    """The numbers, the target and the answer's expression step by step (the last of `terms`).

    Where the last two expressions have few steps, the one before the answer's is told in place of the numbers.
    """
    told = terms[-2:] if sum(len(term.steps) for term in terms[-2:]) <= _MOST_STEPS else terms[-1:]
    numbers, target = listed(problem.numbers), problem.target
    short = (f"The target is {target}.", f"I want to reach {target}.", f"I look for {target}.")
    whole = (
        f"The numbers are {numbers}, and the target is {target}.",
        f"I have {numbers} and want to reach {target}.",
        f"The target is {target}, and I may use {numbers}.",
        f"I look for {target} with the numbers {numbers}.",
    )
    said = [words.choice(short if len(told) > 1 else whole)]
    joint = words.choice((", ", " and ", ", then "))
    for later, term in enumerate(told):
        openings = ("Next", "Another way:", "Instead,", "Now") if later else ("I try", "I compute", "I take")
        value = term.value
        found = (f"and {value} is the target.", f"which is the target {value}.", f"and {value} is reached.")
        missed = (f"but {value} is not {target}.", f"which is not {target}.", f"and {value} misses {target}.")
        steps = joint.join(term.steps or (term.text,))
        said.append(f"{words.choice(openings)} {steps}, {words.choice(found if value == target else missed)}")
    if len(told) == 1:
        said.append(words.choice(("I answer with this.", "This is my answer.", "I write this as my answer.")))
    return " ".join(said)
