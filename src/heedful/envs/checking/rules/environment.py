"""Rules on the environment itself: the protocol and its types, frozen knobs, one-line summary, pickled copies.

`open_environment` comes first: where it finds something broken, no other rule can be checked.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections import Counter
from functools import partial
from itertools import islice
from typing import Any

from heedful.boundary import from_json, to_json
from heedful.envs.checking.evidence import Evidence, seeds_of
from heedful.envs.checking.play import Bench, Broke, made_anew
from heedful.envs.checking.report import Finding, absent, broken, holds, in_words, shortened, unchecked
from heedful.envs.common.contract import MOST_ACTIONS, MOST_PER_TURN, MOST_TURNS, missing_from, task_misfit
from heedful.guarded import Raised, guarded_call
from heedful.protocols import Summarises

_CONTRACT = "an environment has `name`, `turns`, `task(seed)` and `episode()`; see docs/environments.md, The contract"


def open_environment(bench: Bench) -> Finding | None:
    """What keeps the environment from being played at all. `None` if nothing does.

    Raises ImportError where a library is missing: that is not a fault of the environment.
    """
    try:
        sentence = bench.demand("members", lambda: _attributes(bench.env), "") or _played_misfit(bench)
    except Broke as broke:
        if isinstance(broke.fault.error, ImportError):
            raise broke.fault.error from None
        return broken(
            "the environment cannot be played",
            expected=_CONTRACT,
            found=str(broke),
            where=broke.where,
            remedy="make it draw tasks and start episodes; the other rules are looked at once it does",
        )
    if not sentence:
        return None
    return broken(
        "the environment lacks what the contract asks for", expected=_CONTRACT, found=sentence, remedy=_REMEDY
    )


def _played_misfit(bench: Bench) -> str:
    """What is wrong with the first tasks, or with how episodes are made. Empty if nothing is. Raises Broke."""
    for seed in seeds_of(5):
        task = bench.task(seed)
        misfit = task_misfit(task)
        if misfit:
            return f"`task({seed})` with {misfit}"
        bench.start(task, 0)
    made = [bench.demand("episode", bench.env.episode, "twice") for _ in range(2)]
    return "`episode` returned the same object twice, not a fresh episode each time" if made[0] is made[1] else ""


_REMEDY = "give it what is missing; the other rules are looked at once it has it"


def _attributes(env: Any) -> str:
    """What is wrong with the four members. Empty if nothing is."""
    if isinstance(env, type):
        return f"the class {env.__name__} itself; an environment is an object of it, made without arguments"
    # An environment may lack them, but reading them must not raise.
    listed, most, _ = (getattr(env, name, None) for name in ("actions", "actions_per_turn", "summary"))
    if isinstance(listed, tuple | list) and len(list(islice(listed, MOST_ACTIONS + 1))) > MOST_ACTIONS:
        return f"`actions` with more than {MOST_ACTIONS:,} names"
    if isinstance(most, int) and most > MOST_PER_TURN:
        return f"actions_per_turn = {in_words(most)}; at most {MOST_PER_TURN:,} was expected"
    missing = missing_from(env)
    if missing:
        return missing
    name, turns = env.name, env.turns
    if not isinstance(name, str) or not re.fullmatch(r"[^\s/\\\x00-\x1f]{1,100}", name):
        said = "it becomes part of folder names: no spaces, no slashes, at most 100 characters"
        return f"the name {in_words(name)}; {said}"
    if type(turns) is not int or not 1 <= turns <= MOST_TURNS:
        return f"turns = {in_words(turns)}; a whole number from 1 to {MOST_TURNS:,} was expected"
    uncallable = [name for name in ("task", "episode") if not callable(getattr(env, name))]
    return f"`{uncallable[0]}`, which cannot be called" if uncallable else ""


def protocol(bench: Bench, evidence: Evidence) -> Finding:
    """Everything that episodes answered has the types that the contract says."""
    for played in evidence.episodes:
        if played.fault is not None and played.fault.kind == "type":
            return _mistyped(str(played.fault), played.where(len(played.exchanges)))
    for played, turn, exchange in evidence.exchanges():
        misfit = _step_misfit(exchange.step)
        if misfit:
            return _mistyped(misfit, played.where(turn))
    return holds("the environment, its tasks, observations and steps have what the contract asks for")


def _mistyped(found: str, where: str) -> Finding:
    return broken(
        "an episode answered what the contract does not know",
        expected="start returns an Observation, step a Step, with the types that heedful.types gives their fields",
        found=found,
        where=where,
        remedy="return the type that is expected",
    )


def _step_misfit(step: Any) -> str:
    if not isinstance(step.actions, tuple) or not all(isinstance(action, str) for action in step.actions):
        return f"a Step whose actions are {in_words(step.actions)}, not a tuple of texts"
    if not isinstance(step.valid, bool):
        return f"a Step whose valid is {in_words(step.valid)}, neither True nor False"
    for name in ("effect", "state"):
        if not isinstance(getattr(step, name), str):
            return f"a Step whose {name} is {in_words(getattr(step, name))}, not text"
    if "\n" in step.effect:
        return f"a Step whose effect has several lines: {shortened(step.effect)}"
    progress = step.progress
    number = isinstance(progress, int | float) and not isinstance(progress, bool) and 0 <= progress <= 1
    if progress is not None and not number:
        return f"a Step whose progress is {in_words(progress)}, neither None nor a number in [0, 1]"
    return ""


def frozen(bench: Bench, evidence: Evidence) -> Finding:
    """The environment is a frozen dataclass. Equal knobs give equal environments."""
    env = bench.env
    expected = "a frozen dataclass whose fields are the knobs, so that equal knobs make equal environments"
    remedy = (
        "write @dataclass(frozen=True) above the class, and give fields values that can be hashed (tuples, no lists)"
    )
    if not dataclasses.is_dataclass(env):
        found = f"{type(env).__name__} is no dataclass: its knobs cannot be set, stored or compared"
        return broken("the environment is no dataclass", expected=expected, found=found, remedy=remedy)
    for field in dataclasses.fields(env):
        value = getattr(env, field.name)
        if not isinstance(guarded_call(partial(setattr, env, field.name, value)), Raised):
            found = f"the knob {field.name} can be set on the finished object"
            return broken("the environment is not frozen", expected=expected, found=found, remedy=remedy)
    copied = guarded_call(lambda: made_anew(env))
    if isinstance(copied, Raised):
        return broken("the environment cannot be copied", expected=expected, found=str(copied), remedy=remedy)
    # A set asks for hash and equality at once.
    together = guarded_call(lambda: len({env, copied.value}))
    if isinstance(together, Raised):
        return broken("the environment cannot be hashed", expected=expected, found=str(together), remedy=remedy)
    if together.value != 1:
        found = "a copy with the same knobs is another environment"
        return broken("equal knobs give different environments", expected=expected, found=found, remedy=remedy)
    names = ", ".join(field.name for field in dataclasses.fields(env)) or "none"
    return holds(f"the environment is frozen, can be hashed, and equals its copy; its knobs: {names}")


def knobs(bench: Bench, evidence: Evidence) -> Finding:
    """Every knob can be set by a flag, written into a run's configuration, and read back."""
    env = bench.env
    if not dataclasses.is_dataclass(env):
        return unchecked("the environment is no dataclass: see frozen")
    read = guarded_call(lambda: from_json(type(env), to_json(env)))
    if isinstance(read, Raised) or not _same(read.value, env):
        return broken(
            "a knob cannot be written into a run's configuration",
            expected="fields of the kinds that a configuration knows: bool, int, float, str, Path, Literal, Enum, "
            "None, unions and tuples of these, and dataclasses",
            found=shortened(str(read), 300)[1:-1] if isinstance(read, Raised) else f"read back: {in_words(read.value)}",
            remedy="give the field a plain type; what is worked out from it belongs in a method or a cached function",
        )
    return holds("knobs can be set by flags, written into a run's configuration and read back")


