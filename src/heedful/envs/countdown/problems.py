"""Countdown problems, each drawn together with a solution.

The solution is an expression over the numbers of the problem. The exact parser evaluates it to the target, and all its
steps are positive whole numbers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

OPERATIONS = ("+", "-", "*", "/")

_SUM, _PRODUCT, _NUMBER = 0, 1, 2
"""How tightly a term binds, loosest first. This decides about brackets."""


@dataclass(frozen=True, slots=True)
class Term:
    """An expression that was put together step by step."""

    text: str
    value: int
    strength: int = _NUMBER
    steps: tuple[str, ...] = ()
    """Each operation with its result, such as `3*5=15`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Numbers, a target, and a solution."""

    numbers: tuple[int, ...]
    """From the smallest to the largest."""
    target: int
    solution: Term

    @property
    def line(self) -> str:
        """The problem as the prompt shows it."""
        return f"{' '.join(map(str, self.numbers))} target {self.target}"


@dataclass(frozen=True, slots=True)
class Rules:
    """Which problems are drawn. See the knobs of `Countdown`."""

    least_numbers: int
    most_numbers: int
    smallest: int
    largest: int
    operations: tuple[str, ...]
    lowest_target: int
    highest_target: int
    largest_step: int


def combine(left: Term, operation: str, right: Term) -> Term | None:
    """One step. `None` if its result is no positive whole number."""
    if operation == "/" and (right.value == 0 or left.value % right.value):
        return None
    first, second = left.value, right.value
    value = {"+": first + second, "-": first - second, "*": first * second, "/": first // max(1, second)}[operation]
    if value <= 0:
        return None
    strength = _SUM if operation in "+-" else _PRODUCT
    loose_left = left.strength < strength
    # a-(b-c), a/(b*c) and a/(b/c) need their brackets; a+(b-c) and a*(b*c) do not.
    loose_right = right.strength < strength or (right.strength == strength and operation in "-/")
    loose_right |= operation == "*" and "/" in right.text and right.strength == strength
    texts = (f"({term.text})" if loose else term.text for term, loose in ((left, loose_left), (right, loose_right)))
    steps = (*left.steps, *right.steps, f"{first}{operation}{second}={value}")
    return Term(operation.join(texts), value, strength, steps)


def draw_term(numbers: Sequence[int], rules: Rules, rng: random.Random) -> Term:
    """A random expression over `numbers`, each used once.

    Each step is drawn from those that give a positive whole number of at most `largest_step`, the larger operand first.
    Should there be none, the expression ends earlier.
    """
    terms = [Term(str(number), number) for number in numbers]
    rng.shuffle(terms)
    while len(terms) > 1:
        possible = []
        for pair in itertools.combinations(range(len(terms)), 2):
            smaller, larger = sorted(pair, key=lambda place: terms[place].value)
            joined = [combine(terms[larger], operation, terms[smaller]) for operation in rules.operations]
            possible += [(pair, term) for term in joined if term is not None and term.value <= rules.largest_step]
        if not possible:
            break
        pair, term = rng.choice(possible)
        terms = [*(other for place, other in enumerate(terms) if place not in pair), term]
    return terms[-1]


@lru_cache(maxsize=4096)
def draw_problem(rules: Rules, seed: int, tries: int) -> Problem:
    """The problem of a seed: the first draw that keeps the rules.

    Raises ValueError, with what to change, if none of `tries` draws does.
    """
    rng = random.Random(f"countdown:{seed}")
    for _ in range(tries):
        count = rng.randint(rules.least_numbers, rules.most_numbers)
        numbers = tuple(sorted(rng.randint(rules.smallest, rules.largest) for _ in range(count)))
        term = draw_term(numbers, rules, rng)
        if len(term.steps) == count - 1 and rules.lowest_target <= term.value <= rules.highest_target:
            return Problem(numbers, term.value, term)
    raise ValueError(
        f"countdown: {tries:,} draws gave no problem with a target from {rules.lowest_target} to "
        f"{rules.highest_target} on numbers from {rules.smallest} to {rules.largest}. Widen the range of the target."
    )
