"""From a stream of episodes to steps: a log is a sequence of steps, and each is measured as a whole.

Memory holds one step and a bounded number of others that may still receive late episodes. An episode that comes after
its step was handed on is counted and named.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from heedful.auditing.logs.records import Faults, LoggedEpisode
from heedful.auditing.logs.values import digest
from heedful.types import Group, Task, Trajectory, Verdict

STEPS_HELD = 16
"""Steps that wait for late episodes."""
SIZE_HELD = 64 * 2**20
"""Bytes that waiting steps may take together; beyond, the oldest is handed on at once."""
LARGEST_STEP = 768 * 2**20
"""Bytes of text and ids from which a step is refused."""
_BYTES_PER_NUMBER = 36
_BYTES_PER_EPISODE = 2000


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """All episodes of one step."""

    number: int
    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...] | None
    """One per group where the log holds them for all."""
    messages: Mapping[str, tuple[Mapping[str, str], ...]]
    """First prompt as text -> as messages, where the log holds messages."""
    fingerprint: str
    """Equal for steps that hold the same texts with the same rewards in the same order."""
    read: int = 0
    """Bytes of the log that were read when its last episode came."""

    @property
    def episodes(self) -> int:
        return sum(len(group.trajectories) for group in self.groups)


@dataclass(slots=True)
class StepStream:
    """Gathers episodes into steps. Iterate over it once; afterwards it knows how the log was ordered."""

    episodes: Iterable[LoggedEpisode]
    faults: Faults
    position: Callable[[], int] = lambda: 0
    """How many bytes of the log were read so far."""
    interleaved: int = 0
    """Episodes that came after one of another step had begun."""

    def __iter__(self) -> Iterator[LoggedStep]:
        waiting: OrderedDict[int, _Gathering] = OrderedDict()
        done: set[int] = set()
        newest: int | None = None
        for episode in self.episodes:
            step = episode.step
            if step in done:
                self.faults.add(
                    episode.place,
                    f"the episodes of step {step} within {STEPS_HELD} steps of each other",
                    f"one after step {step} was measured: sort the log by step",
                )
                continue
            if step not in waiting:
                waiting[step], newest = _Gathering(step), step
            elif step != newest:
                self.interleaved += 1
            waiting[step].add(episode, self.position())
            while len(waiting) > 1 and _too_much(waiting.values()):
                number = min(list(waiting)[:-1])
                done.add(number)
                yield waiting.pop(number).finished()
        for number in sorted(waiting):
            yield waiting[number].finished()


def joined(steps: Iterable[LoggedStep], count: int) -> Iterator[LoggedStep]:
    """Consecutive steps, `count` at a time, as one with the number of the first. A repeated step counts once."""
    held: list[LoggedStep] = []
    fingerprint = ""
    for step in steps:
        if count > 1 and step.fingerprint == fingerprint:
            continue
        fingerprint = step.fingerprint
        held.append(step)
        if len(held) == count:
            yield _as_one(held)
            held = []
    if held:
        yield _as_one(held)


def _as_one(steps: list[LoggedStep]) -> LoggedStep:
    if len(steps) == 1:
        return steps[0]
    verdicts = [step.verdicts for step in steps if step.verdicts is not None]
    return LoggedStep(
        steps[0].number,
        tuple(group for step in steps for group in step.groups),
        tuple(verdict for each in verdicts for verdict in each) if len(verdicts) == len(steps) else None,
        {prompt: messages for step in steps for prompt, messages in step.messages.items()},
        digest(*(step.fingerprint for step in steps)),
        steps[-1].read,
    )


@dataclass(slots=True)
class _Gathering:
    """One step that is still growing."""

    number: int
    size: int = 0
    read: int = 0
    episodes: dict[str, list[LoggedEpisode]] = field(default_factory=dict)

    def add(self, episode: LoggedEpisode, read: int) -> None:
        self.read = read
        self.size += _size(episode)
        if self.size > LARGEST_STEP:
            raise ValueError(
                f"Expected steps of at most {LARGEST_STEP >> 20} MiB, found that step {self.number} holds more (up to "
                f"line {episode.place.line} of {episode.place.file}). Split the log into files, one per step; a log "
                "without steps counts as one."
            )
        self.episodes.setdefault(episode.group, []).append(episode)

    def finished(self) -> LoggedStep:
        groups = [_group(members) for members in self.episodes.values()]
        verdicts = [members[0].verdict for members in self.episodes.values()]
        known = tuple(verdict for verdict in verdicts if verdict is not None)
        return LoggedStep(
            self.number,
            tuple(groups),
            known if len(known) == len(verdicts) else None,
            {
                member.trajectory.turns[0].reply.prompt.text: member.messages
                for members in self.episodes.values()
                for member in members
                if member.messages and member.trajectory.turns
            },
            digest(*(part for group in groups for member in group.trajectories for part in _told(member))),
            self.read,
        )


def _too_much(waiting: Iterable[_Gathering]) -> bool:
    sizes = [gathering.size for gathering in waiting]
    # The newest is the step being read; only the others wait.
    return len(sizes) > STEPS_HELD + 1 or sum(sizes[:-1]) > SIZE_HELD


def _group(members: list[LoggedEpisode]) -> Group:
    task: Task = members[0].task
    named = len({member.trajectory.member for member in members}) == len(members)
    trajectories: list[Trajectory] = [
        replace(episode.trajectory, task=task, member=episode.trajectory.member if named else place)
        for place, episode in enumerate(members)
    ]
    return Group(task, tuple(trajectories))


def _told(trajectory: Trajectory) -> Iterator[str]:
    yield repr(trajectory.outcome)
    for turn in trajectory.turns:
        yield turn.reply.prompt.text
        yield turn.reply.text
        yield repr(dict(turn.rewards))


def _size(episode: LoggedEpisode) -> int:
    size = _BYTES_PER_EPISODE
    for turn in episode.trajectory.turns:
        reply = turn.reply
        size += _held(reply.text) + _held(reply.prompt.text)
        size += _BYTES_PER_NUMBER * (len(reply.ids) + len(reply.prompt.ids) + len(reply.entropies))
    return size + sum(_held(message["content"]) for message in episode.messages)


def _held(text: str) -> int:
    """Bytes in memory: up to four for each character of a text that is not ASCII."""
    return len(text) if text.isascii() else sys.getsizeof(text)
