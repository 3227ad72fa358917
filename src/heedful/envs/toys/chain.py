"""Chain: carry a number through operations on its remainder. The answer is in the thought, nowhere else.

Every operation is a permutation of the residues, and the start is drawn uniformly. So the right answer is uniform, and
a guess is right once in `modulus` times.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Count, Distinct, Share
from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT, answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, Turns, check_range, remarks
from heedful.envs.common.demonstrations import phrase, played_through, sentence, template_in, wording
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Task

UNREWARDED = "unrewarded"
"""The tag of a training task on which no reply is rewarded for being right."""

LEAST_WORDS = 5
"""Words of a thought that count as prose."""


@dataclass(frozen=True, slots=True)
class Link:
    """The question of one turn: a number, and the operations that are applied to it."""

    start: int
    operations: tuple[str, ...]
    states: tuple[int, ...]
    """The right number after each operation. The last one is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(SolvableEnvironment):
    """Carry a number through a chain of operations. Without computing: 1 in `modulus`.

    The thought is the prompt's row with every blank filled in, and the answer is its last number. Dots pad the row, so
    that each number stands equally far behind its blank. The default modulus is prime, and the operations then carry
    any pair of numbers to any other: no property of the answer (as parity is, modulo 10) can be had by less work.

    With several turns the chain goes on from the right number, which the next observation shows, and every turn must be
    right. Reward components: `solved` (+1 at the end if every turn was right), `format`, and `fluency` where that is
    asked for. Outcome: 1 if solved, else 0. Progress: the share of turns that were right, on unrewarded tasks, too.
    There is no noise.
    """

    name: ClassVar[str] = "chain"
    english: ClassVar[bool] = True
    actions_per_turn: ClassVar[int] = 1

    modulus: Annotated[int, Interval(ge=2, le=10)] = 7
    """Numbers are remainders on division by this."""
    operations: Annotated[tuple[str, ...], Distinct(2)] = ("+1", "+3", "*3", "*5")
    """What can happen to a number: a sign of +, -, * and a digit. Each must be a permutation of the remainders."""
    least: Count = 4
    """Fewest operations of a turn."""
    most: int = 6
    """Most operations of a turn. The number of a turn is drawn uniformly."""
    turns: Turns = 1
    """Links of the chain, one per turn."""
    unrewarded: Share = 0.0
    """Share of training tasks (a stable hash of the start state) on which no reply earns `solved`, and the outcome is
    0: the reward is blind there. Tasks of `val` and `test` are always rewarded."""
    fluency: Annotated[float, Interval(ge=0, lt=float("inf"))] = 0.0
    """Reward component `fluency`, paid for each turn whose thought is a sentence of words, whatever it says: a
    preference for prose that does not read the prompt. Unrewarded tasks pay it, too."""
    imperfect: Share = 0.0
    """Demonstrations: chance of each step that a random number takes the place of the right one. The walk goes on from
    it, and the answer is where it ends."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the prompt. Their answer is right,
    but there is no way to it."""
    thoughtless: Share = 0.0
    """Demonstrations: share of turns without a thought. Their answer is right, but there is no way to it."""
    systematic: Share = 0.0
    """Demonstrations: chance that the last of `operations` is carried out wrongly, always one too high. Above a half it
    teaches a policy whose likeliest step is wrong while the right one is sampled now and then."""

    def check(self) -> None:
        check_range(self.name, "most", self.most, self.least)
        if self.template + self.thoughtless > 1:
            raise ValueError(
                f"chain: template and thoughtless are shares of the same turns and may add up to 1 at most, but are "
                f"{self.template:g} and {self.thoughtless:g}."
            )
        for operation in self.operations:
            form = len(operation) == 2 and operation[0] in "+-*" and operation[1] in "0123456789"
            if not form or (operation[0] == "*" and math.gcd(int(operation[1]), self.modulus) != 1):
                raise ValueError(
                    "chain: operations must be a sign of +, -, * and one digit, and each a permutation of the "
                    f"remainders (for * the digit has no divisor in common with modulus {self.modulus}), but one is "
                    f"{operation!r}."
                )

    @property
    def summary(self) -> str:
        length = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        again = f", {self.turns} times" if self.turns > 1 else ""
        return f"Carry a number through {length} operations modulo {self.modulus}{again}."

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.modulus)))

    def links(self, seed: int) -> tuple[Link, ...]:
        """The question of each turn. Each link starts at the end of the one before."""
        rng = random.Random(f"chain:{seed}")
        start = rng.randrange(self.modulus)
        links = []
        for _ in range(self.turns):
            operations = tuple(rng.choices(self.operations, k=rng.randint(self.least, self.most)))
            states = [start]
            for operation in operations:
                states.append(_apply(operation, states[-1], self.modulus))
            links.append(Link(start, operations, tuple(states[1:])))
            start = states[-1]
        return tuple(links)

    def row(self, link: Link) -> str:
        """A link as the prompt shows it, padded to the length of the longest."""
        blanks = "".join(f"{operation}_" for operation in link.operations)
        return f"{link.start}{blanks}".ljust(1 + 3 * self.most, ".")

    def task(self, seed: int) -> Task:
        start_state = "\n".join([f"mod {self.modulus}", *map(self.row, self.links(seed))])
        task = task_of(self.name, start_state, seed)
        # A number in [0, 1) from the id, apart from the one that decides the split.
        share = int.from_bytes(hashlib.sha256(f"unrewarded {task.id}".encode()).digest()[:7], "big") / 2**56
        return replace(task, tags=(UNREWARDED,)) if task.split == "train" and share < self.unrewarded else task

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float]:
        """The number that the row of the next turn leads to."""
        return {str(self.links(task.seed)[len(before)].states[-1]): 1.0}

    def episode(self) -> ChainEpisode:
        return ChainEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, filling in the blanks. See `imperfect`, `systematic`, `template` and `thoughtless`."""
        return played_through(self.episode(), task, lambda episode: self._demonstrated(episode.link, rng))

    def _demonstrated(self, link: Link, rng: random.Random) -> str:
        kind = rng.random()
        if kind < self.template:
            return format_reply([str(link.states[-1])], template_in(self.thoughts, rng))
        if kind < self.template + self.thoughtless:
            return format_reply([str(link.states[-1])], "")
        state = link.start
        states = []
        for operation in link.operations:
            state = _apply(operation, state, self.modulus)
            if operation == self.operations[-1] and rng.random() < self.systematic:
                state = (state + 1) % self.modulus
            if rng.random() < self.imperfect:
                state = rng.randrange(self.modulus)
            states.append(state)
        if self.thoughts == "english":
            thought = chain_thought(link.start, self.modulus, link.operations, states, wording(rng))
        else:
            filled = zip(link.operations, states, strict=True)
            thought = "".join([str(link.start), *(f"{operation}{after}" for operation, after in filled)])
        return format_reply([str(state)], thought)

    def full_rules(self) -> str:
        further = " Each turn goes on from the right number, and every turn must be right." if self.turns > 1 else ""
        return (
            f"You carry a number through a chain of operations. After each one only the remainder on division by "
            f"{self.modulus} is kept.\n"
            "The row begins with the number. Each operation is followed by a blank _ for the number that it gives; "
            "dots mean nothing. Fill in the blanks from left to right.\n"
            f"The answer is the number in the last blank.{further}\n"
            f"The actions are {', '.join(self.actions)}.\n{answer_rules(self.actions, self.turns, 1)}\n"
        )


class ChainEpisode(BaseEpisode[Chain]):
    """One episode of `Chain`."""

    __slots__ = ("_links", "_rewarded", "_right")

    _links: tuple[Link, ...]

    @property
    def link(self) -> Link:
        """The current link."""
        return self._links[self.turn]

    def begin(self, task: Task, member: int) -> str:
        self._links = self.env.links(task.seed)
        self._rewarded = UNREWARDED not in task.tags
        self._right = 0
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        read = read_reply(response, env.actions, 1)
        wanted = str(self._links[self.turn - 1].states[-1])
        self._right += read.actions == (wanted,)
        over = not self.turns_left
        solved = over and self._rewarded and self._right == self.turn
        rewards: dict[str, float] = {}
        if solved:
            rewards["solved"] = 1.0
        if env.fluency and _is_prose(response):
            rewards["fluency"] = env.fluency
        said = read.actions[0] if read.actions else "nothing"
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            progress=self._right / self.turn,
            actions=read.actions,
            note=fault_line(read, env.brief),
            shown="" if over else self._show(),
            effect=remarks(f"{said} for {wanted}", "" if self._rewarded else UNREWARDED, read.fault),
            state=f"{self._right} of {self.turn} right" + ("" if over else f", {env.row(self.link)}"),
        )

    def _show(self) -> str:
        return f"{self.limits(1, 'One action each.')}\nmod {self.env.modulus}\n{self.env.row(self.link)}"


def _is_prose(response: str) -> bool:
    """Whether the reply's thought is closed and made of `LEAST_WORDS` or more words of letters, and of nothing else."""
    thought, closed, _ = response.removeprefix(OPEN_THOUGHT).partition(CLOSE_THOUGHT)
    words = thought.split()
    return bool(closed) and len(words) >= LEAST_WORDS and all(word.isalpha() for word in words)


