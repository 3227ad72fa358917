"""Cases of `grounding/*`: policies whose probabilities of actions are known.

Asked of the model: a prompt has one of three types, all equally likely. A thought names the type of its prompt in 70%
and any of the three otherwise. It is read under its own prompt and three others. The action follows the thought, the
prompt, both or neither, by a table of probabilities. All truths are sums over types, thoughts and actions. At later
turns history and last observation tell the type each, and the action follows them or the thought.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import xlogy

from benchmarks.truth.simulation import Case, Floats
from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.later import LATER_PARTS, LaterExchange, later_rightness
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
        return [input_to_action(list(_first_turns(chances_NA, members, rng)))]

    two = np.zeros(2, dtype=int)
    rows_NA = _policy(shape, two, two + 1, actions)
    truth = math.log(actions) - float(_entropies(rows_NA).mean())
    label = f"{shape}, {actions} actions, {prompts} x {members}"
    return Case(label, draw, {"grounding/input_to_action": truth}, batches=400)


def _agreeing(prompts: int, members: int) -> Case:
    """Four in five prompts take one action, the others another one."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        chances_NA = np.eye(2)[(rng.random(prompts) < 0.2).astype(int)]
        return [input_to_action(list(_first_turns(chances_NA, members, rng)))]

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


def _said(off: int = 0) -> Floats:
    """p[prompt's type, thought]. `off`: how far from its prompt's type the thought's type is."""
    return NAMES_ITS_PROMPT * np.roll(np.eye(TYPES), off, axis=1) + (1 - NAMES_ITS_PROMPT) / TYPES


def _asked(label: str, table: Floats, said: Floats, prompts: int, members: int, lost: float = 0.0) -> Case:
    """`lost`: probability of no action where the thought's type is not the prompt's. Only that is judged then."""
    logs = np.log(table) + math.log(1 - lost) * (1 - np.eye(TYPES))[:, :, None]

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
            tasks_N=tuple(Task(str(kind), int(kind), "train") for kind in types_N),
            names_A=tuple(map(str, range(TYPES))),
            counts_NA=tuple(
                tuple(np.bincount(taken, minlength=TYPES)) for taken in np.split(np.array(taken_M), prompts)
            ),
        )
        logs_MNS = logs[types_N[None, :], np.array(thoughts_M)[:, None]]
        return grounding(asked, logs_MNS, right=lambda task: {task.id: 1.0})

    unlike = 1 - said.mean(axis=0).mean() - (1 - said.diagonal()).mean()  # under foreign prompts, more than under own
    truths = {"foreign_lost": lost * float(unlike)} if lost else _truths(table, said, members)
    return Case(f"{label}, {prompts} x {members}", draw, {f"grounding/{name}": value for name, value in truths.items()})


def _truths(table: Floats, said: Floats, members: int) -> dict[str, float]:
    gain = 0.0
    for u in range(TYPES):
        for thoughts in itertools.product(range(TYPES), repeat=members):
            chance, behind_A = float(np.prod(said[u, list(thoughts)])) / TYPES, table[u, thoughts[0]]
            gain += chance * float(behind_A @ np.log(behind_A / table[u, list(thoughts)].mean(axis=0)))
    distance_UZZ = 0.5 * np.abs(table[:, :, None] - table[:, None, :]).sum(axis=-1)
    influence = float(np.einsum("ui,k,uik->", said, said.mean(axis=0), distance_UZZ)) / TYPES
    own = np.einsum("uz,uza->ua", said, table)
    rights = {f"right{part}": value for part, value in _split(table, said, np.eye(TYPES)).items()}
    agreed = {f"agreed{part}": value for part, value in _split(table, said, own).items()}
    return {"reasoning_to_action": gain, "thought_influence": influence, **rights, **agreed}


def _split(table: Floats, said: Floats, label_UA: Floats) -> dict[str, float]:
    """The parts of rightness for independent types of the task, of the prompt and of the thought."""
    whole_UVW = np.einsum("ua,wz,vza->uvw", label_UA, said, table)
    chance = float(whole_UVW.mean())
    thought, prompt = (float(np.einsum(axes, whole_UVW).mean()) - chance for axes in ("uvu->uv", "uuw->uw"))
    right = float(np.einsum("uuu->u", whole_UVW).mean())
    return {
        "": right,
        "_by_chance": chance,
        "_by_thought": thought,
        "_by_prompt": prompt,
        "_by_both": right - chance - thought - prompt,
    }


