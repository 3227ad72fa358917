"""One episode of a heedful environment, played with an asynchronous sampler. Neither verl nor torch is needed.

The episodes are those of `heedful.rollout`. The environment works in a thread, so it holds up no other episode.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar

from heedful import envs
from heedful.boundary import Choice, Count, Threads, from_json, parse_json, settings, trusting
from heedful.envs.common import in_tags, turns_of
from heedful.models import Renderer, unanswered
from heedful.protocols import Environment
from heedful.rollout import Context, Player, made
from heedful.types import Ending, Task, Trajectory

Answer = TypeVar("Answer")


@settings
class PlayConfig:
    """How heedful's environments are played in verl."""

    tokens_per_turn: Count | None = None
    """Most tokens sampled in one reply. none = verl's rollout.response_length."""
    context: Context = field(default_factory=Context)
    """How much of the episode a prompt shows. Windows give one row of verl per restart."""
    threads: Threads = 32
    """Environments at work at once in each of verl's agent workers."""
    trust: tuple[str, ...] = ()
    """Modules that task files may name as module:Class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEnvironment:
    """The environment of a task, as a task file holds it."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""


@lru_cache(64)
def environment_of(text: str, trust: tuple[str, ...] = ()) -> Environment:
    """The environment of this JSON, made once per process.

    Raises ValueError for knobs that the environment does not have, and for code that is not trusted.
    """
    with trusting(trust, setting="heedful.play.trust"):
        env: Environment = from_json(PlayedEnvironment, {"env": parse_json(text)}).env
    return env


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sampler returned for one context."""

    ids: Sequence[int]
    logprobs: Sequence[float] = ()
    """One per id, or empty if the sampler gives none."""
    versions: tuple[int, int] | None = None
    """The first and the last version of the weights that sampled it. `None` = unknown."""


class Sampler(Protocol):
    """Samples at most `most` tokens after these ids."""

    async def __call__(self, ids: Sequence[int], most: int) -> Sampled: ...


class Aborted(RuntimeError):
    """The sampler stopped before the reply ended, and will not continue it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens of one reply, and of one context with its reply."""

    reply: int
    window: int

    def left(self, context: int) -> int:
        """The most tokens that may follow this many. Below 1 = no room."""
        return min(self.reply, self.window - context)


@dataclass(frozen=True, slots=True)
class Played:
    """A finished episode with its times."""

    trajectory: Trajectory
    versions: tuple[int, int] | None
    """The first and the last version of the weights over all turns."""
    sampling: float
    """Seconds that waited for the sampler."""
    stepping: float
    """Seconds that waited for the environment."""


async def play(
    seat: tuple[Environment, Task, int],
    context: Context,
    renderer: Renderer,
    sampler: Sampler,
    limits: Limits,
    temperature: float,
    threads: Executor | None = None,
) -> Played:
    """Play one member of a task to its end. `threads`: where the environment works. None = asyncio's own.

    A context without room for a reply ends the episode as `OUT_OF_TOKENS`, and the sampler is not asked. An environment
    that raises ends it as `ERROR`, without an outcome. Raises what the sampler raises.
    """
    env, task, member = seat
    spoken = in_tags(env, renderer.tags)
    clock = _Clock(threads)
    player = await clock.of_environment(lambda: Player(made(spoken.episode), task, member, turns_of(env), context))
    versions: tuple[int, int] | None = None
    while player.ending is None:
        conversation = player.conversation
        prompt, ids = renderer.next_prompt(conversation), renderer.context_ids(conversation)
        most = limits.left(len(ids))
        reply = unanswered(prompt)
        if most >= 1:
            begun = time.perf_counter()
            sampled = await sampler(ids, most)
            clock.sampling += time.perf_counter() - begun
            reply = renderer.parse(prompt, tuple(sampled.ids), tuple(sampled.logprobs))
            if versions is None or sampled.versions is None:
                versions = sampled.versions or versions
            else:
                versions = min(versions[0], sampled.versions[0]), max(versions[1], sampled.versions[1])
        await clock.of_environment(lambda reply=reply: player.advance(reply))  # type: ignore[misc]
    version = 0 if versions is None else versions[1]
    return Played(player.trajectory(temperature, version), versions, clock.sampling, clock.stepping)


def reward_and_measures(trajectory: Trajectory) -> tuple[float, dict[str, float]] | None:
    """The reward of an episode, and what verl averages in its validation. `None` for an episode that was never scored.

    The measures have the same names in every episode: `acc` (success), and the shares of turns with a valid action, a
    closed thought and a cut reply, and the number of turns.
    """
    reward, turns = trajectory.reward, trajectory.turns
    if reward is None or trajectory.outcome is None or trajectory.ending is Ending.ERROR or not turns:
        return None
    measures = {
        "acc": float(trajectory.outcome),
        "valid": sum(turn.valid for turn in turns) / len(turns),
        "closed": sum(turn.reply.closed for turn in turns) / len(turns),
        "cut": sum(turn.reply.cut for turn in turns) / len(turns),
        "turns": float(len(turns)),
    }
    return reward, measures


@dataclass(slots=True)
class _Clock:
    """Runs the environment in a thread, and counts the seconds of both sides."""

    threads: Executor | None
    sampling: float = 0.0
    stepping: float = 0.0

    async def of_environment(self, call: Callable[[], Answer]) -> Answer:
        begun = time.perf_counter()
        answer = await asyncio.get_running_loop().run_in_executor(self.threads, call)
        self.stepping += time.perf_counter() - begun
        return answer
