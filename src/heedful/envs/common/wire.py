"""The form in which tasks and answers travel between processes or machines: JSON, and frames on a socket.

What is read back equals what was written, floats to the last bit.

A tree is what JSON can hold: dicts with text keys, lists, text, numbers, booleans, None.
"""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

from heedful.boundary.jsontext import expecting
from heedful.envs.common.contract import checked_observation, checked_step, checked_task
from heedful.envs.transport.images import image_tree, read_image
from heedful.types import Ending, Observation, Step, Task

Tree = Any

LARGEST_FRAME = 64 * 2**20
"""Bytes: a longer message is not an answer of an environment, but a line out of step or an attack on memory."""


class WireError(ValueError):
    """What came over the border is not what was agreed."""


def task_tree(task: Task) -> Tree:
    return dataclasses.asdict(task) | {"tags": list(task.tags)}


def read_task(tree: Tree) -> Task:
    """Raises WireError."""
    with expecting("a task", value=tree, error=WireError):
        environment = tree.get("environment") or ""
        return checked_task(Task(tree["id"], tree["seed"], tree["split"], tuple(tree["tags"]), environment))


def observation_tree(observation: Observation) -> Tree:
    tree: dict[str, Tree] = {"text": observation.text, "opening": observation.opening}
    if observation.role != "user":
        tree["role"] = observation.role
    if observation.images:
        tree["images"] = [image_tree(image) for image in observation.images]
    return tree


def read_observation(tree: Tree) -> Observation:
    """Raises WireError."""
    with expecting("an observation", value=tree, error=WireError):
        return checked_observation(_observation(tree))


def _observation(tree: Tree) -> Observation:
    images = tuple(map(read_image, tree.get("images") or ()))
    return Observation(tree["text"], tree["opening"], tree.get("role") or "user", images)


def step_tree(step: Step) -> Tree:
    """`step` as a tree. It has passed `checked_step`."""
    tree = {field.name: getattr(step, field.name) for field in dataclasses.fields(Step)}
    return tree | {
        "observation": observation_tree(step.observation),
        "rewards": dict(step.rewards),
        "ending": None if step.ending is None else step.ending.value,
        "actions": list(step.actions),
    }


def read_step(tree: Tree) -> Step:
    """The step in a tree. A field that is missing has the value of a `Step` without it. Raises WireError."""
    with expecting("a step", value=tree, error=WireError):
        fields = {field.name: tree[field.name] for field in dataclasses.fields(Step) if field.name in tree}
        ending = None if fields.get("ending") is None else Ending(fields["ending"])
        return checked_step(Step(**fields | {"observation": _observation(tree["observation"]), "ending": ending}))


def encode(tree: Tree) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


def decode(message: bytes) -> Tree:
    """Raises WireError for what is no JSON."""
    with expecting("JSON", value=message, error=WireError):
        return json.loads(message)


def generator_tree(rng: random.Random) -> Tree:
    """The state of a generator, so that draws can be made elsewhere and counted here."""
    version, words, gauss = rng.getstate()
    return [version, list(words), gauss]


def read_generator(tree: Tree) -> random.Random:
    """The generator in that state. Raises WireError."""
    rng = random.Random(0)
    with expecting("the state of a random generator", value=tree, error=WireError):
        version, words, gauss = tree
        rng.setstate((version, tuple(words), None if gauss is None else float(gauss)))
    return rng
