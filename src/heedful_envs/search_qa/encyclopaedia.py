"""Drawn questions: a small encyclopaedia of schools, made anew for every task, so that nothing can be learned by heart.

A school has people. Each is taught by another one of the school, and holds a number. A question names a person and
asks for the number at the end of one to three links. The register of the school is one passage, and has all of it.
Registers of other schools distract. Where people have passages of their own, the school has to be found first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from heedful_envs.search_qa.retrieval import Passage, SmallIndex

if TYPE_CHECKING:
    from heedful_envs.search_qa.environment import SearchQA

Names = Literal["letters", "words"]
Register = Literal["links", "lines"]
Thought = Literal["walk", "scan"]

_TREES = "elm oak ash fir yew bay fig box nut plum pear pine teak palm lime rose"
SCHOOLS = tuple(_TREES.split())
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FIRST_NAMES = (
    "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jon Kim Leo Mia Ned Ola Pia Quin Ray Sue Tom Una Vic Wes Xia Yan Zoe "
    "Abe Bea Cid Dot Eli Fay Gil Hope Ivo Jack Kai Liv Max Nora Otto Paul Ruth Sam Tess Ulf Vera Will Xena Yuri Zack "
    "Alma Bert Cora Dirk Edna Fred Gina Hugo Iris Joel Kurt Lena Mark Nina Oleg Rita Sven Tara Uma"
)
WORDS = tuple(_FIRST_NAMES.split())
NAMES: dict[str, tuple[str, ...]] = {"letters": LETTERS, "words": WORDS}

MOST_HOPS = 3


@dataclass(frozen=True, slots=True)
class School:
    """Its people in the order of its register, with the teacher and the number of each."""

    name: str
    links: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, int], ...]
    neighbour: str = ""
    """Another school that its register names. Empty = none."""

    def teacher(self, person: str) -> str:
        return dict(self.links)[person]

    def number(self, person: str) -> int:
        return dict(self.numbers)[person]

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(person for person, _ in self.links)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: whose teacher's teacher's number."""

    person: str
    hops: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """An encyclopaedia and what is asked about its first school."""

    rules: SearchQA
    """The knobs that it was drawn with."""
    schools: tuple[School, ...]
    """In the order of their passages. `about` is the place of the school that is asked about."""
    about: int
    asked: tuple[Asked, ...]
    notes: tuple[tuple[str, int], ...]
    """Passages that only mention a school: its name and a number."""

    @property
    def school(self) -> School:
        return self.schools[self.about]

    @property
    def gold(self) -> str:
        """The right answer: the numbers that were asked for."""
        return " ".join(str(self.school.number(self.walk(each)[-1])) for each in self.asked)

    def walk(self, asked: Asked, step: Callable[[str], str] | None = None) -> list[str]:
        """The people from the one named to the one whose number is wanted. `step`: in place of the right link."""
        people = [asked.person]
        for _ in range(asked.hops):
            people.append((step or self.school.teacher)(people[-1]))
        return people

    def question(self, brief: bool) -> str:
        """What the agent is asked."""
        where = "" if self.rules.people_passages else self.school.name
        if brief:
            rows = " , ".join(" > ".join([each.person, *"_" * each.hops]) + " = _" for each in self.asked)
            return f"{where} : {rows}" if where else rows
        sentences = [f"How many medals has {'the teacher of ' * each.hops}{each.person}?" for each in self.asked]
        more = " Answer with the numbers in this order, separated by blanks." if len(self.asked) > 1 else ""
        return (f"This is about the school {where}. " if where else "") + " ".join(sentences) + more

    def thought(self, walks: Sequence[tuple[list[str], int]]) -> str:
        """Walks through the register and the numbers at their ends, as the demonstrations write them."""
        if self.rules.register == "links":
            return " , ".join(f"{' > '.join(people)} = {number}" for people, number in walks)
        entries = []
        for people, number in walks:
            entries += [f"{one} {next_one}" for one, next_one in itertools.pairwise(people)]
            entries.append(f"{people[-1].lower()} {number}")
        return "\n".join(entries)

    def scan(self, walks: Sequence[tuple[list[str], int]]) -> str:
        """The same walks, each step as the whole register: for every entry its value, its key, the person looked for,
        and what has been found so far (`-`: nothing). So each word follows from words at fixed distances, in the
        register or in the thought, and no key has to be found by its content. Key and person are next to each other,
        because a small model learns to compare only there."""
        entries = []
        for people, number in walks:
            for place, (person, value) in enumerate(zip(people, [*people[1:], number], strict=True), 1):
                found = "-"
                for key, held in self.school.links if place < len(people) else self.school.numbers:
                    found = str(value) if key == person else found
                    entries.append(f"{held} {key} {person} {found}")
        return f"{self.school.name} : {' '.join(entries)}"

    def passages(self, brief: bool) -> list[Passage]:
        """All that can be found. Everything is in the order in which it was drawn."""
        found = [self._register(school, brief) for school in self.schools]
        if self.rules.people_passages:
            for school in self.schools:
                found += [_person(person, school.name, brief) for person in school.people]
        found += [_note(name, number, brief) for name, number in self.notes]
        return [Passage(str(place), title, text) for place, (title, text) in enumerate(found)]

    def _register(self, school: School, brief: bool) -> tuple[str, str]:
        near = school.neighbour
        if not brief:
            links = "".join(f" {person} is taught by {teacher}." for person, teacher in school.links)
            numbers = "".join(f" {person} has {number} medals." for person, number in school.numbers)
            beside = f" The school {near} is near." if near else ""
            return school.name, f"This is the register of the school {school.name}.{links}{numbers}{beside}"
        if self.rules.register == "links":
            parts = [
                " , ".join(f"{person} > {teacher}" for person, teacher in school.links),
                " , ".join(f"{person} = {number}" for person, number in school.numbers),
            ]
            return school.name, " ; ".join([*parts, f"near {near}"] if near else parts)
        lines = [f"{person} {teacher}" for person, teacher in school.links]
        lines += [f"{person.lower()} {number}" for person, number in school.numbers]
        return school.name, "\n".join(["", *lines, *([f"near {near}"] if near else [])])

    @property
    def line(self) -> str:
        """All that makes this start state, in one form."""
        passages = (f"{each.title} : {each.text}" for each in self.passages(True))
        return "\n".join([*passages, self.school.name, self.question(True)])


