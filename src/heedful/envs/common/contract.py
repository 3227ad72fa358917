"""The environment that a user names, and what an object lacks to be one."""

from __future__ import annotations

from typing import Any

from heedful.boundary.trust import import_advice, import_named, trust_typed
from heedful.guarded import Raised, guarded_call, in_short
from heedful.protocols import Environment
from heedful.types import Task

MEMBERS = ("name", "turns", "task", "episode")
"""What an `Environment` consists of."""

MOST_TURNS = 10**6
"""Turns of an episode, of anyone's environment. One number of a stranger must not take all time and memory."""

MOST_ACTIONS = 10_000
"""Names of actions that an environment may list, and answers for a player that does not read."""

MOST_PER_TURN = 1_000
"""Actions that a turn may have."""

LONGEST_NAME = 1_000
"""Characters of a name, such as that of a tag, a reward or an action. Names go into files."""


def missing_from(env: object) -> str:
    """What the object is and which members it has not, as a clause. Empty if it has all."""
    asked = {name: guarded_call(lambda name=name: getattr(env, name)) for name in MEMBERS}  # type: ignore[misc]
    missing = {name: answer for name, answer in asked.items() if isinstance(answer, Raised)}
    if not missing:
        return ""
    found = f"a {type(env).__name__} without {', '.join(f'`{name}`' for name in missing)}"
    for name, raised in missing.items():
        if not isinstance(raised.error, AttributeError):
            found += f"; `{name}` raised {raised}"
    if "episode" in missing and hasattr(type(env), "make"):
        found += "; it has `make()`, the earlier name of `episode()`: rename that method to `episode`"
    return found


def turns_of(env: Environment) -> int:
    """The most turns of an episode. Raises ValueError for what is no such number."""
    return whole_member(env, "turns", env.turns, MOST_TURNS)


def whole_member(env: Environment, name: str, found: object, most: int) -> int:
    """A number that an environment states of itself. Raises ValueError for anything else."""
    if type(found) is int and 1 <= found <= most:
        return found
    raise ValueError(
        f"Expected a whole number from 1 to {most:,} as `{name}` of the environment {env.name}, found "
        f"{in_short(found)}. Correct it; `heedful check-env` names every member that is wrong."
    )


def task_misfit(task: Task) -> str:
    """What is wrong with the fields of a task, as the object of `with`. Empty if nothing is."""
    if not isinstance(task.id, str) or not task.id:
        return f"the id {in_short(task.id)}; a text that names the start state was expected"
    if not isinstance(task.seed, int) or isinstance(task.seed, bool):
        return f"the seed {in_short(task.seed)}; a whole number was expected"
    if not -(2**63) <= task.seed < 2**63:
        return f"the seed {in_short(task.seed)}; files of episodes store 64 bits"
    if not isinstance(task.split, str):
        return f"the split {in_short(task.split)}; a text was expected"
    if not isinstance(task.tags, tuple) or not all(isinstance(tag, str) for tag in task.tags):
        return f"the tags {in_short(task.tags)}; a tuple of texts was expected"
    if not isinstance(task.environment, str):
        return f"the environment {in_short(task.environment)}; its name was expected"
    return ""


def tells_its_user(error: BaseException) -> bool:
    """Whether an environment's error is a sentence about its knobs, a file or a missing package.

    A broken pipe is none. A command that meets one says nothing, since the reader of its output has ended.
    """
    return isinstance(error, ValueError | OSError | ImportError) and not isinstance(
        error, UnicodeError | BrokenPipeError
    )


def refuse_unless_environment(env: object) -> None:
    """Raise ValueError for a class without an environment's methods. No member is read, since one may ask a server."""
    missing = [name for name in ("task", "episode") if not hasattr(type(env), name)]
    if missing:
        raise ValueError(
            f"Expected an environment, found a {type(env).__name__} without `{'` and `'.join(missing)}`. "
            "Name another class, or add what it lacks."
        )


def own_environment(name: str) -> Any:
    """The environment that a user typed as module:Class, made without arguments. Raises ValueError or OSError."""
    trust_typed(name)
    made = guarded_call(lambda: import_named(name)())  # a user's code
    if isinstance(made, Raised):
        if tells_its_user(made.error) and not isinstance(made.error, ImportError):
            raise made.error
        raise ValueError(
            f"Expected {name!r} to name an importable dataclass that can be made without arguments, found {made}. "
            f"{import_advice(name, made.error)}"
        ) from made.error
    env: Any = made.value
    missing = missing_from(env)
    if missing:
        raise ValueError(
            f"Expected {name!r} to make an environment (`name`, `turns`, `task(seed)`, `episode()`), found {missing}."
        )
    if not isinstance(env.name, str) or not env.name:
        raise ValueError(f"Expected the `name` of the environment {name!r} to be a text, found {in_short(env.name)}.")
    return env
