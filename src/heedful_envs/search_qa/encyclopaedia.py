"""Drawn questions: a small encyclopaedia of schools, made anew for every task, so that nothing can be learned by heart.

A school has people. Each is taught by another one of the school, and holds a number. A question names a person and
asks for the number at the end of one to three links. The register of the school is one passage, and has all of it.
Registers of other schools distract. Where people have passages of their own, the school has to be found first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from heedful_envs.search_qa.passages import Passage, PassageIndex, index_of

if TYPE_CHECKING:
    from heedful_envs.search_qa.environment import SearchQA

Names = Literal["letters", "words"]
Thought = Literal["walk", "scan"]

_TREES = "elm oak ash fir yew bay fig box nut plum pear pine teak palm lime rose"
SCHOOLS = tuple(_TREES.split())
_FIRST_NAMES = (
    "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jon Kim Leo Mia Ned Ola Pia Quin Ray Sue Tom Una Vic Wes Xia Yan Zoe "
    "Abe Bea Cid Dot Eli Fay Gil Hope Ivo Jack Kai Liv Max Nora Otto Paul Ruth Sam Tess Ulf Vera Will Xena Yuri Zack "
    "Alma Bert Cora Dirk Edna Fred Gina Hugo Iris Joel Kurt Lena Mark Nina Oleg Rita Sven Tara Uma"
)
NAMES: dict[str, tuple[str, ...]] = {
    "letters": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "words": tuple(_FIRST_NAMES.split()),
}

MOST_HOPS = 3


@dataclass(frozen=True, slots=True)
class School:
    """The teacher and the number of each person, both in the order of the register."""

    name: str
    teachers: Mapping[str, str]
    numbers: Mapping[str, int]

    def register(self, brief: bool) -> str:
        """The text of its passage."""
        if brief:
            links = " , ".join(f"{person} > {teacher}" for person, teacher in self.teachers.items())
            numbers = " , ".join(f"{person} = {number}" for person, number in self.numbers.items())
            return f"{links} ; {numbers}"
        links = "".join(f" {person} is taught by {teacher}." for person, teacher in self.teachers.items())
        numbers = "".join(f" {person} has {number} medals." for person, number in self.numbers.items())
        return f"This is the register of the school {self.name}.{links}{numbers}"


@dataclass(frozen=True, slots=True)
class Drawn:
    """An encyclopaedia, and a question about one of its schools: a person's teacher's teacher's number."""

    rules: SearchQA
    """The knobs that it was drawn with."""
    schools: tuple[School, ...]
    """In the order of their passages."""
    school: School
    """The one that is asked about."""
    person: str
    hops: int

    @property
    def gold(self) -> str:
        """The right answer."""
        return str(self.walk(0.0, random.Random())[1])

    @property
    def searches(self) -> list[str]:
        """The words that the solver searches for, turn by turn: perhaps the person, then the school."""
        return [*([self.person] if self.rules.people_passages else []), self.school.name]

    def walk(self, imperfect: float, rng: random.Random) -> tuple[list[str], int]:
        """The people on the way and the number at its end, each step wrong with probability `imperfect`."""
        people = [self.person]
        for _ in range(self.hops):
            if rng.random() < imperfect:
                people.append(rng.choice([each for each in self.school.teachers if each != people[-1]]))
            else:
                people.append(self.school.teachers[people[-1]])
        wrong = rng.random() < imperfect
        return people, rng.randrange(self.rules.values) if wrong else self.school.numbers[people[-1]]

    def question(self, brief: bool) -> str:
        """What the agent is asked."""
        where = "" if self.rules.people_passages else self.school.name
        if brief:
            row = " > ".join([self.person, *"_" * self.hops]) + " = _"
            return f"{where} : {row}" if where else row
        about = f"This is about the school {where}. " if where else ""
        return f"{about}How many medals has {'the teacher of ' * self.hops}{self.person}?"

    def thought(self, people: list[str], number: int) -> str:
        """A walk as the demonstrations write it."""
        if self.rules.thought == "walk":
            return f"{' > '.join(people)} = {number}"
        return f"{self.school.name} : {self._scan(people, number)}"

    def _scan(self, people: list[str], number: int) -> str:
        """The same walk, each step as the whole register: for every entry its value, its key, the person looked for,
        and what has been found so far (`-`: nothing). So each word follows from words at fixed distances, in the
        register or in the thought, and no key has to be found by its content. Key and person are next to each other,
        because a small model learns to compare only there."""
        entries = []
        for place, (person, value) in enumerate(zip(people, [*people[1:], number], strict=True), 1):
            rows: Mapping[str, object] = self.school.teachers if place < len(people) else self.school.numbers
            found = "-"
            for key, held in rows.items():
                found = str(value) if key == person else found
                entries.append(f"{held} {key} {person} {found}")
        return " ".join(entries)

    def passages(self, brief: bool) -> list[Passage]:
        """All that can be found. Everything is in the order in which it was drawn."""
        found = [(school.name, school.register(brief)) for school in self.schools]
        if self.rules.people_passages:
            for school in self.schools:
                told = "of {1}" if brief else "{0} went to the school {1}."
                found += [(person, told.format(person, school.name)) for person in school.teachers]
        return [Passage(str(place), title, text) for place, (title, text) in enumerate(found)]

    @property
    def line(self) -> str:
        """All that makes this start state, in one form."""
        passages = (f"{each.title} : {each.text}" for each in self.passages(True))
        return "\n".join([*passages, self.school.name, self.question(True)])


@lru_cache(maxsize=4096)
def draw(rules: SearchQA, seed: int) -> Drawn:
    """The encyclopaedia and the question of a seed."""
    rng = random.Random(f"search_qa:{seed}")
    names = list(NAMES[rules.names])
    rng.shuffle(names)
    schools = []
    for name in rng.sample(SCHOOLS, 1 + rules.distractors):
        count = rng.randint(rules.least_people, rules.most_people)
        people, names = names[:count], names[count:]
        schools.append(_school(name, people, rules.values, rng))
    about, hops = schools[0], rng.randint(rules.least_hops, rules.most_hops)
    person = rng.choice(list(about.teachers))
    rng.shuffle(schools)
    return Drawn(rules, tuple(schools), about, person, hops)


def _school(name: str, people: list[str], values: int, rng: random.Random) -> School:
    """People who are taught in one circle, so that no walk of fewer steps than people comes back to its start."""
    teachers = {person: people[(place + 1) % len(people)] for place, person in enumerate(people)}
    first, second = (rng.sample(people, len(people)) for _ in range(2))
    number = {person: rng.randrange(values) for person in people}
    return School(name, {person: teachers[person] for person in first}, {person: number[person] for person in second})


@lru_cache(maxsize=256)
def drawn_index(rules: SearchQA, seed: int, brief: bool) -> PassageIndex:
    """The index of a drawn encyclopaedia."""
    return index_of(draw(rules, seed).passages(brief))