def _person(person: str, school: str, brief: bool) -> tuple[str, str]:
    return person, f"of {school}" if brief else f"{person} went to the school {school}."


def _note(school: str, number: int, brief: bool) -> tuple[str, str]:
    return "note", f"{school} {number}" if brief else f"The school {school} had {number} visitors today."


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
        schools.append(_school(name, people, rules, rng))
    if rules.neighbours:
        around = [*schools[1:], schools[0]]
        schools = [replace(each, neighbour=other.name) for each, other in zip(schools, around, strict=True)]
    about = schools[0]
    hops = [rng.randint(rules.least_hops, rules.most_hops) for _ in range(rules.asked)]
    asked = tuple(
        Asked(person, count) for person, count in zip(rng.sample(about.people, rules.asked), hops, strict=True)
    )
    rng.shuffle(schools)
    notes = tuple((each.name, rng.randrange(rules.values)) for each in schools for _ in range(rules.notes))
    return Drawn(rules, tuple(schools), schools.index(about), asked, notes)


def _school(name: str, people: list[str], rules: SearchQA, rng: random.Random) -> School:
    """People who are taught in one circle, so that no walk of fewer steps than people comes back to its start."""
    teachers = {person: people[(place + 1) % len(people)] for place, person in enumerate(people)}
    first, second = (rng.sample(people, len(people)) for _ in range(2))
    if rules.sorted_register:
        first = second = sorted(people)
    number = {person: rng.randrange(rules.values) for person in people}
    return School(
        name,
        tuple((person, teachers[person]) for person in first),
        tuple((person, number[person]) for person in second),
    )


@lru_cache(maxsize=256)
def index_of(rules: SearchQA, seed: int, brief: bool) -> SmallIndex:
    """The index of a drawn encyclopaedia."""
    return SmallIndex(draw(rules, seed).passages(brief))
