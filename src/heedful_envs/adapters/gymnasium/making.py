"""How games of gymnasium are made, seeded, described in words and kept for the next episode.

A game always begins in the start state of its seed, even if another episode has used it before. If the library cannot
make a game, its message becomes part of the error.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

from heedful.boundary import import_held
from heedful.envs.common import MOST_ACTIONS, Answered, Raised, guarded_call
from heedful.seeds import derive
from heedful_envs.adapters.extras import load_library
from heedful_envs.adapters.gymnasium.games import (
    Describe,
    Transition,
    base_name,
    digest_of,
    known_game,
    plain_ansi,
    random_lake,
    words_of,
)
from heedful_envs.adapters.gymnasium.solver import Solution, solve
from heedful_envs.adapters.options import read_options, write_options
from heedful_envs.adapters.start_states import has_one_start


class Knobs(Protocol):
    """The knobs that decide how a game is made. See `Gymnasium`."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def options(self) -> str: ...

    @property
    def maps(self) -> Literal["random", "library"]: ...

    @property
    def action_names(self) -> tuple[str, ...]: ...

    @property
    def render(self) -> str: ...

    @property
    def success(self) -> str: ...

    @property
    def turns(self) -> int: ...

    @property
    def actions_per_turn(self) -> int: ...

    def __hash__(self) -> int: ...


def draws_maps(env: Knobs) -> bool:
    """Whether every task has its own map."""
    return env.maps == "random" and base_name(env.id) == "FrozenLake"


_BUILDING = threading.Lock()
"""Held while an environment is made: gymnasium's registry is one for all threads."""


def begin(env: Knobs, seed: int) -> tuple[Any, Any]:
    """An environment in the start state of `seed`, and its first observation. Raises ValueError with a sentence."""
    idle = _idle(env, seed if draws_maps(env) else 0)
    environment = idle.pop() if idle else _make_named(env, seed)
    begun = guarded_call(lambda: environment.reset(seed=derive(seed, "start") % 2**31))
    if isinstance(begun, Raised):
        raise ValueError(f"gymnasium: `reset` of {env.id} raised {begun.located}.") from begun.error
    if not isinstance(begun.value, tuple) or len(begun.value) != 2:
        raise ValueError(
            f"gymnasium: the `reset` of {env.id} was expected to return an observation and a dictionary, found "
            f"{type(begun.value).__name__}."
        )
    return environment, begun.value[0]


def give_back(env: Knobs, seed: int, environment: Any) -> None:
    """Keep a game for another episode. A game that heedful does not know might keep its state, and is dropped."""
    if known_game(env.id):
        _idle(env, seed if draws_maps(env) else 0).append(environment)


@lru_cache(maxsize=1_024)
def _idle(env: Knobs, map_seed: int) -> list[Any]:
    """Environments that no episode plays."""
    return []


def _make_named(env: Knobs, seed: int) -> Any:
    """A new environment, if its actions can be named."""
    options = read_options(env.name, "options", env.options)
    if draws_maps(env):
        options["desc"] = random_lake(seed, 8 if "8x8" in env.id else 4)
    environment = _make(env, options)
    space = environment.action_space
    names = env.action_names or getattr(known_game(env.id), "actions", ())
    if not isinstance(space, load_library("gymnasium").spaces.Discrete):
        raise ValueError(
            f"gymnasium: {env.id} has the action space {space}, but only discrete ones (actions 0, 1, ...) can be "
            "named and played in words."
        )
    count = int(space.n)
    if count > MOST_ACTIONS:
        raise ValueError(f"gymnasium: {env.id} has {count:,} actions; expected at most {MOST_ACTIONS:,}.")
    if names and len(names) != count:
        raise ValueError(
            f"gymnasium: {env.id} has {count} actions, but {len(names)} names are given: {', '.join(names)}. Set "
            "--env.action-names to as many."
        )
    return environment


def _make(env: Knobs, options: dict[str, Any]) -> Any:
    make = partial(load_library("gymnasium").make, env.id, max_episode_steps=-1, disable_env_checker=True)

    def made() -> Any:
        environment = make(**options)
        modes = environment.unwrapped.metadata.get("render_modes") or ()
        if env.render == "auto" and known_game(env.id) is None and "ansi" in modes:
            environment = make(**(options | {"render_mode": "ansi"}))
        return environment

    with _BUILDING:
        answer = guarded_call(made)
    if isinstance(answer, Raised):
        raise ValueError(
            f"gymnasium: {env.id} cannot be made with the options {write_options(options)}; the library says: "
            f"{answer.located}"
        ) from answer.error
    return answer.value


