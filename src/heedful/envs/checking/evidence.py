"""What the rules look at: tasks of many seeds, and episodes of all kinds of replies.

The same environment and effort give the same seeds, tasks and replies.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from heedful.boundary.foreign_text import brief
from heedful.envs.checking.play import Bench, Exchange, Played
from heedful.envs.checking.replies import generated, hostile, ordinary
from heedful.envs.checking.report import Breach, Finding
from heedful.envs.common.contract import missing_from
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
    ordinary: tuple[Played, ...] = ()
    """Played to their end, or two replies beyond their turns."""
    idle: tuple[Played, ...] = ()
    """Episodes of unreadable replies alone, played likewise: the longest that there are."""
    hostile: tuple[Played, ...] = ()
    """Cut after a few replies."""

    @property
    def episodes(self) -> tuple[Played, ...]:
        return self.ordinary + self.idle + self.hostile

    @property
    def sound(self) -> tuple[Played, ...]:
        """Ordinary episodes that did not break."""
        return tuple(played for played in self.ordinary if played.fault is None)

    def exchanges(self) -> Iterator[tuple[Played, int, Exchange]]:
        """(episode, turn from 0, exchange) of everything that was played."""
        for played in self.episodes:
            for turn, exchange in enumerate(played.exchanges):
                yield played, turn, exchange

    def fault_of(self, rule: str) -> Played | None:
        """An episode that was broken off by an answer against a rule. `None` if none was."""
        return next((each for each in self.episodes if each.fault and each.fault.rule == rule), None)

    def refuse(self, rule: str, sentence: str) -> None:
        """Raise the breach of a rule where an episode was broken off by an answer against it."""
        played = self.fault_of(rule)
        if played is not None and played.fault is not None:
            raise Breach(sentence, played.fault.text, played.where(len(played.exchanges)))


def seeds_of(count: int) -> list[int]:
    """Small seeds, and in every fourth place one of the 48-bit numbers that training draws."""
    rng = random.Random("the seeds of a check")
    return [rng.randrange(2**47, 2**48) if place % 4 == 3 else place for place in range(count)]


def gather(bench: Bench, tell: Callable[[str, Finding | None], None]) -> Evidence:
    """Play everything that the rules look at. Raises Breach where that cannot be done."""
    found = _lacking(bench)
    if found:
        raise Breach(
            "the environment lacks what the contract asks for",
            found,
            expected="an environment has `name`, `turns`, `task(seed)` and `episode()`; see docs/environments.md, The "
            "contract",
            remedy="give it what is missing; the other rules are looked at once it has it",
        )
    tell(f"{bench.effort.seeds} tasks", None)
    tasks = tuple(bench.task(seed) for seed in seeds_of(bench.effort.seeds))
    tell("episodes with all kinds of replies", None)
    most = bench.effort.episodes
    played = _until_it_hangs(play_ordinary(bench, tasks[each % len(tasks)], each % MEMBERS) for each in range(most))
    if all(one.late for one in played):
        return Evidence(tasks, played)
    idle = _until_it_hangs(
        bench.play(tasks[each % len(tasks)], each % MEMBERS, lambda told, turn: ("unreadable", "<think>hm"))
        for each in range(max(2, most // 10))
    )
    # An answer that the environment understands, as far as it has said so.
    reply = played[0].exchanges[0].reply if played[0].exchanges else played[0].last[1]
    example = reply.partition("<answer>")[2].partition("</answer>")[0].split("||")[0].strip()[:40] or "1"
    strange = _until_it_hangs(_hostile(bench, tasks, example))
    made: list[Played] = []

    def answered(text: str) -> bool:
        if not (made and made[-1].late):  # one that hangs is enough
            made.append(bench.play(tasks[0], 0, lambda told, turn: ("generated", text), 1))
        return made[-1].late or made[-1].fault is None

    if all(one.fault is None for one in strange):
        generated(example, answered)
        # Of those that broke, the shortest came last.
        strange += (*(one for one in made if one.fault is None), *[one for one in made if one.fault is not None][-1:])
    return Evidence(tasks, played, idle, strange)


def _lacking(bench: Bench) -> str:
    """What keeps the environment from being played at all. Empty if nothing does."""
    env = bench.env
    if isinstance(env, type):
        return f"the class {env.__name__}, not an object of it"
    if found := missing_from(env):
        return found
    for offered in ("actions", "actions_per_turn", "summary"):
        getattr(env, offered, None)  # it may be missing, but reading it must not raise
    if not isinstance(env.name, str) or not re.fullmatch(r"[^\s/\\\x00-\x1f]{1,100}", env.name):
        return f"the name {brief(env.name)}; it becomes part of folder names: no spaces, no slashes"
    if type(env.turns) is not int or env.turns < 1:
        return f"turns = {brief(env.turns)}; a whole number of at least 1 was expected"
    if bench.demand("episode", env.episode, "twice") is bench.demand("episode", env.episode, "twice"):
        return "`episode` returned the same object twice, not a fresh episode each time"
    return ""


def _until_it_hangs(episodes: Iterable[Played]) -> tuple[Played, ...]:
    """The episodes up to the one whose call is the last of `MOST_LATE` that did not return."""
    played: list[Played] = []
    for one in episodes:
        played.append(one)
        if one.late and sum(each.late for each in played) == MOST_LATE:
            break
    return tuple(played)


def play_ordinary(bench: Bench, task: Task, member: int) -> Played:
    """One episode of well-formed replies, the same ones whenever it is played again."""
    rng = random.Random(f"{task.seed}:{member}")
    return bench.play(task, member, lambda told, turn: ("ordinary", ordinary(bench.env, task, told, rng)))


def _hostile(bench: Bench, tasks: Sequence[Task], example: str) -> Iterator[Played]:
    """Each kind of hostile reply from the first turn on, and where there are several, after a well-formed reply."""
    most = min(bench.env.turns, HOSTILE_TURNS)
    for number, (kind, reply) in enumerate(hostile(bench.env, example).items()):
        task = tasks[number % len(tasks)]
        rng = random.Random(f"{task.seed}:{kind}")

        def source(told: str, turn: int, first: int) -> tuple[str, str]:
            return (kind, reply(told)) if turn >= first else ("ordinary", ordinary(bench.env, task, told, rng))  # noqa: B023

        for first in range(min(most, 2)):
            yield bench.play(task, first, partial(source, first=first), most)