def summary(bench: Bench, evidence: Evidence) -> Finding:
    """One line on what the task is, where there is one."""
    if not isinstance(bench.env, Summarises):
        return absent("the environment has no `summary`, which lists show beside its name")
    text = bench.env.summary
    if isinstance(text, str) and text.strip() and "\n" not in text:
        return holds(text)
    found = shortened(text) if isinstance(text, str) else in_words(text)
    return broken(
        "`summary` is not one line", expected="one line of text", found=found, remedy="say the task in one line"
    )


def pickled(bench: Bench, evidence: Evidence) -> Finding:
    """Environment and tasks survive the way to a worker process."""
    for name, thing in (("the environment", bench.env), ("a task", evidence.tasks[0])):
        copied = guarded_call(lambda thing=thing: pickle.loads(pickle.dumps(thing)))  # type: ignore[misc]
        expected = f"{name} equal to its copy after pickle, which is how it travels to a worker process"
        remedy = (
            "define the class at the top level of a module, and keep open files, generators and lambdas out of fields"
        )
        if isinstance(copied, Raised):
            return broken(f"{name} cannot be pickled", expected=expected, found=str(copied), remedy=remedy)
        if not _same(copied.value, thing):
            found = f"the copy is {in_words(copied.value)}"
            return broken(f"{name} is another one after pickle", expected=expected, found=found, remedy=remedy)
    return holds("the environment and its tasks can be sent to a worker process")


def _same(one: Any, other: Any) -> bool:
    """Equal knob by knob. Whether equal knobs make equal environments is asked elsewhere."""
    if type(one) is not type(other) or not dataclasses.is_dataclass(one):
        return type(one) is type(other)
    return all(getattr(one, field.name) == getattr(other, field.name) for field in dataclasses.fields(one))


def kinds_of(names: list[str], most: int = 4) -> str:
    """The first few distinct names, and how many more there are."""
    distinct = list(Counter(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more
