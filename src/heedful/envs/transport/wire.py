"""The form in which tasks and answers travel between processes or machines: JSON, and frames on a socket.

What is read back equals what was written, floats to the last bit.

A tree is what JSON can hold: dicts with text keys, lists, text, numbers, booleans, None.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import random
from collections.abc import Mapping
from typing import Any

from heedful.envs.common.contract import shown
from heedful.envs.transport.images import image_tree, read_image
from heedful.types import Ending, Observation, Step, Task

Tree = Any

LARGEST_FRAME = 64 * 2**20
"""Bytes: a longer message is not an answer of an environment, but a line out of step or an attack on memory."""

_ENDINGS = {ending.value: ending for ending in Ending}


class WireError(ValueError):
    """What came over the border is not what was agreed."""


def task_tree(task: Task) -> Tree:
    return dataclasses.asdict(task) | {"tags": list(task.tags)}


def read_task(tree: Tree) -> Task:
    """Raises WireError."""
    fields = _fields(tree, "a task", {"id": str, "seed": int, "split": str, "tags": list}, {"environment": str})
    tags = _names(fields["tags"], "a task's tags")
    return Task(fields["id"], read_seed(fields["seed"]), fields["split"], tags, fields["environment"] or "")


def read_seed(seed: int) -> int:
    """The seed of a task, which files of episodes store in 64 bits. Raises WireError."""
    if not -(2**63) <= seed < 2**63:
        raise WireError(f"Expected the seed of a task in 64 bits, found {shown(seed)}.")
    return seed


def observation_tree(observation: Observation) -> Tree:
    tree: dict[str, Tree] = {"text": observation.text, "opening": observation.opening}
    if observation.role != "user":
        tree["role"] = observation.role
    if observation.images:
        tree["images"] = [image_tree(image) for image in observation.images]
    return tree


def read_observation(tree: Tree) -> Observation:
    """Raises WireError."""
    fields = _fields(tree, "an observation", {"text": str, "opening": str}, {"role": str, "images": list})
    try:
        images = tuple(map(read_image, fields["images"] or []))
    except ValueError as error:
        raise WireError(str(error)) from error
    return Observation(fields["text"], fields["opening"], fields["role"] or "user", images)


def step_tree(step: Step) -> Tree:
    """`step` as a tree. It has passed `checked_step`."""
    return {
        "observation": observation_tree(step.observation),
        "rewards": dict(step.rewards),
        "ending": None if step.ending is None else step.ending.value,
        "outcome": step.outcome,
        "progress": step.progress,
        "actions": list(step.actions),
        "valid": step.valid,
        "effect": step.effect,
        "state": step.state,
    }


def read_step(tree: Tree) -> Step:
    """Raises WireError. Whether the outcome is in range is left to `checked_step`."""
    kinds = {"observation": dict, "rewards": dict, "actions": list, "valid": bool, "effect": str, "state": str}
    optional = {"ending": str, "outcome": float, "progress": float}
    fields = _fields(tree, "a step", kinds, optional)
    ending = fields["ending"]
    if ending is not None and ending not in _ENDINGS:
        raise WireError(f"Expected the ending of a step among {', '.join(_ENDINGS)}, found {shown(ending)}.")
    rewards = {name: _number(value, f"the reward {shown(name)} of a step") for name, value in fields["rewards"].items()}
    return Step(
        observation=read_observation(fields["observation"]),
        rewards=rewards,
        ending=None if ending is None else _ENDINGS[ending],
        outcome=fields["outcome"],
        progress=fields["progress"],
        actions=_names(fields["actions"], "a step's actions"),
        valid=fields["valid"],
        effect=fields["effect"],
        state=fields["state"],
    )


def _fields(tree: Tree, what: str, kinds: Mapping[str, type], optional: Mapping[str, type] | None = None) -> Tree:
    """The named fields of a tree, each of its kind. An optional one may be None, and is None if it is missing."""
    if not isinstance(tree, dict):
        raise WireError(f"Expected {what} as an object, found {shown(tree)}.")
    found = {name: tree.get(name) for name in (*kinds, *(optional or {}))}
    for name, kind in (*kinds.items(), *(optional or {}).items()):
        value = found[name]
        if value is None and name not in kinds:
            continue
        if kind is float:
            found[name] = _number(value, f"{name!r} of {what}")
        elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise WireError(f"Expected {name!r} of {what} as {_SPELLED[kind]}, found {shown(value)}.")
    return found


def _number(value: object, what: str) -> float:
    """A finite number as a float. Raises WireError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise WireError(f"Expected {what} as a finite number, found {shown(value)}.")


_SPELLED = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _names(items: list[Any], what: str) -> tuple[str, ...]:
    """Raises WireError for what is no text."""
    strange = next((item for item in items if not isinstance(item, str)), None)
    if strange is not None:
        raise WireError(f"Expected {what} as texts, found {shown(strange)} among them.")
    return tuple(items)


def encode(tree: Tree) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


def decode(message: bytes) -> Tree:
    """Raises WireError for what is no JSON."""
    try:
        return json.loads(message)
    except (ValueError, RecursionError) as error:
        raise WireError(f"Expected JSON, found {shown(message)} ({type(error).__name__}: {error}).") from error


def generator_tree(rng: random.Random) -> Tree:
    """The state of a generator, so that draws can be made elsewhere and counted here."""
    version, words, gauss = rng.getstate()
    return [version, list(words), gauss]


def read_generator(tree: Tree) -> random.Random:
    """The generator in that state. Raises WireError."""
    rng = random.Random(0)
    try:
        version, words, gauss = tree
        gauss = None if gauss is None else _number(gauss, "the kept draw of a random generator")
        rng.setstate((version, tuple(words), gauss))
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"Expected the state of a random generator, found {shown(tree)} ({error}).") from error
    return rng
