"""Chain: carry a number through operations on its remainder. The answer stands in the thought, nowhere else.

Promise: every operation is a permutation of the residues, so a start drawn uniformly makes the right answer uniform,
and whoever does not compute is right once in `modulus` times.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT, answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.demonstrations import played_through, template_thought
from heedful.envs.common.knobs import Instructions, check_penalty, check_range, check_share, check_wording
from heedful.envs.common.tasks import check_same_start, task_of
from heedful.types import Ending, Observation, Step, Task

UNREWARDED = "unrewarded"
"""The tag of a training task on which no reply is rewarded for being right."""

LEAST_WORDS = 5
"""Words of a thought that count as prose."""


@dataclass(frozen=True, slots=True)
class Link:
    """What one turn asks: a number, and the operations that it goes through."""

    start: int
    operations: tuple[str, ...]
    states: tuple[int, ...]
    """The right number after each operation; the last one is the answer."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Carry a number through a chain of operations; the fields are the knobs. Without computing: 1 in `modulus`.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 1 moves 1
    mod 7
    1*5_*5_+1_*3_+1_*3_
    ```
    ```
    <think>1*55*54+15*31+12*36</think><answer>6</answer>
    ```

    The thought is the prompt's row with every blank filled in, and the answer is its last number. Dots pad the row, so
    that each number stands equally far behind its blank. The default modulus is prime, and the operations then carry
    any pair of numbers to any other: no property of the answer (as parity is, modulo 10) can be had by less work.

    With several turns the chain goes on from the right number, which the next observation shows, and every turn must be
    right. Reward components: `solved` (+1 at the end if every turn was right), `format`, and `fluency` where that is
    asked for. Outcome: 1 if solved, else 0. Progress: the share of turns that were right, on unrewarded tasks, too.
    There is no noise.
    """

    modulus: int = 7
    """Numbers are remainders on division by this."""
    operations: tuple[str, ...] = ("+1", "+3", "*3", "*5")
    """What can happen to a number: a sign of +, -, * and a digit. Each must be a permutation of the remainders."""
    least: int = 4
    """Fewest operations of a turn."""
    most: int = 6
    """Most operations of a turn; the number of a turn is drawn uniformly."""
    turns: int = 1
    """Links of the chain, one per turn."""
    unrewarded: float = 0.0
    """Share of training tasks (a stable hash of the start state) on which no reply earns `solved`, and the outcome is
    0: the reward is blind there. Tasks of `val` and `test` are always rewarded."""
    fluency: float = 0.0
    """Reward component `fluency`, paid for each turn whose thought is a sentence of words, whatever it says: a
    preference for prose that does not read the prompt. Unrewarded tasks pay it, too."""
    format_penalty: float = 0.1
    """Subtracted once for each turn whose reply has a fault."""
    instructions: Instructions = "full"
    """`full`: the rules in plain English in the first observation; `brief`: the state and the limits alone."""
    show_reward: bool = False
    """Show each turn's reward in the next observation (for comparison with published set-ups)."""
    imperfect: float = 0.0
    """Demonstrations: chance of each step that a random number takes the place of the right one; the walk goes on from
    it, and the answer is where it ends."""
    template: float = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the prompt; their answer is right,
    but there is no way to it."""
    thoughtless: float = 0.0
    """Demonstrations: share of turns without a thought; their answer is right, but there is no way to it."""
    systematic: float = 0.0
    """Demonstrations: chance that the last of `operations` is carried out wrongly, always one too high. Above a half it
    teaches a policy whose likeliest step is wrong while the right one is sampled now and then."""

    def __post_init__(self) -> None:
        check_range(self.name, "modulus", self.modulus, 2, 10)
        check_range(self.name, "least", self.least, 1)
        check_range(self.name, "most", self.most, self.least)
        check_range(self.name, "turns", self.turns, 1)
        for knob in ("unrewarded", "imperfect", "template", "thoughtless", "systematic"):
            check_share(self.name, knob, getattr(self, knob))
        if self.template + self.thoughtless > 1:
            raise ValueError(
                f"chain: template and thoughtless are shares of the same turns and may add up to 1 at most, but are "
                f"{self.template:g} and {self.thoughtless:g}."
            )
        check_penalty(self.name, self.format_penalty)
        if not 0.0 <= self.fluency < float("inf"):
            raise ValueError(f"chain: fluency must be a finite number of at least 0, but is {self.fluency}.")
        check_wording(self.name, self.instructions)
        _check_operations(self.operations, self.modulus)

    @property
    def name(self) -> str:
        return "chain"

    @property
    def summary(self) -> str:
        length = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        again = f", {self.turns} times" if self.turns > 1 else ""
        return f"Carry a number through {length} operations modulo {self.modulus}{again}."

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.modulus)))

    @property
    def actions_per_turn(self) -> int:
        return 1

    def links(self, seed: int) -> tuple[Link, ...]:
        """What each turn asks; each link starts where the one before ends."""
        rng = random.Random(f"chain:{seed}")
        start = rng.randrange(self.modulus)
        links = []
        for _ in range(self.turns):
            operations = tuple(rng.choices(self.operations, k=rng.randint(self.least, self.most)))
            links.append(Link(start, operations, _walk(start, operations, self.modulus)))
            start = links[-1].states[-1]
        return tuple(links)

    def row(self, link: Link) -> str:
        """A link as the prompt shows it, padded to the length of the longest."""
        blanks = "".join(f"{operation}_" for operation in link.operations)
        return f"{link.start}{blanks}".ljust(1 + 3 * self.most, ".")

    def task(self, seed: int) -> Task:
        start_state = "\n".join([f"mod {self.modulus}", *map(self.row, self.links(seed))])
        task = task_of("chain", start_state, seed)
        blind = task.split == "train" and _share_of(task.id) < self.unrewarded
        return Task(task.id, task.seed, task.split, (UNREWARDED,) if blind else ())

    def episode(self) -> ChainEpisode:
        return ChainEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, filling in the blanks; see `imperfect`, `systematic`, `template` and `thoughtless`."""
        return played_through(self.episode(), task, lambda episode: self._demonstrated(episode.link, rng))

    def _demonstrated(self, link: Link, rng: random.Random) -> str:
        kind = rng.random()
        if kind < self.template:
            return format_reply([str(link.states[-1])], template_thought(rng))
        if kind < self.template + self.thoughtless:
            return format_reply([str(link.states[-1])], "")
        state = link.start
        thought = str(state)
        for operation in link.operations:
            state = _apply(operation, state, self.modulus)
            if operation == self.operations[-1] and rng.random() < self.systematic:
                state = (state + 1) % self.modulus
            if rng.random() < self.imperfect:
                state = rng.randrange(self.modulus)
            thought += f"{operation}{state}"
        return format_reply([str(state)], thought)


class ChainEpisode:
    """One episode; see `Chain`."""

    __slots__ = ("_env", "_links", "_rewarded", "_right", "_turn")

    _links: tuple[Link, ...]

    def __init__(self, env: Chain) -> None:
        self._env = env
        self._rewarded = True
        self._turn = 0
        self._right = 0

    @property
    def link(self) -> Link:
        """What is asked now."""
        return self._links[self._turn]

    def start(self, task: Task, member: int) -> Observation:
        expected = self._env.task(task.seed)
        check_same_start(expected, task)
        self._links = self._env.links(task.seed)
        self._rewarded = UNREWARDED not in expected.tags
        return self._observation(self._show(), first=True)

    def step(self, response: str) -> Step:
        env = self._env
        read = read_reply(response, env.actions, 1)
        wanted = str(self.link.states[-1])
        self._right += read.actions == (wanted,)
        self._turn += 1
        over = self._turn == env.turns
        solved = over and self._rewarded and self._right == env.turns
        rewards: dict[str, float] = {}
        if solved:
            rewards["solved"] = 1.0
        if env.fluency and _is_prose(response):
            rewards["fluency"] = env.fluency
        if read.fault:
            rewards["format"] = -env.format_penalty
        note = fault_line(read, env.instructions == "brief")
        if env.show_reward:
            note += f"reward {sum(rewards.values()):g}\n"
        said = read.actions[0] if read.actions else "nothing"
        remarks = [
            f"{said} for {wanted}",
            *([] if self._rewarded else [UNREWARDED]),
            *([read.fault] * bool(read.fault)),
        ]
        return Step(
            observation=self._observation(note + ("" if over else self._show())),
            rewards=rewards,
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            outcome=float(solved) if over else None,
            progress=self._right / env.turns if over else None,
            actions=read.actions,
            valid=not read.fault,
            effect="; ".join(remarks),
            state=f"{self._right} of {self._turn} right" + ("" if over else f", {env.row(self.link)}"),
        )

    def _observation(self, text: str, first: bool = False) -> Observation:
        """`text` as it goes on a conversation (or, the first one, begins it), and as one could begin with it."""
        opening = _rules(self._env) + text
        return Observation(opening if first else text, opening)

    def _show(self) -> str:
        env = self._env
        left = env.turns - self._turn
        limits = f"turns {left} moves 1" if env.instructions == "brief" else f"Turns left: {left}. One action each."
        return f"{limits}\nmod {env.modulus}\n{env.row(self.link)}"


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


def _walk(start: int, operations: Sequence[str], modulus: int) -> tuple[int, ...]:
    states = [start]
    for operation in operations:
        states.append(_apply(operation, states[-1], modulus))
    return tuple(states[1:])


def _share_of(task_id: str) -> float:
    """A number in [0, 1) from a task's id, apart from the one that decides its split."""
    return int.from_bytes(hashlib.sha256(f"unrewarded {task_id}".encode()).digest()[:7], "big") / 2**56


def _check_operations(operations: tuple[str, ...], modulus: int) -> None:
    if len(set(operations)) != len(operations) or len(operations) < 2:
        raise ValueError(f"chain: operations must be two or more different ones, but are {', '.join(operations)}.")
    for operation in operations:
        form = len(operation) == 2 and operation[0] in "+-*" and operation[1] in "0123456789"
        if not form or (operation[0] == "*" and math.gcd(int(operation[1]), modulus) != 1):
            raise ValueError(
                f"chain: operations must be a sign of +, -, * and one digit, and each a permutation of the remainders "
                f"(for * the digit has no divisor in common with modulus {modulus}), but one is {operation!r}."
            )


@lru_cache(maxsize=64)
def _rules(env: Chain) -> str:
    """What an opening begins with; nothing under brief instructions."""
    if env.instructions == "brief":
        return ""
    further = " Each turn goes on from the right number, and every turn must be right." if env.turns > 1 else ""
    return (
        f"You carry a number through a chain of operations. After each one only the remainder on division by "
        f"{env.modulus} is kept.\n"
        "The row begins with the number. Each operation is followed by a blank _ for the number that it gives; dots "
        "mean nothing. Fill in the blanks from left to right.\n"
        f"The answer is the number in the last blank.{further}\n"
        f"The actions are {', '.join(env.actions)}.\n{answer_rules(env.actions, env.turns, 1)}\n"
    )
