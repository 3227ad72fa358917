"""The solver: what it searches for, and how it walks through a register."""

from __future__ import annotations

import random

from heedful.envs.common import harmless
from heedful_envs.search_qa.encyclopaedia import Drawn
from heedful_envs.search_qa.questions import FiledQuestion


def searches_of_drawn(drawn: Drawn) -> list[str]:
    """The words that the solver searches for, turn by turn: perhaps a person, then the school."""
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


def searches_of(question: FiledQuestion) -> list[str]:
    """What the solver of a file's question searches for: the titles of the passages that hold the answer, if it can."""
    titles = [harmless(each.title) for each in question.gold_passages if harmless(each.title)]
    return list(dict.fromkeys(titles)) or [question.text]
