"""Cases of `grounding/*`: policies whose probabilities of actions are known.

Asked of the model: a prompt has one of three types, all equally likely. A thought names the type of its prompt in 70%
and any of the three otherwise. The action follows the thought, the prompt, both or neither, by a table of
probabilities. All truths are sums over types, thoughts and actions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import xlogy
from scipy.stats import binom

from benchmarks.truth.simulation import Case, Floats
from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.strategies import input_to_action
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn

TYPES = 3
NAMES_ITS_PROMPT = 0.7


def _entropies(shares: Floats) -> Floats:
    found: Floats = -xlogy(shares, shares).sum(axis=-1)
    return found


def _policy(shape: str, favourite_N: Floats, other_N: Floats, actions: int) -> Floats:
    """The probability of each action under each prompt."""
    told, even = np.eye(actions)[favourite_N], np.full((len(favourite_N), actions), 1 / actions)
    reads_it = np.arange(len(favourite_N))[:, None] % 2 == 0
    by_shape: dict[str, Callable[[], Floats]] = {
        "deterministic": lambda: told,
        "independent": lambda: even,
        "weak": lambda: 0.2 * told + 0.8 * even,
        "noisy": lambda: 0.5 * told + 0.5 * even,
        "nearly deterministic": lambda: 0.8 * told + 0.2 * even,
        "mixed prompts": lambda: np.where(reads_it, told, even),
        "two actions": lambda: (told + np.eye(actions)[other_N]) / 2,
    }
    return by_shape[shape]()


def _counted(shape: str, prompts: int, members: int, actions: int) -> Case:
    """The favourite of each prompt is drawn evenly, so the actions of all prompts together are even."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        favourite_N = rng.integers(actions, size=prompts)
        other_N = (favourite_N + rng.integers(1, actions, size=prompts)) % actions
        chances_NA = _policy(shape, favourite_N, other_N, actions)
        return input_to_action(list(_first_turns(chances_NA, members, rng)), rng)

    two = np.zeros(2, dtype=int)
    rows_NA = _policy(shape, two, two + 1, actions)
    truth = math.log(actions) - float(_entropies(rows_NA).mean())
    truths = {"grounding/input_to_action": truth}
    truths["grounding/input_to_action_plugin"] = _plugin(rows_NA, prompts, members, actions)
    return Case(f"{shape}, {actions} actions, {prompts} x {members}", draw, truths, batches=400)


def _plugin(rows_NA: Floats, prompts: int, members: int, actions: int) -> float:
    """The expected plug-in: H(A) of the pooled counts minus H(A|X), both exact.

    The counts of one action under one prompt are a mixture of binomials, and those of all prompts a convolution.
    Half of the prompts are of each kind in `rows_NA`. The favourite is drawn, so every action is alike.
    """
    counts = np.arange(members + 1)
    given = float(
        np.mean(
            [
                -sum(binom.pmf(counts, members, p) @ xlogy(counts / members, counts / members) for p in row)
                for row in rows_NA
            ]
        )
    )
    total = np.ones(1)
    for prompt in range(prompts):
        one = np.mean([binom.pmf(counts, members, p) for p in rows_NA[prompt % 2]], axis=0)
        total = np.convolve(total, one)
    shares = np.arange(len(total)) / (prompts * members)
    return -actions * float(total @ xlogy(shares, shares)) - given


