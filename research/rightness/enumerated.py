"""Policies whose probabilities are all known, thought by thought and action by action, and how their rightness splits.

A prompt is (y, u): y of 4 right actions, and u of 8 facts beside it. A thought says an action, copies a prompt, does
both, or is a template. With probability .96 it is one that the policy names, else any of the 168. The action is the
named one with .9, else any of the 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
X = tuple[int, int]
Thinks = Callable[[X], Floats]
Acts = Callable[[X, Any], Floats]


class Known(NamedTuple):
    """A policy and its exact values, to six digits."""

    thinking: Thinks
    acting: Acts
    right: float
    chance: float
    thought: float
    prompt: float
    both: float
    agreed: float
    """`agreed_by_thought`."""

    @property
    def parts(self) -> tuple[float, ...]:
        """right, by chance, by thought, by prompt and by both."""
        return self[2:7]


ACTIONS, FACTS = 4, 8
PROMPTS = list(itertools.product(range(ACTIONS), range(FACTS)))
"""y, the right action, and u, a fact beside it."""
SAY: list[Any] = [(None, said) for said in range(ACTIONS)]
COPY: list[Any] = [(copied, None) for copied in PROMPTS]
BOTH: list[Any] = [(copied, said) for copied in PROMPTS for said in range(ACTIONS)]
TEMPLATES: list[Any] = [("template", number) for number in range(4)]
THOUGHTS: list[Any] = [*SAY, *COPY, *BOTH, *TEMPLATES]
EVEN: Floats = np.full(ACTIONS, 1 / ACTIONS)


def one(action: int) -> Floats:
    """This action alone."""
    taken: Floats = np.eye(ACTIONS)[action % ACTIONS]
    return taken


def thinks(*named: Any) -> Floats:
    """The share of each thought: with probability .96 one of these, else any."""
    shares: Floats = np.zeros(len(THOUGHTS))
    for thought in named:
        shares[THOUGHTS.index(thought)] += 1 / len(named)
    return 0.96 * shares + 0.04 / len(THOUGHTS)


def obey(x: X, thought: Any) -> Floats:
    return EVEN if thought[0] == "template" or thought[1] is None else one(thought[1])


def read_copy(x: X, thought: Any) -> Floats:
    return one(thought[0][0]) if thought in COPY else obey(x, thought)


def by_prompt(x: X, thought: Any) -> Floats:
    return one(x[0])


def relative(x: X, thought: Any) -> Floats:
    told = thought[0] != "template" and thought[1] is not None
    return one(thought[1] + x[1]) if told else EVEN


def if_it_fits(x: X, thought: Any) -> Floats:
    return one(x[0]) if thought in (*SAY, *BOTH) and thought[1] == x[0] else EVEN


def right_copy(x: X) -> Floats:
    return thinks((x, x[0]))


def wrong_copy(x: X) -> Floats:
    return thinks((x, (x[0] + 1) % 4))


def noise(x: X) -> Floats:
    return thinks(*((x, said) for said in range(4)))


def template(x: X) -> Floats:
    return thinks(*TEMPLATES)


def says(shown: Callable[[X], int]) -> Thinks:
    """A thought that says one action alone."""
    return lambda x: thinks((None, shown(x) % 4))


POLICIES: dict[str, Known] = {
    "worked out, right": Known(right_copy, obey, 0.898, 0.229097, 0.668903, 0, 0, 0.577932),
    "worked out, always one too high": Known(wrong_copy, obey, 0.034, 0.256968, -0.222968, 0, 0, 0.577932),
    "copied, then random numbers": Known(noise, obey, 0.25, 0.25, 0, 0, 0, 0),
    "short and right": Known(says(lambda x: x[0]), obey, 0.898, 0.229097, 0.668903, 0, 0, 0.577932),
    "short and always wrong": Known(says(lambda x: x[0] + 1), obey, 0.034, 0.256968, -0.222968, 0, 0, 0.577932),
    "copied, answer read from the copy": Known(
        lambda x: thinks((x, None)),
        read_copy,
        0.898,
        0.229097,
        0.668903,
        0,
        0,
        0.577932,
    ),
    "copied, answer read from the prompt": Known(
        lambda x: thinks((x, None)), by_prompt, 0.925, 0.228226, 0, 0.696774, 0, 0
    ),
    "copied, random action": Known(lambda x: thinks((x, None)), lambda x, z: EVEN, 0.25, 0.25, 0, 0, 0, 0),
    "template, random action": Known(template, lambda x, z: EVEN, 0.25, 0.25, 0, 0, 0, 0),
    "template, one action": Known(template, lambda x, z: one(0), 0.25, 0.25, 0, 0, 0, 0),
    "template, answer read from the prompt": Known(template, by_prompt, 0.925, 0.228226, 0, 0.696774, 0, 0),
    "noise, obeyed": Known(lambda x: thinks(*SAY), obey, 0.25, 0.25, 0, 0, 0, 0),
    "irrelevant fact, obeyed": Known(says(lambda x: x[1]), obey, 0.25, 0.25, 0, 0, 0, 0.577932),
    "right thought, ignored": Known(says(lambda x: x[0]), by_prompt, 0.925, 0.228226, 0, 0.696774, 0, 0),
    "wrong thought, ignored": Known(says(lambda x: x[0] + 1), by_prompt, 0.925, 0.228226, 0, 0.696774, 0, 0),
    "relative to the prompt": Known(
        says(lambda x: x[0] - x[1]),
        relative,
        0.898,
        0.251394,
        -0.022297,
        -0.022297,
        0.6912,
        -0.019264,
    ),
    "believed only if it fits": Known(
        says(lambda x: x[0]),
        if_it_fits,
        0.903304,
        0.240074,
        0.156077,
        0.161552,
        0.3456,
        0.135955,
    ),
    "half worked out, half template": Known(
        lambda x: (right_copy(x) + template(x)) / 2,
        obey,
        0.574,
        0.239548,
        0.334452,
        0,
        0,
        0.144483,
    ),
    "half worked out, half noise": Known(
        lambda x: (right_copy(x) + noise(x)) / 2,
        obey,
        0.574,
        0.239548,
        0.334452,
        0,
        0,
        0.144483,
    ),
    "half of the prompts worked out": Known(
        lambda x: noise(x) if x[1] % 2 else right_copy(x),
        obey,
        0.574,
        0.239548,
        0.334452,
        0,
        0,
        0.288966,
    ),
    "half obeyed, half read from the prompt": Known(
        right_copy,
        lambda x, z: (obey(x, z) + one(x[0])) / 2,
        0.9115,
        0.228661,
        0.334452,
        0.348387,
        0,
        0.294986,
    ),
}


def population(thinking: Thinks, acting: Acts) -> tuple[Floats, Floats]:
    """p(z | x), and p(a | x, z): with .9 the named action, else any."""
    said_XZ = np.array([thinking(x) for x in PROMPTS])
    acted_XZA = 0.9 * np.array([[acting(x, z) for z in THOUGHTS] for x in PROMPTS]) + 0.1 / ACTIONS
    return said_XZ, acted_XZA


RIGHT_XA: Floats = np.array([one(x[0]) for x in PROMPTS])


def tensor_of(said_XZ: Floats, acted_XZA: Floats, label_XA: Floats) -> Floats:
    """C[k, j, l] over all thoughts with their probabilities."""
    behind = np.einsum("lz,jza->jla", said_XZ, acted_XZA)
    chances: Floats = np.einsum("ka,jla->kjl", label_XA, behind)
    return chances
