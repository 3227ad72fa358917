"""Checks of what an environment returns, and the form in which tasks and answers travel between processes or machines.

What is read back equals what was written, floats to the last bit. An answer outside the contract is refused, with the
same error on both sides: what was expected and what was found.

A tree is what JSON can hold: dicts with text keys, lists, text, numbers, booleans, None.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import random
import reprlib
from collections.abc import Mapping
from numbers import Real
from typing import Any

from heedful.boundary.limits import LARGEST_REWARD
from heedful.envs.common.contract import LONGEST_NAME
from heedful.envs.transport.images import IMAGES_WANTED, image_tree, images_fault, read_images
from heedful.protocols import Episode
from heedful.types import Ending, Observation, Step, Task

Tree = Any

LARGEST_FRAME = 64 * 2**20
"""Bytes: a longer message is not an answer of an environment, but a line out of step or an attack on memory."""

_ENDINGS = {ending.value: ending for ending in Ending}

LONGEST_TEXT = 4_000_000
"""Characters of an observation. All observations of a batch are held in memory, and a tokenizer reads them."""


MOST_NAMES = 1000
"""Names of a task or a step, such as its tags, rewards and actions. They go into files."""


class WireError(ValueError):
    """What came over the border is not what was agreed."""


_FLAGS_OF_NUMPY = (("numpy", "bool_"), ("numpy", "bool"))
"""Its class has another name in NumPy 2."""
_PLAIN = (float, int, bool, type(None))
"""Types of numbers, or of none, that can be printed and sent as they are."""


def checked_episode(episode: Episode) -> Episode:
    """What `episode` returned, if it can start and step. Raises ValueError."""
    if isinstance(episode, type) or not all(callable(getattr(episode, name, None)) for name in ("start", "step")):
        found = f"the class {episode.__name__}" if isinstance(episode, type) else shown(episode)
        raise ValueError(
            f"the environment was expected to return an episode with the methods `start` and `step`, found {found}"
        )
    return episode


def checked_observation(observation: object) -> Observation:
    """What `start` returned, if it is what the contract says. Raises ValueError."""
    if not isinstance(observation, Observation) or not isinstance(observation.text, str):
        raise ValueError(
            f"the environment was expected to return an Observation with a text, found {shown(observation)}"
        )
    if not isinstance(observation.opening, str):
        raise ValueError(f"the environment was expected to give an opening as text, found {shown(observation.opening)}")
    longest = max(len(observation.text), len(observation.opening))
    if longest > LONGEST_TEXT:
        raise ValueError(f"the environment gave a text of {longest:,} characters; expected at most {LONGEST_TEXT:,}")
    if observation.role not in ("user", "tool"):
        raise ValueError(
            f"the environment was expected to give a role of user or tool, found {shown(observation.role)}"
        )
    if observation.images != ():
        fault = images_fault(observation.images)
        if fault:
            raise ValueError(f"the environment was expected to give pictures as {IMAGES_WANTED}, found {fault}")
    return observation


def checked_step(step: object) -> Step:
    """What `step` returned, with its numbers as floats, if it is what the contract says. Raises ValueError."""
    if not isinstance(step, Step):
        raise ValueError(f"the environment was expected to return a Step, found {shown(step)}")
    checked_observation(step.observation)
    _check_particulars(step)
    for name, value in step.rewards.items():
        if not is_finite(value):
            raise ValueError(
                f"the environment gave the reward {shown(name)} as {shown(value)}; expected a finite number"
            )
        if abs(value) > LARGEST_REWARD:
            raise ValueError(
                f"the environment gave the reward {shown(name)} as {shown(value)}; expected at most "
                f"{LARGEST_REWARD:g} in size"
            )
    outcome = step.outcome
    if outcome is None and (step.ending is None or step.ending is Ending.ERROR):
        return _in_floats(step)
    if not isinstance(outcome, Real) or not 0.0 <= outcome <= 1.0:
        ended = "ended an episode" if step.ending is not None else "answered a reply"
        raise ValueError(f"the environment {ended} with outcome {shown(outcome)}; expected a number in [0, 1]")
    return _in_floats(step)


def _in_floats(step: Step) -> Step:
    """The step with numbers that can be printed and sent. An environment may give fractions, or NumPy's numbers."""
    numbers = (*step.rewards.values(), step.outcome, step.progress)
    if type(step.valid) is bool and all(type(number) in _PLAIN for number in numbers):
        return step
    return dataclasses.replace(
        step,
        rewards={name: float(value) for name, value in step.rewards.items()},
        outcome=None if step.outcome is None else float(step.outcome),
        progress=None if step.progress is None else float(step.progress),
        valid=bool(step.valid),
    )


