"""From a stream of episodes to steps: a log is a sequence of steps, and each is measured as a whole.

Memory holds one step and a bounded number of others that may still receive late episodes. An episode that comes after
its step was handed on is counted and named.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from heedful.auditing.logs.records import Faults, LoggedEpisode, digest
from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.types import Group, Trajectory, Verdict

STEPS_HELD = 16
"""Steps that wait for late episodes."""


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
    parted: int = 0
    """Prompts whose episodes have several right answers, and were read as several groups."""
    contradicted: frozenset[str] = frozenset()
    """What contradicts groups by text: `truths`, `groups` or `order` (see `_contradictions`)."""

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
        waiting: dict[int, list[LoggedEpisode]] = {}
        read: dict[int, int] = {}
        done: set[int] = set()
        newest: int | None = None
        for episode in self.episodes:
            step = episode.step
            if step in done:
                self.faults.add(
                    episode.place,
                    f"the episodes of step {step} within {STEPS_HELD} steps of each other",
                    f"one after step {step} was measured: sort the log by step, and keep one writing of a step",
                )
                continue
            if step not in waiting:
                waiting[step], newest = [], step
            elif step != newest:
                self.interleaved += 1
            waiting[step].append(episode)
            read[step] = self.position()
            if len(waiting) > STEPS_HELD + 1:  # the newest is the step being read; only the others wait
                number = min(list(waiting)[:-1])
                done.add(number)
                yield _step(number, waiting.pop(number), read[number])
        for number in sorted(waiting):
            yield _step(number, waiting[number], read[number])


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


def _step(number: int, episodes: Sequence[LoggedEpisode], read: int) -> LoggedStep:
    groups: list[Group] = []
    verdicts: list[Verdict] = []
    by_name: dict[str, list[LoggedEpisode]] = {}
    for episode in episodes:
        by_name.setdefault(episode.group, []).append(episode)
    gathered = [by_truth for members in by_name.values() for by_truth in _by_truth(members)]
    for members in gathered:
        task = members[0].task
        named = len({member.trajectory.member for member in members}) == len(members)
        trajectories = (
            replace(episode.trajectory, task=task, member=episode.trajectory.member if named else place)
            for place, episode in enumerate(members)
        )
        groups.append(Group(task, tuple(trajectories)))
        verdicts += [] if members[0].verdict is None else [members[0].verdict]
    messages = {
        episode.trajectory.turns[0].reply.prompt.text: episode.messages
        for members in gathered
        for episode in members
        if episode.messages and episode.trajectory.turns
    }
    return LoggedStep(
        number,
        tuple(groups),
        tuple(verdicts) if len(verdicts) == len(groups) else None,
        messages,
        digest(*(part for group in groups for member in group.trajectories for part in _told(member))),
        read,
        len(gathered) - len(by_name),
        frozenset(kind for members in gathered for kind in _contradictions(members)),
    )


def _by_truth(members: list[LoggedEpisode]) -> list[list[LoggedEpisode]]:
    """Episodes of one prompt, apart where their right answers differ: these are different tasks.

    Not where an answer stands at one episode alone: then it may be what was sampled.
    """
    counts = Counter(episode.truth for episode in members)
    if len(counts) < 2 or min(counts.values()) < 2:
        return [members]
    parts = {truth: [episode for episode in members if episode.truth == truth] for truth in counts}
    return [
        [replace(episode, task=replace(episode.task, id=f"{episode.task.id}-{digest(truth)}")) for episode in part]
        for truth, part in parts.items()
    ]


def _contradictions(members: Sequence[LoggedEpisode]) -> Iterator[str]:
    """`truths`: several right answers; `groups`: equal rewards with different advantages; `order`: a higher reward
    without a higher advantage."""
    if len({member.truth for member in members}) > 1:
        yield "truths"
    known = [
        (member.trajectory.turns[-1].rewards, member.trajectory.reward, member.advantage)
        for member in members
        if member.advantage is not None and member.trajectory.reward is not None and member.trajectory.turns
    ]
    known.sort(key=lambda each: each[1])
    for (rewards, total, advantage), (next_rewards, next_total, next_advantage) in itertools.pairwise(known):
        if repr(rewards) == repr(next_rewards):
            yield from () if is_constant([advantage, next_advantage]) else ("groups",)
        elif not is_constant([total, next_total]) and advantage >= next_advantage:
            yield "order"


def _told(trajectory: Trajectory) -> Iterator[str]:
    yield repr(trajectory.outcome)
    for turn in trajectory.turns:
        yield turn.reply.prompt.text
        yield turn.reply.text
        yield repr(dict(turn.rewards))
