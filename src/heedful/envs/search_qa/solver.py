"""The solver of drawn questions: what it searches for, and how it walks through the register."""

from __future__ import annotations

import random

from heedful.envs.search_qa.encyclopaedia import Drawn


def searches_of(drawn: Drawn) -> list[str]:
    """The words that the solver searches for, turn by turn."""
    people = list(dict.fromkeys(each.person for each in drawn.asked)) if drawn.rules.people_passages else []
    return [*people[:1], drawn.school.name]


def walks_of(drawn: Drawn, imperfect: float, rng: random.Random) -> list[tuple[list[str], int]]:
    """The walk of each question and the number at its end, each step wrong with probability `imperfect`."""

    def step(person: str) -> str:
        if rng.random() < imperfect:
            return rng.choice([each for each in drawn.school.people if each != person])
        return drawn.school.teacher(person)

    walks = []
    for asked in drawn.asked:
        people = drawn.walk(asked, step)
        wrong = rng.random() < imperfect
        number = rng.randrange(drawn.rules.values) if wrong else drawn.school.number(people[-1])
        walks.append((people, number))
    return walks