def state_in_words(env: Knobs, environment: Any, observation: Any) -> str:
    """The state in words. Raises ValueError, a sentence, where it cannot be written."""
    answer = guarded_call(lambda: _in_words(env, environment, observation))
    if isinstance(answer, Answered):
        return answer.value
    if isinstance(answer.error, ValueError):
        raise answer.error
    raise ValueError(f"gymnasium: a state of {env.id} cannot be written: {answer.located}.") from answer.error


def _in_words(env: Knobs, environment: Any, observation: Any) -> str:
    core = environment.unwrapped
    if env.render != "auto":
        return _own_renderer(env.render)(core, observation)
    game = known_game(env.id)
    if game:
        return game.describe(core, observation)
    rendered = environment.render() if environment.render_mode == "ansi" else None
    return plain_ansi(rendered) if isinstance(rendered, str) else words_of(observation)


@lru_cache(maxsize=16)
def _own_renderer(name: str) -> Describe:
    try:
        function = import_held(name) if ":" in name else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"gymnasium: render names {name!r}, which cannot be imported: {error}.") from error
    if not callable(function):
        raise ValueError(f"gymnasium: render must be auto or a function as module:function, but is {name!r}.")
    renderer: Describe = function
    return renderer


def noise_generator(seed: int) -> Any:
    """numpy's generator, as gymnasium makes it from a seed."""
    return load_library("gymnasium", "utils.seeding").np_random(seed)[0]


def check_success(success: str) -> None:
    if success in ("auto", "threshold", "terminated"):
        return
    try:
        threshold = float(success)
    except (ValueError, TypeError, OverflowError):
        threshold = math.nan
    if not math.isfinite(threshold):
        raise ValueError(f"gymnasium: success must be auto, threshold, terminated or a number, but is {success!r:.80}.")


def success_threshold(env: Knobs, environment: Any) -> float:
    """The sum of rewards that counts as success."""
    if env.success not in ("auto", "threshold"):
        return float(env.success)
    stated = getattr(environment.spec, "reward_threshold", None)
    if stated is None:
        raise ValueError(
            f"gymnasium: {env.id} states no reward_threshold, so it must be said what counts as success. Set "
            "--env.success to a sum of rewards, or to terminated."
        )
    return float(stated)


@lru_cache(maxsize=16_384)
def start_state(env: Knobs, seed: int) -> str:
    """The start state that a seed draws, in a canonical form."""
    environment, first = begin(env, seed)
    if env.success == "threshold" or (env.success == "auto" and not known_game(env.id)):
        success_threshold(env, environment)
    options = write_options(read_options(env.name, "options", env.options))
    _refuse_out_of_reach(env, seed, environment.unwrapped)
    state = f"{env.id} {options}\n{state_in_words(env, environment, first)}\n{words_of(first, digest_of)}"
    give_back(env, seed, environment)
    return state


@lru_cache(maxsize=64)
def starts_alike(env: Knobs) -> bool:
    return has_one_start(env.id, partial(start_state, env))


@lru_cache(maxsize=64)
def numbered_actions(env: Knobs) -> tuple[str, ...]:
    """The actions of an environment without given names: their numbers."""
    environment, _ = begin(env, 0)
    first = int(environment.action_space.start)
    return tuple(str(number) for number in range(first, first + int(environment.action_space.n)))


@lru_cache(maxsize=1_024)
def solution_of(env: Knobs, seed: int) -> Solution:
    """What can be reached within the limits on the map of a seed."""
    if not draws_maps(env) and seed:
        return solution_of(env, 0)
    environment, _ = begin(env, seed)
    solution = solve(environment.unwrapped, env.turns * env.actions_per_turn, partial(_succeeds, env))
    give_back(env, seed, environment)
    return solution


def _succeeds(env: Knobs, reward: float) -> bool:
    game = known_game(env.id)
    return game is not None and game.outcome(Transition(reward, reward, terminated=True)) == 1.0


def _refuse_out_of_reach(env: Knobs, seed: int, core: Any) -> None:
    """Raises a sentence if a game that can be solved cannot be solved within the limits from this start state."""
    states = len(getattr(core, "P", ()))
    limit = env.turns * env.actions_per_turn
    # A way without detours is shorter than the number of states.
    if limit < states and not solution_of(env, seed).chances[int(core.s)]:
        raise ValueError(
            f"gymnasium: from the start state of seed {seed}, {env.id} cannot be solved within {env.turns} turns "
            f"of {env.actions_per_turn} actions. Raise --env.turns or --env.actions-per-turn."
        )
