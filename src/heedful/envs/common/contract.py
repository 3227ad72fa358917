"""The contract of an environment at its border: a user's class may raise or return anything, and the error names it.

What passes here is what `heedful.types` says, and nothing behind it asks again. `check-env` reports the same faults.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from numbers import Real
from typing import Any, TypeVar

from heedful.boundary.foreign_text import brief
from heedful.boundary.limits import LARGEST_REWARD
from heedful.boundary.trust import import_advice, import_named, trust_typed
from heedful.envs.transport.images import IMAGES_WANTED, MOST_IMAGES, image_fault
from heedful.guarded import Answered, Raised, guarded_call
from heedful.protocols import (
    AnswersBlindly,
    AnswersFreely,
    Demonstrates,
    Environment,
    Episode,
    GradesAnswers,
    KnowsRight,
)
from heedful.types import Ending, Observation, Rightness, Step, Task, Worth, nothing_right

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


class ContractError(ValueError):
    """An environment's answer that is not what the contract says. `rule`: the rule of `check-env` that it breaks."""

    def __init__(self, sentence: str, rule: str = "protocol") -> None:
        super().__init__(sentence)
        self.rule = rule


# The environment itself


def made_by(name: str) -> Any:
    """The value of a class or function that a user typed as module:Class. Raises ValueError or OSError."""
    trust_typed(name)
    made = guarded_call(lambda: import_named(name)())
    if isinstance(made, Answered):
        return made.value
    if tells_its_user(made.error) and not isinstance(made.error, ImportError):
        raise made.error
    raise ValueError(
        f"Expected {name!r} to name a class, or a function, that gives an environment when it is called without "
        f"arguments, found {made.located}. {import_advice(name, made.error)}"
    ) from made.error


def own_environment(name: str) -> Any:
    """The environment that a user typed as module:Class, made without arguments. Raises ValueError or OSError."""
    env = made_by(name)
    missing = missing_from(env)
    if missing:
        raise ValueError(
            f"Expected {name!r} to make an environment (`name`, `turns`, `task(seed)`, `episode()`), found {missing}."
        )
    if not isinstance(env.name, str) or not env.name:
        raise ValueError(f"Expected the `name` of the environment {name!r} to be a text, found {brief(env.name)}.")
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
        f"Expected a whole number of at least 1 as `{name}` of the environment {env.name}, found {brief(found)}. "
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
    wanted = f"the task of seed {seed} from the environment {env.name}"
    return _asked(wanted, lambda: checked_task(env.task(seed)), own_words=True)


def checked_task(task: object) -> Task:
    """What `task` returned, if it is what the contract says. Raises ContractError."""
    if not isinstance(task, Task):
        raise ContractError(f"{type(task).__name__} where a Task was expected")
    whole = isinstance(task.seed, int) and not isinstance(task.seed, bool)
    tags = isinstance(task.tags, tuple) and all(isinstance(tag, str) for tag in task.tags)
    for name, fits, wanted in (
        ("id", isinstance(task.id, str) and task.id != "", "a text that names the start state was expected"),
        ("seed", whole and -(2**63) <= task.seed < 2**63, "a whole number of 64 bits was expected"),
        ("split", isinstance(task.split, str), "a text was expected"),
        ("tags", tags, "a tuple of texts was expected"),
        ("environment", isinstance(task.environment, str), "its name was expected"),
    ):
        if not fits:
            raise ContractError(f"a Task with the {name} {brief(getattr(task, name))}; {wanted}")
    return task


def random_answer_of(env: AnswersFreely, task: Task, rng: random.Random) -> str:
    """A random answer. Raises ValueError, a sentence, where `random_answer` raises or returns no text."""
    return _asked(_serving(env, task, "random_answer"), lambda: _texts([env.random_answer(task, rng)])[0])


def blind_answers_of(env: AnswersBlindly, tasks: Sequence[Task]) -> list[str]:
    """The first answers to try blindly. Raises ValueError where `blind_answers` raises or returns other than texts."""
    wanted = f"texts from `blind_answers` of the environment {env.name}"
    return _asked(wanted, lambda: _texts(islice(env.blind_answers(tasks), MOST_CANDIDATES)), own_words=True)