def _later(label: str, shares: tuple[float, float, float], episodes: int, off: int = 0, lost: float = 0.0) -> Case:
    """`shares`: of the actions that follow the history, the last observation and the thought. `lost`: probability of no
    action where the observation is not that of the history's type."""
    eye, said = np.eye(TYPES), _said(off)
    memory, observation, thought = shares
    table = memory * eye[:, None, None] + observation * eye[None, :, None] + thought * eye[None, None, :]
    table = (table + (1 - sum(shares)) / TYPES) * (1 - lost * (1 - eye)[:, :, None, None])

    def draw(rng: np.random.Generator) -> list[Metric]:
        types_M = rng.integers(TYPES, size=episodes)
        thoughts_M = np.array([rng.choice(TYPES, p=said[kind]) for kind in types_M])
        blank = ((),) * episodes
        asked = LaterExchange(
            histories_M=((1,),) * episodes,
            observations_M=blank,
            thoughts_M=blank,
            tasks_M=tuple(Task(str(kind), int(kind), "train") for kind in types_M),
            before_M=blank,
            spellings_S=tuple((50 + action,) for action in range(TYPES)),
            action_S=tuple(range(TYPES)),
            names_A=tuple(map(str, range(TYPES))),
        )
        history_R, observation_R, thought_R = np.array(asked.reads).T
        logs_RS = np.log(table[types_M[history_R], types_M[observation_R], thoughts_M[thought_R]])
        return later_rightness(asked, logs_RS, lambda task, before=(): {task.id: 1.0})

    truths = {"later_foreign_lost": lost * (1 - 1 / TYPES) * 6 / 9} if lost else _later_truths(table, said)
    name = f"later turns: {label}, {episodes} episodes"
    return Case(name, draw, {f"grounding/{name}": value for name, value in truths.items()}, batches=400)


def _later_truths(table: Floats, said: Floats) -> dict[str, float]:
    """C[k, m, j, l] of independent types; a thought of type l says one of them."""
    whole = np.einsum("lz,mjza->amjl", said, table)
    chance, alone = whole.mean(), np.einsum("kkjl->kjl", whole).mean()
    thought, observation = np.einsum("kkjk->kj", whole).mean(), np.einsum("kkkl->kl", whole).mean()
    right = np.einsum("kkkk->k", whole).mean()
    parts = right, chance, alone - chance, thought - alone, observation - alone, right - thought - observation + alone
    return {f"later_right{part}": float(value) for part, value in zip(LATER_PARTS, parts, strict=True)}


CASES = (
    *(_counted(shape, 16, 8, 4) for shape in ("deterministic", "independent", "weak", "noisy", "two actions")),
    *(_counted(shape, 16, 4, 8) for shape in ("deterministic", "nearly deterministic", "mixed prompts", "noisy")),
    *(_counted(shape, 32, 8, 4) for shape in ("noisy", "nearly deterministic")),
    *(_agreeing(prompts, 8) for prompts in (8, 16, 32)),
    *(
        _asked(label, _table(*shares), _said(off), prompts, members)
        for label, off, shares in (
            ("thought decides", 0, ([0.85] * 3, [0.0] * 3)),
            ("thought decides and is wrong", 1, ([0.85] * 3, [0.0] * 3)),
            ("prompt decides", 0, ([0.0] * 3, [0.85] * 3)),
            ("thought and prompt decide", 0, ([0.45] * 3, [0.35] * 3)),
            ("thought hardly matters", 0, ([0.1] * 3, [0.6] * 3)),
            ("prompts differ", 0, ([0.8, 0.1, 0.5], [0.1, 0.8, 0.3])),
        )
        for prompts, members in ((8, 2), (16, 2))
    ),
    *(
        _asked("foreign thoughts confuse", _table([0.85] * 3, [0.0] * 3), _said(), prompts, 2, lost=0.2)
        for prompts in (8, 16)
    ),
    *(
        _later(label, shares, episodes, off)
        for label, off, shares in (
            ("memory decides", 0, (0.85, 0.0, 0.0)),
            ("the observation decides", 0, (0.0, 0.85, 0.0)),
            ("the thought decides", 0, (0.0, 0.0, 0.85)),
            ("the thought decides and is wrong", 1, (0.0, 0.0, 0.85)),
            ("all three decide", 0, (0.3, 0.2, 0.4)),
        )
        for episodes in (8, 16)
    ),
    *(_later("foreign observations confuse", (0.0, 0.0, 0.85), episodes, lost=0.2) for episodes in (8, 16)),
)
