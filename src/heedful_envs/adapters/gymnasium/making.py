"""How games of gymnasium are made, seeded, described in words and kept for the next episode.

A game always begins in the start state of its seed, even if another episode has used it before. If the library cannot
make a game, its message becomes part of the error.
"""

from __future__ import annotations

import hashlib
import threading
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from heedful.boundary import import_held
from heedful.envs.common import MOST_ACTIONS
from heedful.seeds import derive
from heedful_envs.adapters.gymnasium.games import Describe, base_name, known_game, plain_ansi, random_lake, words_of
from heedful_envs.adapters.gymnasium.solver import Solution, solve
from heedful_envs.adapters.library import load_library, made_by_library, read_options, write_options

if TYPE_CHECKING:
    from heedful_envs.adapters.gymnasium.environment import Gymnasium


def draws_maps(env: Gymnasium) -> bool:
    """Whether every task has its own map."""
    return env.maps == "random" and base_name(env.id) == "FrozenLake"


MOST_NUMBERS = 100_000
"""Numbers of an observation that is read in words."""

_BUILDING = threading.Lock()
"""Held while an environment is made: gymnasium's registry is one for all threads."""


def begin(env: Gymnasium, seed: int) -> tuple[Any, Any]:
    """An environment in the start state of `seed`, and its first observation. Raises ValueError with a sentence."""
    idle = _idle(env, seed if draws_maps(env) else 0)
    environment = idle.pop() if idle else _make_named(env, seed)
    first, _ = environment.reset(seed=derive(seed, "start") % 2**31)
    return environment, first


def give_back(env: Gymnasium, seed: int, environment: Any) -> None:
    """Keep a game for another episode. A game that heedful does not know might keep its state, and is dropped."""
    if known_game(env.id):
        _idle(env, seed if draws_maps(env) else 0).append(environment)


@lru_cache(maxsize=1_024)
def _idle(env: Gymnasium, map_seed: int) -> list[Any]:
    """Environments that no episode plays."""
    return []


def _make_named(env: Gymnasium, seed: int) -> Any:
    """A new environment, if its actions can be named."""
    library = load_library("gymnasium")
    options = read_options(env.name, "options", env.options)
    if draws_maps(env):
        options["desc"] = random_lake(seed, 8 if "8x8" in env.id else 4)
    make = partial(library.make, env.id, max_episode_steps=-1, disable_env_checker=True)

    def made() -> Any:
        environment = make(**options)
        modes = environment.unwrapped.metadata.get("render_modes") or ()
        if env.render == "auto" and known_game(env.id) is None and "ansi" in modes:
            environment = make(**(options | {"render_mode": "ansi"}))
        return environment

    with _BUILDING:
        environment = made_by_library(f"gymnasium: {env.id}", write_options(options), made)
    space = environment.action_space
    if not isinstance(space, library.spaces.Discrete):
        raise ValueError(
            f"gymnasium: {env.id} has the action space {space}, but only discrete ones (actions 0, 1, ...) can be "
            "named and played in words."
        )
    names = env.action_names or getattr(known_game(env.id), "actions", ())
    if int(space.n) > MOST_ACTIONS or (names and len(names) != space.n):
        raise ValueError(
            f"gymnasium: {env.id} has {space.n:,} actions of at most {MOST_ACTIONS:,}, and {len(names)} names are "
            f"given: {', '.join(names)}. Set --env.action-names to as many."
        )
    return environment


def state_in_words(env: Gymnasium, environment: Any, observation: Any) -> str:
    """The state in words."""
    core = environment.unwrapped
    if env.render != "auto":
        own: Describe = import_held(env.render)
        return own(core, observation)
    game = known_game(env.id)
    if game:
        return game.describe(core, observation)
    rendered = environment.render() if environment.render_mode == "ansi" else None
    if not isinstance(rendered, str) and getattr(observation, "size", 0) > MOST_NUMBERS:
        raise ValueError(
            f"gymnasium: an observation of {observation.size:,} numbers is too long to be read in words; expected "
            f"at most {MOST_NUMBERS:,}. Set --env.render to a function of your own."
        )
    return plain_ansi(rendered) if isinstance(rendered, str) else words_of(observation)


def success_threshold(env: Gymnasium, environment: Any) -> float:
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
def start_state(env: Gymnasium, seed: int) -> str:
    """The start state that a seed draws, in a canonical form."""
    environment, first = begin(env, seed)
    if env.success == "threshold" or (env.success == "auto" and not known_game(env.id)):
        success_threshold(env, environment)
    core, limit = environment.unwrapped, env.turns * env.actions_per_turn
    # A way without detours is shorter than the number of states.
    if limit < len(getattr(core, "P", ())) and not solution_of(env, seed).chances[int(core.s)]:
        raise ValueError(
            f"gymnasium: from the start state of seed {seed}, {env.id} cannot be solved within {env.turns} turns "
            f"of {env.actions_per_turn} actions. Raise --env.turns or --env.actions-per-turn."
        )
    options = write_options(read_options(env.name, "options", env.options))
    large = getattr(first, "size", 0) > MOST_NUMBERS
    seen = hashlib.sha256(first.tobytes()).hexdigest() if large else words_of(first)
    state = f"{env.id} {options}\n{state_in_words(env, environment, first)}\n{seen}"
    give_back(env, seed, environment)
    return state


@lru_cache(maxsize=64)
def numbered_actions(env: Gymnasium) -> tuple[str, ...]:
    """The actions of an environment without given names: their numbers."""
    environment, _ = begin(env, 0)
    first = int(environment.action_space.start)
    return tuple(str(number) for number in range(first, first + int(environment.action_space.n)))


@lru_cache(maxsize=1_024)
def solution_of(env: Gymnasium, seed: int) -> Solution:
    """What can be reached within the limits on the map of a seed."""
    if not draws_maps(env) and seed:
        return solution_of(env, 0)
    environment, game = begin(env, seed)[0], known_game(env.id)
    solution = solve(
        environment.unwrapped,
        env.turns * env.actions_per_turn,
        lambda reward: game is not None and game.outcome(reward, True) == 1.0,
    )
    give_back(env, seed, environment)
    return solution