def demonstrated(env: Demonstrates, task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """The (observation, reply) pairs of one episode. Raises ValueError, a sentence, where there are none."""

    def played() -> list[tuple[str, str]]:
        pairs = list(islice(iter(env.demonstrate(task, rng)), MOST_PAIRS + 1))
        if not 0 < len(pairs) <= MOST_PAIRS:
            raise ContractError(f"{'no' if not pairs else f'more than {MOST_PAIRS:,}'} pairs")
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ContractError(f"{type(pair).__name__} in place of two texts")
            _texts(pair)
        return [(observation, reply) for observation, reply in pairs]

    return _asked(_serving(env, task, "demonstrate"), played, " Training with --model PATH needs no demonstrations.")


def rightness_of(env: Environment) -> Rightness:
    """How right the first actions of a task are; `None` of an environment that does not tell.

    Raises ValueError, a sentence, where `right_actions` raises or answers other than the contract says.
    """
    if not isinstance(env, KnowsRight):
        return nothing_right
    return partial(right_actions_of, env)


def right_actions_of(env: KnowsRight, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float] | None:
    """How right each next action is. Raises ValueError, a sentence, where `right_actions` gives no such numbers."""

    def told() -> dict[str, float] | None:
        found = env.right_actions(task, before)
        if found is None:
            return None
        fits = isinstance(found, Mapping) and all(map(_is_share, found.values()))
        if not fits:
            raise ContractError(f"{brief(found)} where actions with a number in [0, 1] each were expected")
        return dict(zip(_texts(found), map(float, found.values()), strict=True))

    return _asked(_serving(env, task, "right_actions"), told)


def worth_of(env: Environment) -> Worth | None:
    """How good whole first answers are. `None`: the environment does not tell. What is returned raises as above."""
    if not isinstance(env, GradesAnswers):
        return None

    def worth(task: Task, reply: str) -> float | None:
        def told() -> float | None:
            found = env.answer_worth(task, reply)
            if found is not None and not _is_share(found):
                raise ContractError(f"{brief(found)} where a number in [0, 1] was expected")
            return None if found is None else float(found)

        return _asked(_serving(env, task, "answer_worth"), told)

    return worth


def steps_of(env: Environment, task: Task, replies: Iterable[str], member: int = 0) -> list[Step]:
    """The environment's answers to these replies, until the episode ends. Raises ValueError where it raises."""

    def played() -> list[Step]:
        episode, steps = env.episode(), list[Step]()
        episode.start(task, member)
        for reply in replies:
            steps.append(checked_step(episode.step(reply)))
            if steps[-1].ending is not None:
                break
        return steps

    return _asked(_serving(env, task, "step"), played)


def _serving(env: Environment, task: Task, name: str) -> str:
    return f"`{name}` of the environment {env.name} to serve task {task.id} (seed {task.seed})"


def _texts(values: Iterable[object]) -> list[str]:
    texts = []
    for value in values:
        if not isinstance(value, str):
            raise ContractError(f"{brief(value)} in place of a text")
        texts.append(value)
    return texts


def _asked(wanted: str, call: Callable[[], Answer], advice: str = "", own_words: bool = False) -> Answer:
    """The environment's answer. Raises ValueError where there is none: `wanted` was expected.

    `own_words`: a sentence of the environment, such as one on a missing file, is raised as it is.
    """
    answer = guarded_call(call)
    if isinstance(answer, Answered):
        return answer.value
    broken = isinstance(answer.error, ContractError)
    # A server that the environment asks and that is away: nothing in the environment is to be mended.
    own_words = own_words or isinstance(answer.error, ConnectionError)
    if own_words and tells_its_user(answer.error) and not broken:
        raise answer.error
    found = str(answer.error) if broken else f"that it raised {answer.located}"
    raise ValueError(f"Expected {wanted}, found {found}. Mend it; `heedful check-env` plays the environment.{advice}")


# Its episodes


def checked_episode(episode: Episode) -> Episode:
    """What `episode` returned, if it can start and step. Raises ContractError."""
    if isinstance(episode, type) or not all(callable(getattr(episode, name, None)) for name in ("start", "step")):
        found = f"the class {episode.__name__}" if isinstance(episode, type) else brief(episode)
        raise ContractError(
            f"the environment was expected to return an episode with the methods `start` and `step`, found {found}"
        )
    return episode


def checked_observation(observation: object) -> Observation:
    """What `start` returned, if it is what the contract says. Raises ContractError."""
    if not isinstance(observation, Observation) or not isinstance(observation.text, str):
        raise ContractError(
            f"the environment was expected to return an Observation with a text, found {brief(observation)}"
        )
    _require(isinstance(observation.opening, str), "an opening", observation.opening, "text")
    longest = max(len(observation.text), len(observation.opening))
    if longest > LONGEST_TEXT:
        raise ContractError(f"the environment gave a text of {longest:,} characters; expected at most {LONGEST_TEXT:,}")
    _require(observation.role in ("user", "tool"), "a role", observation.role, "user or tool")
    images = observation.images
    _require(isinstance(images, tuple) and len(images) <= MOST_IMAGES, "pictures", images, IMAGES_WANTED)
    fault = next(filter(None, map(image_fault, images)), "")
    if fault:
        raise ContractError(f"the environment was expected to give pictures as {IMAGES_WANTED}, found {fault}")
    return observation


def checked_step(step: object) -> Step:
    """What `step` returned, if it is what the contract says. Raises ContractError.

    Its numbers are plain ones then: an environment may give fractions, or NumPy's numbers.
    """
    if not isinstance(step, Step):
        raise ContractError(f"the environment was expected to return a Step, found {brief(step)}")
    checked_observation(step.observation)
    rewards, ending, outcome, valid = step.rewards, step.ending, step.outcome, step.valid
    flag = type(valid).__name__ in ("bool", "bool_") or (isinstance(valid, Real) and valid in (0, 1))
    _require(isinstance(rewards, Mapping), "rewards", rewards, "named numbers", "rewards")
    _require(ending is None or isinstance(ending, Ending), "ending", ending, "an Ending or None", "endings")
    _require(step.progress is None or _is_share(step.progress), "progress", step.progress, f"{_SHARE} or None")
    _require(isinstance(step.actions, list | tuple), "actions", step.actions, "a tuple of names")
    _require(flag, "valid", valid, "True or False")
    _require(isinstance(step.effect, str), "effect", step.effect, "text")
    _require(isinstance(step.state, str), "state", step.state, "text")
    for action in step.actions:
        _require(isinstance(action, str), "an action", action, "text")
    for name, value in rewards.items():
        _require(isinstance(name, str), "the name of a reward", name, "text", "rewards")
        if not is_finite(value) or abs(value) > LARGEST_REWARD:
            wanted = f"at most {LARGEST_REWARD:g} in size" if is_finite(value) else "a finite number"
            _require(False, f"the reward {brief(name)}", value, wanted, "rewards")
    if not _is_share(outcome) and (outcome is not None or ending not in (None, Ending.ERROR)):
        ended = "ended an episode" if ending is not None else "answered a reply"
        raise ContractError(f"the environment {ended} with outcome {brief(outcome)}; expected {_SHARE}", "outcome")
    return dataclasses.replace(
        step,
        rewards={name: float(value) for name, value in rewards.items()},
        outcome=None if outcome is None else float(outcome),
        progress=None if step.progress is None else float(step.progress),
        actions=tuple(step.actions),
        valid=bool(valid),
    )


_SHARE = "a number in [0, 1]"


def _require(fits: bool, name: str, found: object, wanted: str, rule: str = "protocol") -> None:
    if not fits:
        raise ContractError(f"the environment gave {name} as {brief(found)}; expected {wanted}", rule)


def is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # of a whole number
        return False


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1