def is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # of a whole number
        return False


def _is_share(value: float) -> bool:
    return isinstance(value, Real) and 0.0 <= value <= 1.0


def _is_flag(value: object) -> bool:
    """True or False, also those of NumPy, and 1 or 0 in their place."""
    kind = type(value)
    return (isinstance(value, Real) and value in (0, 1)) or (kind.__module__, kind.__name__) in _FLAGS_OF_NUMPY


def _check_particulars(step: Step) -> None:
    """Raises ValueError for a field of a kind that could neither be stored nor sent."""
    for name, found, fits, wanted in (
        ("rewards", step.rewards, isinstance(step.rewards, Mapping), "named numbers"),
        ("ending", step.ending, step.ending is None or isinstance(step.ending, Ending), "an Ending or None"),
        ("progress", step.progress, step.progress is None or _is_share(step.progress), "a number in [0, 1] or None"),
        ("actions", step.actions, isinstance(step.actions, list | tuple), "a tuple of names"),
        ("valid", step.valid, _is_flag(step.valid), "True or False"),
        ("effect", step.effect, isinstance(step.effect, str), "text"),
        ("state", step.state, isinstance(step.state, str), "text"),
    ):
        if not fits:
            raise ValueError(f"the environment gave {name} as {shown(found)}; expected {wanted}")
    names = [*step.rewards, *step.actions]
    strange = next((name for name in names if not isinstance(name, str)), None)
    if strange is not None:
        raise ValueError(f"the environment named a reward or an action {shown(strange)}; expected text")


def task_tree(task: Task) -> Tree:
    return dataclasses.asdict(task) | {"tags": list(task.tags)}


def read_task(tree: Tree) -> Task:
    """Raises WireError."""
    fields = _fields(tree, "a task", {"id": str, "seed": int, "split": str, "tags": list}, {"environment": str})
    tags = _names(fields["tags"], "a task's tags")
    _names([fields["id"], fields["split"], fields["environment"] or ""], "a task's id, split and environment")
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
        images = read_images(fields["images"] or [])
    except ValueError as error:
        raise WireError(str(error)) from error
    return Observation(fields["text"], fields["opening"], fields["role"] or "user", images)


def step_tree(step: Step) -> Tree:
    """`step` as a tree. It must have passed `checked_step`."""
    return {
        "observation": observation_tree(step.observation),
        "rewards": {name: float(value) for name, value in step.rewards.items()},
        "ending": None if step.ending is None else step.ending.value,
        "outcome": None if step.outcome is None else float(step.outcome),
        "progress": None if step.progress is None else float(step.progress),
        "actions": list(step.actions),
        "valid": bool(step.valid),
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
    _names(list(fields["rewards"]), "the rewards of a step")
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
    """Texts that are few and short. Raises WireError."""
    if len(items) > MOST_NAMES:
        raise WireError(f"Expected at most {MOST_NAMES:,} texts as {what}, found {len(items):,}.")
    for item in items:
        if not isinstance(item, str) or len(item) > LONGEST_NAME:
            raise WireError(
                f"Expected {what} as texts of at most {LONGEST_NAME:,} characters, found {shown(item)} among them."
            )
    return tuple(items)


def shown(value: object) -> str:
    """A value of a stranger as short text. Long and deep ones are cut before they are written out."""
    text = _BRIEF.repr(value[:100] if isinstance(value, bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _brief() -> reprlib.Repr:
    brief = reprlib.Repr()
    brief.maxlevel = 3
    brief.maxlist = brief.maxtuple = brief.maxdict = 6
    brief.maxstring = brief.maxother = brief.maxlong = 78
    return brief


_BRIEF = _brief()


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
