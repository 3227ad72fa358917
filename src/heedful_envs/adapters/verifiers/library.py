"""What is loaded of the library verifiers: an environment, its rows as tasks, its tools, and what is refused.

The library sets signal handlers when an environment is made, and scores an error of a reward function as 0. Both are
prevented here: handlers stay as they are, and errors are noted.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import SimpleNamespace, TracebackType
from typing import Any

from heedful.boundary import import_held
from heedful.envs.common import split_of
from heedful.types import Tool
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.library import load_library, read_options

EVAL_SHARE = 0.2
"""Share of the seeds that draw a row of the eval dataset, where there is one."""

failures: ContextVar[list[BaseException]] = ContextVar("failures")
"""Errors of reward functions of the rollout that is running."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dataset: the start state of a task."""

    content: dict[str, Any]
    split: str
    line: str
    """The row in canonical form."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """An environment of the library, ready to be played."""

    library: Any
    environment: Any
    train: Any
    """Rows for training. `None`: the eval dataset is all there is."""
    eval: Any
    """Rows for evaluation. `None`: rows are split by what they ask."""
    eval_prompts: frozenset[str]
    tools: tuple[Tool, ...]

    def row(self, seed: int) -> Row:
        """The row that a seed draws."""
        rng = random.Random(f"verifiers:{seed}")
        held_out = self.train is None or (self.eval is not None and rng.random() < EVAL_SHARE)
        rows = self.eval if held_out else self.train
        content = dict(rows[rng.randrange(len(rows))])
        asked = _digest(content["prompt"])
        if self.train is None or self.eval is None:
            split = split_of(asked)
        elif asked in self.eval_prompts:
            split = "val" if int(asked[:8], 16) % 2 else "test"
        else:
            split = "train"
        kept = {name: value for name, value in content.items() if name != "example_id"}
        return Row(content, split, json.dumps(kept, sort_keys=True, default=str))

    def rubrics(self) -> list[Any]:
        return _rubrics(self.environment.rubric)


def library() -> Any:
    """The part of the library that has environments and rubrics: its root, or `legacy` in versions 0.3."""
    root = load_library("verifiers")
    if hasattr(root, "MultiTurnEnv"):
        return root
    try:
        return load_library("verifiers", "legacy")
    except ImportError as error:
        raise ValueError(
            f"Expected a version of verifiers with environments and rubrics (0.1.14 to 0.3), found "
            f"{getattr(root, '__version__', 'another one')}, whose agents are programs of their own. Install "
            '"verifiers<0.4".'
        ) from error


@lru_cache(maxsize=8)
def loaded(name: str, options: str, turns: int) -> Loaded:
    """The environment that `module:function` makes, checked. Raises ValueError with a sentence."""
    found = library()
    if ":" not in name:
        raise ValueError(
            f"verifiers: --env.id names the function that makes the environment, as module:load_environment, but is "
            f"{name!r}."
        )
    logging.getLogger("verifiers").setLevel(logging.CRITICAL)
    with OwnRandom(0, name), _no_handlers(found):
        environment = import_held(name)(**read_options("verifiers", "options", options))
        _refuse_unplayable(found, environment, name, turns)

        def given(kind: str) -> bool:
            return any(getattr(environment, f"{kind}{end}", None) is not None for end in ("", "_source"))

        train = environment.get_dataset() if given("dataset") else None
        held_out = environment.get_eval_dataset() if given("eval_dataset") else None
    environment.max_turns = turns
    environment.timeout_seconds = None  # a step has a limit of its own
    for rubric in _rubrics(environment.rubric):
        rubric.funcs = [_noted(function) for function in rubric.funcs]
    asked = frozenset(_digest(row["prompt"]) for row in held_out) if held_out is not None else frozenset()
    tools = tuple(
        Tool(each.name, each.description or "", dict(each.parameters or {}))
        for each in getattr(environment, "tool_defs", None) or ()
    )
    return Loaded(found, environment, train, held_out, asked, tools)


def _refuse_unplayable(found: Any, environment: Any, name: str, turns: int) -> None:
    if not isinstance(environment, found.MultiTurnEnv):
        raise ValueError(
            f"verifiers: expected {name} to make a SingleTurnEnv, MultiTurnEnv or ToolEnv, found a "
            f"{type(environment).__name__}."
        )
    rubrics = _rubrics(environment.rubric)
    if any(isinstance(rubric, found.JudgeRubric) or "judge" in rubric.class_objects for rubric in rubrics):
        raise ValueError(
            f"verifiers: the rubric of {name} asks a judge model over the network, so its rewards can neither be "
            "repeated nor be had offline. Give the environment a rubric of functions."
        )
    if any(rubric.has_group_rewards for rubric in rubrics):
        raise ValueError(
            f"verifiers: the rubric of {name} scores the members of a group together, but an episode is scored by "
            "itself. Give the environment reward functions of one completion."
        )
    if not any(weight for rubric in rubrics for weight in rubric.weights):
        raise ValueError(f"verifiers: the rubric of {name} has no reward function with a weight.")
    own = int(getattr(environment, "max_turns", -1))
    if 0 < own < turns:
        raise ValueError(
            f"verifiers: {name} ends after {own} turn{'s' * (own > 1)}, but --env.turns is {turns}. Set --env.turns to "
            f"at most {own}."
        )


def _rubrics(rubric: Any) -> list[Any]:
    """A rubric and all that it groups, those with functions."""
    inner = [each for part in getattr(rubric, "rubrics", ()) for each in _rubrics(part)]
    return [*inner, *([rubric] if rubric.funcs or not inner else ())]


def _digest(prompt: object) -> str:
    return hashlib.sha256(json.dumps(prompt, sort_keys=True, default=str).encode()).hexdigest()


class _Noting(AbstractContextManager[None]):
    """Notes an error that passes through."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            failures.get([]).append(error)


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same reward function. Its errors are noted before the library turns them into 0."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*values: Any, **named: Any) -> Any:
            with _Noting():
                return await function(*values, **named)

        return awaited

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        with _Noting():
            return function(*values, **named)

    return called


@contextmanager
def _no_handlers(found: Any) -> Iterator[None]:
    """Keep the library from replacing the handlers of SIGINT and SIGTERM, which a thread may not do at all."""
    module: Any = sys.modules[found.Environment.__module__]
    real = getattr(module, "signal", None)
    if real is None:
        yield
        return
    kept = {**vars(real), "signal": lambda number, handler: None}
    module.signal = SimpleNamespace(**kept)
    try:
        yield
    finally:
        module.signal = real
