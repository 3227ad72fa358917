"""The thoughts of demonstrations: programs tried on the first shown example, until one explains it.

`tried` writes one program of any choice. `searched` goes through all programs of two operations in a fixed order. There
the value between the two operations is written once. The wanted digit is next to each digit of a result, and a result
ends at the first digit that differs. So each token follows from a few others, and a small model can learn the search.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product, zip_longest

from heedful_envs.code.problems import DrawnProblem, apply, digits


def tried(drawn: DrawnProblem, names: tuple[str, ...]) -> str:
    """One try on the first example: the list after each operation, and whether the result is the wanted one."""
    given = list(drawn.inputs[0])
    steps = [f"{name} {digits(apply(names[: count + 1], given))}" for count, name in enumerate(names)]
    right = apply(names, given) == apply(drawn.operations, given)
    return f"{digits(given)} {' '.join(steps)} {'yes' if right else 'no'}"


def searched(
    drawn: DrawnProblem, operations: Sequence[str], imperfect: float, rng: random.Random
) -> tuple[str, tuple[str, ...]]:
    """A search through the programs of two operations, and the program that it ends with.

    That is the first program that explains all shown examples. With probability `imperfect` the search gives up at
    random before it, and ends with a program that it has just found wrong.
    """
    programs = list(product(operations, repeat=2))
    end = next(place for place, names in enumerate(programs) if drawn.explained_by(names))
    if rng.random() < imperfect:
        end = rng.randrange(end) if end else rng.randrange(len(programs))
    given = list(drawn.inputs[0])
    wanted = apply(drawn.operations, given)
    parts = [f"want {digits(wanted)}"]
    for place, names in enumerate(programs[: end + 1]):
        between = apply(names[:1], given)
        if place % len(operations) == 0:
            parts.append(f": {digits(given)} {names[0]} = {digits(between)} :")
        verdict = "yes" if drawn.explained_by(names) else "no"
        parts.append(f"{names[1]} {_compared(apply(names[1:], between), wanted)} {verdict}")
    return " ".join(parts), programs[end]


def _compared(made: list[int], wanted: list[int]) -> str:
    """Each digit of `made` with the wanted one next to it, up to the first pair that differs. `-` stands for an end."""
    pairs = []
    for one, other in zip_longest(map(str, made), map(str, wanted), fillvalue="-"):
        pairs.append(f"{one}{other}")
        if one != other:
            break
    return " ".join(pairs) or "--"