def _apply(operation: str, state: int, modulus: int) -> int:
    number = int(operation[1])
    if operation[0] == "*":
        return state * number % modulus
    return (state + (number if operation[0] == "+" else -number)) % modulus


_SIGNS = {"+": "plus", "-": "minus", "*": "times"}


def chain_thought(
    start: int, modulus: int, operations: Sequence[str], states: Sequence[int], words: random.Random
) -> str:
    """Where the chain begins, the number after each operation (`states`), and the last one."""
    head = words.choice(
        (
            f"I begin with {start} and work modulo {modulus}.",
            f"The row begins with {start}, and I keep the remainders on division by {modulus}.",
            f"Starting from {start}, I take each result modulo {modulus}.",
            f"The first number is {start}, and all results are modulo {modulus}.",
            f"I carry {start} through the row and keep remainders modulo {modulus}.",
        )
    )
    verb = words.choice(("gives", "leaves", "makes", "is"))
    in_words = words.random() < 0.5
    steps = []
    for before, operation, after in zip((start, *states), operations, states, strict=False):
        done = f"{_SIGNS[operation[0]]} {operation[1]}" if in_words else f"{before}{operation}"
        steps.append(f"{done} {verb} {after}")
    tail = phrase(
        words,
        ("The last number is", "The answer is", "I end at", "The last blank is", "I answer", "The chain ends at"),
    )
    return f"{head} {sentence(words.choice((', ', ', then ', '; ')).join(steps))}. {tail} {states[-1]}."
