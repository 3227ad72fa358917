"""The contract of an environment at its border: a user's class may raise or return anything, and the error names it.

What passes here is what `heedful.types` says, and nothing behind it asks again. `check-env` reports the same faults.
"""

from __future__ import annotations

import dataclasses
import math
import random
import reprlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from numbers import Real
from typing import Any, TypeVar

from heedful.boundary.limits import LARGEST_REWARD
from heedful.boundary.trust import import_advice, import_named, trust_typed
from heedful.envs.transport.images import IMAGES_WANTED, images_fault
from heedful.guarded import Answered, Raised, guarded_call
from heedful.protocols import AnswersBlindly, AnswersFreely, Demonstrates, Environment, Episode
from heedful.types import Ending, Observation, Step, Task

Answer = TypeVar("Answer")

MEMBERS = ("name", "turns", "task", "episode")
"""What an `Environment` consists of."""

MOST_ACTIONS = 10_000
"""Names of actions of an adapted environment."""

MOST_PER_TURN = 1_000
"""Actions that a turn may have."""

LONGEST_TEXT = 4_000_000
"""Characters of an observation. All observations of a batch are held in memory, and a tokenizer reads them."""

MOST_PAIRS = 10_000
"""Replies of one demonstration. A generator without an end has more."""

MOST_CANDIDATES = 64
"""A sequence is extended by two actions at once if that makes no more candidates than this, else by one. Of an
environment's blind answers so many are tried."""

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 3
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = 6
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 78


