"""What the rules of a check examine: tasks of many seeds, and episodes of good, unreadable and adversarial replies.

The same environment and effort give the same seeds, tasks and replies. Each kind of hostile reply is the first reply
of one episode. If there are several turns, it also follows a well-formed reply in another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.envs.checking.play import Bench, Exchange, Played
from heedful.envs.checking.replies import Reply, hostile, listed_actions, ordinary, random_answer
from heedful.types import Task

HOSTILE_TURNS = 3
"""Most replies of a hostile episode: a million characters are read so often, and no more."""

MOST_LATE = 5
"""Hanging calls of one kind of episodes after which no more of them are played: each costs the whole patience."""

MEMBERS = 4
"""Member numbers that occur."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was drawn and played before the rules look at it."""

    tasks: tuple[Task, ...]
    """The tasks of `seeds_of(effort.seeds)`, in that order."""
    ordinary: tuple[Played, ...]
    """Played to their end, or two replies beyond their turns."""
    idle: tuple[Played, ...]
    """Episodes of unreadable replies alone, played likewise: the longest that there are."""
    hostile: tuple[Played, ...]
    """Cut after a few replies."""
    canary: Path
    """The file that a reply creates where it is executed."""

    @property
    def episodes(self) -> tuple[Played, ...]:
        return self.ordinary + self.idle + self.hostile

    @property
    def whole(self) -> tuple[Played, ...]:
        """Those that were not cut and did not break."""
        return tuple(played for played in self.ordinary + self.idle if played.fault is None)

    @property
    def sound(self) -> tuple[Played, ...]:
        """Ordinary episodes that did not break."""
        return tuple(played for played in self.ordinary if played.fault is None)

    def exchanges(self) -> Iterator[tuple[Played, int, Exchange]]:
        """(episode, turn from 0, exchange) of everything that was played."""
        for played in self.episodes:
            for turn, exchange in enumerate(played.exchanges):
                yield played, turn, exchange


def seeds_of(count: int) -> list[int]:
    """Small seeds, and in every fourth place one of the 48-bit numbers that training draws."""
    rng = random.Random("the seeds of a check")
    return [rng.randrange(2**47, 2**48) if place % 4 == 3 else place for place in range(count)]


def gather(bench: Bench, tasks: Sequence[Task], canary: Path) -> Evidence:
    """Play everything that the rules look at. Raises Broke where an episode cannot be started."""
    most = bench.effort.episodes
    played = _until_it_hangs(
        play_ordinary(bench, tasks[number % len(tasks)], number % MEMBERS) for number in range(most)
    )
    kinds = hostile(bench.env, example_answer(bench.env, tasks[0], played[0].first.text), canary)
    if not any(one.fault is None or one.fault.kind != "late" for one in played):
        return Evidence(tuple(tasks), played, (), (), canary)
    idle = _until_it_hangs(
        bench.play(tasks[number % len(tasks)], number % MEMBERS, lambda shown, turn: ("unreadable", "<think>hm"))
        for number in range(max(2, most // 10))
    )
    return Evidence(tuple(tasks), played, idle, _until_it_hangs(_hostile_episodes(bench, tasks, kinds)), canary)


def _until_it_hangs(episodes: Iterable[Played]) -> tuple[Played, ...]:
    """The episodes up to the one whose call is the last of `MOST_LATE` that did not return."""
    played: list[Played] = []
    late = 0
    for one in episodes:
        played.append(one)
        late += one.fault is not None and one.fault.kind == "late"
        if late == MOST_LATE:
            break
    return tuple(played)


def play_ordinary(bench: Bench, task: Task, member: int) -> Played:
    """One episode of well-formed replies, the same ones whenever it is played again."""
    rng = random.Random(f"{task.seed}:{member}")
    return bench.play(task, member, lambda shown, turn: ("ordinary", ordinary(bench.env, task, shown, rng)))


def example_answer(env: Any, task: Task, observation: str) -> str:
    """An answer that the environment understands, as far as it says so, else a word of the observation."""
    answer = random_answer(env, task, random.Random("an example"))
    return answer or [*listed_actions(env), *observation.split(), "1"][0][:40]


def _hostile_episodes(bench: Bench, tasks: Sequence[Task], kinds: Mapping[str, Reply]) -> Iterator[Played]:
    most = min(bench.turns, HOSTILE_TURNS)
    for number, (kind, reply) in enumerate(kinds.items()):
        task = tasks[number % len(tasks)]
        yield bench.play(task, 0, lambda shown, turn, kind=kind, reply=reply: (kind, reply(shown)), most)  # type: ignore[misc]
        if most > 1:
            yield _after_an_ordinary_one(bench, task, kind, reply, most)


def _after_an_ordinary_one(bench: Bench, task: Task, kind: str, reply: Reply, most: int) -> Played:
    rng = random.Random(f"{task.seed}:{kind}")

    def source(shown: str, turn: int) -> tuple[str, str]:
        return (kind, reply(shown)) if turn else ("ordinary", ordinary(bench.env, task, shown, rng))

    return bench.play(task, 1, source, most)
