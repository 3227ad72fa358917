"""From a stream of episodes to steps: a log is a sequence of steps, and each is measured as a whole.

Memory holds one step and a bounded number of others that may still receive late episodes. An episode that comes after
its step was handed on is counted and named.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    """What contradicts the groups: `parts`, `prompts`, `truths`, `groups` or `order` (see `_contradictions`)."""

    @property
    def episodes(self) -> int:
        return sum(len(group.trajectories) for group in self.groups)


class StartOver(Exception):
    """The log is not the one that was read so far. It is read again from its start, and lines that differ are set
    apart (`Pipeline`)."""


@dataclass(slots=True)
class StepStream:
    """Gathers episodes into steps, and knows afterwards how the log was ordered.

    A step is handed on when `STEPS_HELD` later ones wait. A watch does not wait for them where each file is a step:
    `close` hands on what is there. A row that comes later shows that this was too early, and raises StartOver. So the
    steps of a watch are in the end the ones of an audit, in the same order.
    """

    faults: Faults
    interleaved: int = 0
    """Episodes that came after one of another step had begun."""
    waiting: dict[int, list[LoggedEpisode]] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    """Of each step that waits: how many bytes of the log were read when its last episode came."""
    done: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    """Those among `waiting` that were handed on by `close`."""
    newest: int | None = None

    def add(self, episode: LoggedEpisode, position: int = 0) -> LoggedStep | None:
        """Take an episode. Returns the step that is closed by it."""
        step = episode.step
        if step in self.done:
            self.faults.add(
                episode.place,
                f"the episodes of step {step} within {STEPS_HELD} steps of each other",
                f"one after step {step} was measured: sort the log by step, and keep one writing of a step",
            )
            return None
        if self.early and (step in self.early or (step not in self.waiting and step < max(self.early))):
            raise StartOver
        if step not in self.waiting:
            self.waiting[step], self.newest = [], step
        elif step != self.newest:
            self.interleaved += 1
        self.waiting[step].append(episode)
        self.read[step] = position
        if len(self.waiting) <= STEPS_HELD + 1:  # the newest is the step being read; only the others wait
            return None
        number = min(list(self.waiting)[:-1])
        self.done.add(number)
        episodes = self.waiting.pop(number)
        if number in self.early:
            self.early.remove(number)
            return None
        return step_of(number, episodes, self.read.pop(number))

    def close(self, but_newest: bool = False) -> Iterator[LoggedStep]:
        """All steps that wait, by their number. `but_newest`: without the one whose rows came last."""
        for number in sorted(self.waiting.keys() - self.early - ({self.newest} if but_newest else set())):
            yield step_of(number, self.waiting[number], self.read.pop(number))
            self.early.add(number)
            self.waiting[number] = []


def steps_of(episodes: Iterable[LoggedEpisode], faults: Faults) -> Iterator[LoggedStep]:
    """The steps of a log that has ended."""
    stream = StepStream(faults)
    for episode in episodes:
        if step := stream.add(episode):
            yield step
    yield from stream.close()


@dataclass(slots=True)
class Joined:
    """Consecutive steps, `count` at a time, as one with the number of the first. A repeated step counts once."""

    count: int
    held: list[LoggedStep] = field(default_factory=list)
    fingerprint: str = ""

    def add(self, step: LoggedStep) -> LoggedStep | None:
        """Take a step. Returns the joined one that it completes."""
        if self.count == 1 or step.fingerprint != self.fingerprint:
            self.held.append(step)
        self.fingerprint = step.fingerprint
        return self.rest() if len(self.held) == self.count else None

    def rest(self) -> LoggedStep | None:
        """The steps that are held, as one."""
        steps, self.held = self.held, []
        if len(steps) < 2:
            return steps[0] if steps else None
        verdicts = [step.verdicts for step in steps if step.verdicts is not None]
        return LoggedStep(
            steps[0].number,
            tuple(group for step in steps for group in step.groups),
            tuple(verdict for each in verdicts for verdict in each) if len(verdicts) == len(steps) else None,
            {prompt: messages for step in steps for prompt, messages in step.messages.items()},
            digest(*(step.fingerprint for step in steps)),
            steps[-1].read,
        )


def step_of(number: int, episodes: Sequence[LoggedEpisode], read: int) -> LoggedStep:
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
    """`parts`: a part of it was in an earlier step; `prompts`: several first prompts; `truths`: several right answers;
    `groups`: equal rewards with different advantages; `order`: a higher reward without a higher advantage."""
    if any(member.begun not in (None, member.step) for member in members):
        yield "parts"
    if len({member.trajectory.turns[0].reply.prompt.text for member in members if member.trajectory.turns}) > 1:
        yield "prompts"
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