def shown(value: object) -> str:
    """A value of a stranger as short text. Long and deep ones are cut before they are written out."""
    text = _BRIEF.repr(value[:100] if isinstance(value, bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# The environment itself


def own_environment(name: str) -> Any:
    """The environment that a user typed as module:Class, made without arguments. Raises ValueError or OSError."""
    trust_typed(name)
    made = guarded_call(lambda: import_named(name)())
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
        raise ValueError(f"Expected the `name` of the environment {name!r} to be a text, found {shown(env.name)}.")
    return env


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
    return found


def turns_of(env: Environment) -> int:
    """The most turns of an episode. Raises ValueError for what is no such number."""
    return whole_member(env, "turns", env.turns)


def whole_member(env: Environment, name: str, found: object) -> int:
    """A number that an environment states of itself. Raises ValueError for anything else."""
    if type(found) is int and found >= 1:
        return found
    raise ValueError(
        f"Expected a whole number of at least 1 as `{name}` of the environment {env.name}, found {shown(found)}. "
        "Correct it; `heedful check-env` names every member that is wrong."
    )


def tells_its_user(error: BaseException) -> bool:
    """Whether an environment's error is a sentence about its knobs, a file or a missing package.

    A broken pipe is none. A command that meets one says nothing, since the reader of its output has ended.
    """
    return isinstance(error, ValueError | OSError | ImportError) and not isinstance(
        error, UnicodeError | BrokenPipeError
    )


# Its tasks and what it offers


def task_of_seed(env: Environment, seed: int) -> Task:
    """The task of a seed. Raises ValueError, a sentence, where the environment raises or returns no task."""
    answer = guarded_call(lambda: env.task(seed))
    if isinstance(answer, Raised) and tells_its_user(answer.error):
        raise answer.error
    found = f"that `task` raised {answer.located}" if isinstance(answer, Raised) else task_fault(answer.value)
    if isinstance(answer, Answered) and not found:
        return answer.value
    raise ValueError(
        f"Expected the task of seed {seed} from the environment {env.name}, found {found}. Mend `task`; "
        "`heedful check-env` tries it on many seeds."
    )


def task_fault(task: object) -> str:
    """What is wrong with a task. Empty if nothing is."""
    if not isinstance(task, Task):
        return f"{type(task).__name__} where a Task was expected"
    whole = isinstance(task.seed, int) and not isinstance(task.seed, bool)
    tags = isinstance(task.tags, tuple) and all(isinstance(tag, str) for tag in task.tags)
    for name, value, fits, wanted in (
        ("id", task.id, isinstance(task.id, str) and task.id != "", "a text that names the start state was expected"),
        ("seed", task.seed, whole and -(2**63) <= task.seed < 2**63, "a whole number of 64 bits was expected"),
        ("split", task.split, isinstance(task.split, str), "a text was expected"),
        ("tags", task.tags, tags, "a tuple of texts was expected"),
        ("environment", task.environment, isinstance(task.environment, str), "its name was expected"),
    ):
        if not fits:
            return f"a Task with the {name} {shown(value)}; {wanted}"
    return ""


def random_answer_of(env: AnswersFreely, task: Task, rng: random.Random) -> str:
    """A random answer. Raises ValueError, a sentence, where `random_answer` raises or returns no text."""
    answer = _asked(env, task, "random_answer", lambda: env.random_answer(task, rng))
    if not isinstance(answer, str):
        raise _unusable(env, task, "random_answer", f"it returned {type(answer).__name__}")
    return answer


def blind_answers_of(env: AnswersBlindly, tasks: Sequence[Task]) -> list[str]:
    """The first answers to try blindly. Raises ValueError where `blind_answers` raises or returns other than texts."""
    answer = guarded_call(lambda: list(islice(env.blind_answers(tasks), MOST_CANDIDATES)))
    if isinstance(answer, Raised) and tells_its_user(answer.error):
        raise answer.error
    if isinstance(answer, Answered) and all(isinstance(each, str) for each in answer.value):
        return answer.value
    found = f"that it raised {answer}" if isinstance(answer, Raised) else shown(answer.value)
    raise ValueError(
        f"Expected texts from `blind_answers` of the environment {env.name}, found {found}. Mend it; `heedful "
        "check-env` plays the environment."
    )


def demonstrated(env: Demonstrates, task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """The (observation, reply) pairs of one episode. Raises ValueError, a sentence, where there are none."""
    pairs = _asked(env, task, "demonstrate", lambda: list(islice(iter(env.demonstrate(task, rng)), MOST_PAIRS + 1)))
    if not 0 < len(pairs) <= MOST_PAIRS:
        count = f"{len(pairs)} pairs" if len(pairs) <= MOST_PAIRS else f"more than {MOST_PAIRS:,} pairs"
        raise _unusable(env, task, "demonstrate", f"it returned {count}")
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise _unusable(env, task, "demonstrate", f"it returned {type(pair).__name__} in place of two texts")
    return [(observation, reply) for observation, reply in pairs]


def answer_to(env: Demonstrates, task: Task, reply: str) -> str:
    """What the environment shows after one reply to its first observation. Raises ValueError where it raises."""

    def played() -> str:
        episode = env.episode()
        episode.start(task, 0)
        return checked_step(episode.step(reply)).observation.text

    return _asked(env, task, "step", played)


def _asked(env: Environment, task: Task, name: str, call: Callable[[], Answer]) -> Answer:
    answer = guarded_call(call)
    if isinstance(answer, Raised):
        if isinstance(answer.error, ConnectionError) and tells_its_user(answer.error):
            raise answer.error  # of a server that the environment asks: nothing in the environment is to be mended
        raise _unusable(env, task, name, f"it raised {answer.located}")
    return answer.value


def _unusable(env: Environment, task: Task, name: str, found: str) -> ValueError:
    return ValueError(
        f"Expected `{name}` of the environment {env.name} to serve task {task.id} (seed {task.seed}), found that "
        f"{found}. Mend it; `heedful check-env` plays the environment. Training with --model PATH needs no "
        "demonstrations."
    )


# Its episodes


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
    fault = observation_fault(observation)
    if fault or not isinstance(observation, Observation):
        raise ValueError(fault)
    return observation


def checked_step(step: object) -> Step:
    """What `step` returned, with its numbers as floats, if it is what the contract says. Raises ValueError."""
    fault = step_fault(step)[1]
    if fault or not isinstance(step, Step):
        raise ValueError(fault)
    return _in_floats(step)


def observation_fault(observation: object) -> str:
    """What is wrong with an observation, as a sentence. Empty if nothing is."""
    if not isinstance(observation, Observation) or not isinstance(observation.text, str):
        return f"the environment was expected to return an Observation with a text, found {shown(observation)}"
    if not isinstance(observation.opening, str):
        return f"the environment was expected to give an opening as text, found {shown(observation.opening)}"
    longest = max(len(observation.text), len(observation.opening))
    if longest > LONGEST_TEXT:
        return f"the environment gave a text of {longest:,} characters; expected at most {LONGEST_TEXT:,}"
    if observation.role not in ("user", "tool"):
        return f"the environment was expected to give a role of user or tool, found {shown(observation.role)}"
    fault = images_fault(observation.images) if observation.images != () else ""
    return f"the environment was expected to give pictures as {IMAGES_WANTED}, found {fault}" if fault else ""


def step_fault(step: object) -> tuple[str, str]:
    """The rule of `check-env` that a step breaks, and what is wrong. Both are empty if nothing is."""
    if not isinstance(step, Step):
        return "protocol", f"the environment was expected to return a Step, found {shown(step)}"
    fault = observation_fault(step.observation)
    if fault:
        return "protocol", fault
    flag = type(step.valid).__name__ in ("bool", "bool_") or (isinstance(step.valid, Real) and step.valid in (0, 1))
    for name, found, fits, wanted in (
        ("rewards", step.rewards, isinstance(step.rewards, Mapping), "named numbers"),
        ("ending", step.ending, step.ending is None or isinstance(step.ending, Ending), "an Ending or None"),
        ("progress", step.progress, step.progress is None or _is_share(step.progress), "a number in [0, 1] or None"),
        ("actions", step.actions, isinstance(step.actions, list | tuple), "a tuple of names"),
        ("valid", step.valid, flag, "True or False"),
        ("effect", step.effect, isinstance(step.effect, str), "text"),
        ("state", step.state, isinstance(step.state, str), "text"),
    ):
        if not fits:
            rule = name if name == "rewards" else "endings" if name == "ending" else "protocol"
            return rule, f"the environment gave {name} as {shown(found)}; expected {wanted}"
    strange = next((name for name in (*step.rewards, *step.actions) if not isinstance(name, str)), None)
    if strange is not None:
        rule = "rewards" if strange in step.rewards else "protocol"
        return rule, f"the environment named a reward or an action {shown(strange)}; expected text"
    for name, value in step.rewards.items():
        if not is_finite(value) or abs(value) > LARGEST_REWARD:
            wanted = f"at most {LARGEST_REWARD:g} in size" if is_finite(value) else "a finite number"
            return "rewards", f"the environment gave the reward {shown(name)} as {shown(value)}; expected {wanted}"
    if step.outcome is None and (step.ending is None or step.ending is Ending.ERROR):
        return "", ""
    if not _is_share(step.outcome):
        ended = "ended an episode" if step.ending is not None else "answered a reply"
        return "outcome", f"the environment {ended} with outcome {shown(step.outcome)}; expected a number in [0, 1]"
    return "", ""


def is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # of a whole number
        return False


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0.0 <= float(value) <= 1.0


def _in_floats(step: Step) -> Step:
    """The step with numbers that can be printed and sent. An environment may give fractions, or NumPy's numbers."""
    numbers = (*step.rewards.values(), step.outcome, step.progress)
    if type(step.valid) is bool and all(type(number) in (float, int, bool, type(None)) for number in numbers):
        return step
    return dataclasses.replace(
        step,
        rewards={name: float(value) for name, value in step.rewards.items()},
        outcome=None if step.outcome is None else float(step.outcome),
        progress=None if step.progress is None else float(step.progress),
        valid=bool(step.valid),
    )
