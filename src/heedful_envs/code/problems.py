"""What a programming problem is: a statement, and the tests that decide. Drawn ones ask for two list operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from heedful_envs.code.environment import Code

Form = Literal["script", "function", "checker"]


@dataclass(frozen=True, slots=True)
class Case:
    """One test. For a script both are texts. For a function they are the arguments and the value."""

    given: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. Only the statement and the first `shown` cases are ever told."""

    statement: str
    form: Form
    cases: tuple[Case, ...] = ()
    """Tests of a script or a function. A checker has none."""
    shown: int = 0
    """How many of the first cases an agent may see."""
    entry: str = ""
    """The function to write. Empty for a script."""
    starter: str = ""
    """Code that the statement begins with. A reply without the function is read as its continuation."""
    checker: str = ""
    """A program that defines `check(candidate)`."""
    solution: str = ""
    """A right program, where one is known."""
    wrapped: bool = False
    """The source may hold a value in a list of one, as TACO and APPS do. Both forms are accepted."""
    kind: str = ""
    """The problem's origin or difficulty, a tag of the task."""
    name: str = ""
    """What its file calls it."""

    @property
    def source(self) -> str:
        """What makes two rows the same problem: the statement, without its spacing."""
        return " ".join(self.statement.split())

    @property
    def tests(self) -> int:
        """How many tests decide. A checker counts as one."""
        return len(self.cases) or 1


Operation = Callable[[list[int]], list[int]]

OPERATIONS: Mapping[str, tuple[str, Operation]] = {
    "sort": ("sorted({})", sorted),
    "fall": ("sorted({})[::-1]", lambda x: sorted(x)[::-1]),
    "turn": ("{}[::-1]", lambda x: x[::-1]),
    "rest": ("{}[1:]", lambda x: x[1:]),
    "most": ("{}[:-1]", lambda x: x[:-1]),
    "next": ("[(v + 1) % 10 for v in {}]", lambda x: [(v + 1) % 10 for v in x]),
    "twice": ("[v * 2 % 10 for v in {}]", lambda x: [v * 2 % 10 for v in x]),
    "big": ("[v for v in {} if v > 4]", lambda x: [v for v in x if v > 4]),
    "even": ("[v for v in {} if v % 2 == 0]", lambda x: [v for v in x if v % 2 == 0]),
    "odd": ("[v for v in {} if v % 2]", lambda x: [v for v in x if v % 2]),
}
"""Name -> its Python expression, and the same as a function."""

NAMES = tuple(OPERATIONS)
_TRIES = 10_000


def expression(names: tuple[str, ...]) -> str:
    """The Python expression in `x` that carries out operations in this order."""
    text = "x"
    for name in names:
        text = OPERATIONS[name][0].format(text)
    return text


def apply(names: tuple[str, ...], values: list[int]) -> list[int]:
    """What the operations make of a list."""
    for name in names:
        values = OPERATIONS[name][1](values)
    return values


@dataclass(frozen=True, slots=True)
class DrawnProblem:
    """Operations, and lists that they were applied to. No shorter program explains the shown examples."""

    operations: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    shown: int

    @property
    def line(self) -> str:
        """The shown examples, in the terse form of prompts."""
        pairs = ((given, apply(self.operations, list(given))) for given in self.inputs[: self.shown])
        return " , ".join(f"{digits(given)} > {digits(made)}" for given, made in pairs)

    def explained_by(self, names: tuple[str, ...]) -> bool:
        """Whether another program makes the same of all shown examples."""
        shown = [list(given) for given in self.inputs[: self.shown]]
        return all(apply(names, given) == apply(self.operations, given) for given in shown)

    def problem(self, brief: bool) -> Problem:
        """The problem as any other: a function `f` and its tests."""
        cases = tuple(Case([list(given)], apply(self.operations, list(given))) for given in self.inputs)
        examples = "\n".join(f"f({case.given[0]}) == {case.expected}" for case in cases[: self.shown])
        return Problem(
            self.line if brief else examples,
            "function",
            cases,
            self.shown,
            "f",
            solution=expression(self.operations),
            kind=" ".join(self.operations),
        )


def digits(values: tuple[int, ...] | list[int]) -> str:
    """A list of digits as one word. `-` if it is empty."""
    return "".join(map(str, values)) or "-"


@lru_cache(maxsize=4096)
def draw(rules: Code, seed: int) -> DrawnProblem:
    """The problem of a seed. Raises ValueError if these knobs allow too few."""
    rng = random.Random(f"code:{seed}")
    for _ in range(_TRIES):
        names = tuple(rng.choice(rules.operations) for _ in range(rules.steps))
        count = rules.shown + rules.hidden
        inputs = tuple(tuple(rng.randrange(10) for _ in range(rules.digits)) for _ in range(count))
        drawn = DrawnProblem(names, inputs, rules.shown)
        if len(set(inputs)) == count and _needs_all(drawn, rules):
            return drawn
    raise ValueError(
        f"code: no problem was found in {_TRIES:,} tries. Allow more operations (--env.operations) or more digits."
    )


def _needs_all(drawn: DrawnProblem, rules: Code) -> bool:
    """Whether some shown result holds two digits at least, and no shorter program explains all shown examples."""
    shown = [list(each) for each in drawn.inputs[: drawn.shown]]
    results = [apply(drawn.operations, each) for each in shown]
    if min(map(len, results)) < 1 or max(map(len, results)) < 2:
        return False
    shorter = (names for steps in range(rules.steps) for names in product(rules.operations, repeat=steps))
    return not any(map(drawn.explained_by, shorter))
