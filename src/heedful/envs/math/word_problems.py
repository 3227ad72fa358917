"""Word problems drawn from a seed, each with its worked solution: what the environment `math` plays without a file.

Every number, in the text and in the solution, is whole and between 1 and `largest`. The `source` of a problem names
kind, operations and numbers but no wording, so a retelling belongs to the same split.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.envs.math.word_stories import ITEMS, NAMES, PLANTS, STORIES, THINGS, Move, Operation, Story

KINDS = tuple(story.kind for story in STORIES)

LEAST_LARGEST = 12
"""Below this, too few products and quotients are left to draw from."""

MOST_STEPS = 6

SMALLEST = 2
"""Smallest number in a text or a solution: plurals are then right, and no factor is 1."""

_STORY = {story.kind: story for story in STORIES}
_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """One line of a solution: `left sign right = result`."""

    left: int
    sign: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}={self.result}"


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A problem, and how it is solved."""

    kind: str
    question: str
    steps: tuple[WorkedStep, ...]
    source: str
    """What a retelling shares with it: the kind, and the operations with their numbers."""

    @property
    def answer(self) -> int:
        return self.steps[-1].result

    def worked(self, imperfect: float, largest: int, rng: random.Random) -> tuple[WorkedStep, ...]:
        """The steps of a solution. With chance `imperfect` a step's result is a random number.

        The steps after such a one go on with it, as after a real mistake: wrong, and sometimes right by luck.
        """
        steps: list[WorkedStep] = []
        right = so_far = 0
        for step in self.steps:
            left, other, result = step.left, step.right, step.result
            if steps:
                left, other = (so_far, other) if left == right else (left, so_far)
                result = _apply(left, step.sign, other)
            if rng.random() < imperfect:
                result = rng.randint(1, largest)
            steps.append(WorkedStep(left, step.sign, other, result))
            right, so_far = step.result, result
        return tuple(steps)


def longest_story(kinds: Sequence[str]) -> int:
    """Most steps that a problem of these kinds can have."""
    return max(MOST_STEPS if _STORY[kind].events else 1 + bool(_STORY[kind].ends) for kind in kinds)


def draw_problem(rng: random.Random, kinds: Sequence[str], least: int, most: int, largest: int) -> WordProblem:
    """A problem of one of `kinds` with `least` to `most` steps (drawn uniformly) and numbers up to `largest`.

    Drawn again where a story has no room left below `largest`. Raises ValueError if no story has.
    """
    for _ in range(_TRIES):
        steps = rng.randint(least, most)
        story = _STORY[rng.choice(kinds)]
        if steps > longest_story([story.kind]):
            continue
        told = _Teller(story, rng, largest).tell(steps)
        if told is not None:
            return told
    raise ValueError(
        f"math: no word problem of {least} to {most} steps with numbers up to {largest} was found among the kinds "
        f"{', '.join(kinds)}. Raise largest, lower least, or name more kinds."
    )


class _Teller:
    """Tells one problem: the sentences, the numbers in them, and the steps that solve it."""

    def __init__(self, story: Story, rng: random.Random, largest: int) -> None:
        self._story = story
        self._rng = rng
        self._largest = largest
        people = rng.sample(NAMES, 2 + MOST_STEPS)
        pronoun = people[0][1]
        self._people = [name for name, _ in people]
        self._words = {
            "name": self._people[0],
            "other": self._people[1],
            "they": pronoun,
            "They": pronoun.capitalize(),
            "things": rng.choice(THINGS),
            "item": rng.choice(ITEMS),
            "plants": rng.choice(PLANTS),
        }
        self._last = 1
        self._sentences: list[str] = []
        self._steps: list[WorkedStep] = []

    def tell(self, steps: int) -> WordProblem | None:
        """A problem with this number of steps. `None` if the numbers leave no room for one."""
        story, rng = self._story, self._rng
        ends = story.ends if steps > 1 and (not story.events or rng.random() < 0.5) else ()
        if not self._open():
            return None
        for _ in range(steps - 1 - bool(ends)):
            if not self._go_on(story.events):
                return None
        if ends:
            if not self._go_on(ends):
                return None
        else:
            self._say(rng.choice(story.questions))
        source = " ".join([story.kind, *map(str, self._steps)])
        return WordProblem(story.kind, " ".join(self._sentences), tuple(self._steps), source)

    def _open(self) -> bool:
        """The first step. A quotient is drawn as divisor and result, so that it is whole."""
        move = self._rng.choice(self._story.openings)
        sign = move.operation
        highest = self._largest // 2 if sign in "*/" else self._largest
        if highest < SMALLEST:
            return False
        left = self._rng.randint(SMALLEST, highest)
        room = self._room("*" if sign == "/" else sign, left)
        if not room:
            return False
        right = self._rng.choice(room)
        if sign == "/":
            left, right = left * right, left
        self._steps.append(WorkedStep(left, sign, right, _apply(left, sign, right)))
        self._say(self._rng.choice(move.wordings), a=left, b=right)
        return True

    def _go_on(self, moves: Sequence[Move]) -> bool:
        """One more step: a move that has room for a number, the number, and the sentence."""
        so_far = self._steps[-1].result
        possible = [(move, room) for move in moves if (room := self._room(move.operation, so_far))]
        if not possible:
            return False
        move, room = self._rng.choice(possible)
        number = self._rng.choice(room)
        match move.operation:
            case "from":
                step = WorkedStep(number, "-", so_far, number - so_far)
            case "with-first":
                step = WorkedStep(so_far, "+", number, so_far + number)
            case sign:
                step = WorkedStep(so_far, sign, number, _apply(so_far, sign, number))
        self._steps.append(step)
        self._say(self._rng.choice(move.wordings), n=number)
        return True

    def _room(self, operation: Operation, so_far: int) -> Sequence[int]:
        """The numbers with which the operation stays within the limits."""
        largest = self._largest
        match operation:
            case "+":
                return range(SMALLEST, largest - so_far + 1)
            case "-":
                return range(SMALLEST, so_far - SMALLEST + 1)
            case "*":
                return range(SMALLEST, largest // so_far + 1)
            case "/":
                return [number for number in range(SMALLEST, so_far // SMALLEST + 1) if so_far % number == 0]
            case "from":
                return range(so_far + 1, largest + 1)
            case "with-first":
                first = self._steps[0].left
                return [first] if so_far + first <= largest else []

    def _say(self, wording: str, **numbers: int) -> None:
        words = self._words | {"last": self._people[self._last], "next": self._people[self._last + 1]}
        self._sentences.append(wording.format(**words, **numbers))
        self._last += "{next}" in wording


def _apply(left: int, sign: str, right: int) -> int:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left // right  # exact in a solution; whoever divides a wrong number drops the rest