def _agreeing(prompts: int, members: int) -> Case:
    """Four in five prompts take one action, the others another one."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        chances_NA = np.eye(2)[(rng.random(prompts) < 0.2).astype(int)]
        return input_to_action(list(_first_turns(chances_NA, members, rng)), rng)

    truths = {"grounding/input_to_action": float(_entropies(np.array([0.8, 0.2])))}
    return Case(f"prompts that mostly agree, {prompts} x {members}", draw, truths, batches=400)


def _first_turns(chances_NA: Floats, members: int, rng: np.random.Generator) -> Iterator[Group]:
    for number, chance_A in enumerate(chances_NA):
        task = Task(f"task-{number}", number, "train")
        reply = Reply(Prompt("", (number,)), (1,), "", (0.0,), (), Span(0, 1), Span(1, 1), True, False)
        drawn = rng.choice(len(chance_A), members, p=chance_A)
        turns = [Turn(reply, {}, (str(action),), True, "", "") for action in drawn]
        yield Group(task, tuple(Trajectory(task, at, (turn,), Ending.FAILED, 0.0) for at, turn in enumerate(turns)))


def _table(of_thought: Sequence[float], of_prompt: Sequence[float]) -> Floats:
    """p[prompt's type, thought, action]: the thought's action, the prompt's action, and the rest even.

    Both shares are given for each type of prompt.
    """
    thought, prompt = (np.array(shares)[:, None, None] for shares in (of_thought, of_prompt))
    eye = np.eye(TYPES)
    found: Floats = thought * eye[None, :, :] + prompt * eye[:, None, :] + (1 - thought - prompt) / TYPES
    return found


def _said() -> Floats:
    """p[prompt's type, thought]."""
    return NAMES_ITS_PROMPT * np.eye(TYPES) + (1 - NAMES_ITS_PROMPT) / TYPES


def _asked(label: str, table: Floats, prompts: int, members: int) -> Case:
    said, logs = _said(), np.log(table)

    def draw(rng: np.random.Generator) -> list[Metric]:
        types_N = rng.integers(TYPES, size=prompts)
        own_M = np.repeat(np.arange(prompts), members)
        thoughts_M = [int(rng.choice(TYPES, p=said[types_N[own]])) for own in own_M]
        taken_M = [int(rng.choice(TYPES, p=table[types_N[own], z])) for own, z in zip(own_M, thoughts_M, strict=True)]
        asked = Exchange(
            prompts_N=tuple((100 + number,) for number in range(prompts)),
            thoughts_M=tuple((z,) for z in thoughts_M),
            own_M=tuple(own_M.tolist()),
            spellings_S=tuple((50 + action,) for action in range(TYPES)),
            action_S=tuple(range(TYPES)),
            taken_M=tuple(taken_M),
        )
        return grounding(asked, logs[types_N[None, :], np.array(thoughts_M)[:, None]])

    truths = _truths(table, said, prompts, members)
    return Case(f"{label}, {prompts} x {members}", draw, {f"grounding/{name}": value for name, value in truths.items()})


def _truths(table: Floats, said: Floats, prompts: int, members: int) -> dict[str, float]:
    gain, rivalled, rivals = 0.0, 0.0, 0.0
    for u in range(TYPES):
        for thoughts in itertools.product(range(TYPES), repeat=members):
            chance = float(np.prod(said[u, list(thoughts)])) / TYPES
            own = thoughts[0]
            others = [z for z in thoughts if z != own]
            behind_A = table[u, own]
            gain += chance * float(behind_A @ np.log(behind_A / table[u, list(thoughts)].mean(axis=0)))
            if others:
                rivalled += chance
                rivals += chance * float(behind_A @ np.log(behind_A / table[u, others].mean(axis=0)))
    distance_UZZ = 0.5 * np.abs(table[:, :, None] - table[:, None, :]).sum(axis=-1)
    foreign_Z = said.mean(axis=0)
    truths = {
        "reasoning_to_action": gain,
        "reasoning_to_action_loo": rivals / rivalled,
        "direct_input_to_action": _direct(table, said, prompts),
        "thought_influence": float(np.einsum("ui,k,uik->", said, foreign_Z, distance_UZZ)) / TYPES,
        "thought_influence_same_prompt": float(np.einsum("ui,uk,uik->", said, said, distance_UZZ)) / TYPES,
    }
    votes, counted = 0.0, 0.0
    likeliest = table.argmax(axis=-1)
    for u, own, other, foreign in itertools.product(range(TYPES), repeat=4):
        home, kept, now = likeliest[other, foreign], likeliest[u, own], likeliest[u, foreign]
        if home != kept:
            chance = said[u, own] * said[other, foreign] / TYPES**2
            counted += chance
            votes += chance * (float(now == home) - float(now == kept))
    return truths | ({"foreign_thought_obeyed": votes / counted} if counted else {})


def _direct(table: Floats, said: Floats, prompts: int) -> float:
    """Given the own type, the others are a multinomial draw of types: all their counts are summed over."""
    total = 0.0
    for counts in itertools.product(range(prompts), repeat=TYPES):
        if sum(counts) != prompts - 1:
            continue
        ways = math.factorial(prompts - 1) / math.prod(map(math.factorial, counts)) / TYPES ** (prompts - 1)
        for u in range(TYPES):
            weights_U = (np.array(counts) + np.eye(TYPES)[u]) / prompts
            mixed_ZA = np.einsum("u,uza->za", weights_U, table)
            total += ways * float(np.einsum("z,za,za->", said[u], table[u], np.log(table[u] / mixed_ZA))) / TYPES
    return total


CASES = (
    *(_counted(shape, 16, 8, 4) for shape in ("deterministic", "independent", "weak", "noisy", "two actions")),
    *(_counted(shape, 16, 4, 8) for shape in ("deterministic", "nearly deterministic", "mixed prompts", "noisy")),
    *(_counted(shape, 32, 8, 4) for shape in ("noisy", "nearly deterministic")),
    *(_agreeing(prompts, 8) for prompts in (8, 16, 32)),
    *(
        _asked(label, _table(*shares), prompts, members)
        for label, shares in (
            ("thought decides", ([0.85] * 3, [0.0] * 3)),
            ("prompt decides", ([0.0] * 3, [0.85] * 3)),
            ("thought and prompt decide", ([0.45] * 3, [0.35] * 3)),
            ("thought hardly matters", ([0.1] * 3, [0.6] * 3)),
            ("prompts differ", ([0.8, 0.1, 0.5], [0.1, 0.8, 0.3])),
        )
        for prompts, members in ((8, 2), (16, 4))
    ),
)
