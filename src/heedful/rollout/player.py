"""One agent in one episode of an environment, and episodes played again: the same replies under fresh noise.

An episode that raises, or answers against its contract, ends with the error's text. Other episodes continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.envs.common.contract import checked_episode, checked_observation, checked_step, turns_of
from heedful.guarded import Raised, RaisedElsewhere, guarded_call
from heedful.protocols import Environment, Episode
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.types import Conversation, Ending, Group, Message, Observation, Reply, Step, Task, Trajectory, Turn

Answer = TypeVar("Answer")


class _Unmade:
    """Stands for an episode that the environment could not make: it breaks when it starts."""

    def __init__(self, why: Raised) -> None:
        self._why = why

    def start(self, task: Task, member: int) -> Observation:
        raise RaisedElsewhere(str(self._why))

    def step(self, response: str) -> Step:
        raise RaisedElsewhere(str(self._why))


def made(make_episode: Callable[[], Episode]) -> Episode:
    """A new episode. One that cannot be made costs itself, as one that breaks later does."""
    answer = guarded_call(lambda: checked_episode(make_episode()))
    return _Unmade(answer) if isinstance(answer, Raised) else answer.value


def first_observation(env: Environment, task: Task) -> Observation:
    """What an episode of the task shows first. Raises ValueError, a sentence, where the episode cannot start."""
    player = Player(made(env.episode), task, 0, turns_of(env))
    if player.ending is not None:
        raise ValueError(
            f"Expected an episode of task {task.id} (seed {task.seed}) that starts, found "
            f"{player.trajectory(1.0, 0).error}. `heedful check-env` finds the cause."
        )
    return player.observation


class Player:
    """Plays one trajectory: keeps the conversation, hands replies to the episode, and records its turns.

    `context`: how much of the episode a conversation shows. A window that begins at a later turn shows the `opening` of
    that turn's observation. `advance` raises ValueError for an observation without one.
    """

    def __init__(
        self, episode: Episode, task: Task, member: int, max_turns: int, context: Context = FULL_HISTORY
    ) -> None:
        self.task = task
        self.member = member
        self.ending: Ending | None = None
        self._episode = episode
        self._max_turns = max_turns
        self._context = context
        self._turns: list[Turn] = []
        self._shown: list[Observation] = []
        self._outcome: float | None = None
        self._progress: float | None = None
        self._error = ""
        observation = self._guarded(lambda: checked_observation(episode.start(task, member)))
        if observation is not None:
            self._shown.append(observation)

    @property
    def key(self) -> str:
        """Unique among the episodes of one collection."""
        return f"{self.task.id}/{self.member}"

    @property
    def observation(self) -> Observation:
        """The newest observation, of an episode that could start."""
        return self._shown[-1]

    @property
    def conversation(self) -> Conversation:
        """The conversation for the policy: the turns that the context keeps, and the newest observation."""
        newest = len(self._shown) - 1
        first = self._context.first(newest)
        begin, *later = self._shown[first:]
        messages = [Message("user", begin.opening if first else begin.text, images=begin.images)]
        for turn, observation in zip(self._turns[first:newest], later, strict=True):
            messages.append(Message("assistant", turn.reply.text, turn.reply.ids))
            messages.append(Message(observation.role, observation.text, images=observation.images))
        return Conversation(self.key, tuple(messages), first > 0, newest)

    def advance(self, reply: Reply) -> None:
        """Hand one reply to the episode and record the turn.

        A reply without tokens ends the episode, since the model had no room for one. A turn in which the episode raised
        is not recorded, since nothing is known about it.
        """
        if not reply.ids:
            self._end(Ending.OUT_OF_TOKENS, 0.0)
            return
        step = self._guarded(lambda: checked_step(self._episode.step(reply.text)))
        if step is None:
            return
        rewards = {name: float(value) for name, value in step.rewards.items()}
        self._turns.append(Turn(reply, rewards, step.actions, step.valid, step.effect, step.state))
        self._progress = step.progress if step.progress is not None else self._progress
        if step.ending is Ending.ERROR:
            self._error = step.effect or "the environment reported an error without a text"
            self._end(Ending.ERROR, None)
        elif step.ending is not None or len(self._turns) >= self._max_turns:
            self._end(step.ending or Ending.OUT_OF_TURNS, float(step.outcome or 0.0))
        else:
            self._context.check(step.observation, len(self._turns), self._max_turns)
            self._shown.append(step.observation)

    def stop(self) -> None:
        """End an episode that gets no further reply: out of turns and not solved. An ended one stays as it is."""
        if self.ending is None:
            self._end(Ending.OUT_OF_TURNS, 0.0)

    def trajectory(self, temperature: float, policy_version: int) -> Trajectory:
        """The finished episode as data. It has ended, by `advance` or `stop`."""
        assert self.ending is not None
        return Trajectory(
            task=self.task,
            member=self.member,
            turns=tuple(self._turns),
            ending=self.ending,
            outcome=self._outcome,
            progress=self._progress,
            policy_version=policy_version,
            temperature=temperature,
            error=self._error,
        )

    def _end(self, ending: Ending, outcome: float | None) -> None:
        self.ending, self._outcome = ending, outcome

    def _guarded(self, call: Callable[[], Answer]) -> Answer | None:
        """The episode's answer, or `None` if it raised. It has then ended with the error's text."""
        answer = guarded_call(call)
        if isinstance(answer, Raised):
            self._error = str(answer)
            self._end(Ending.ERROR, None)
            return None
        return answer.value


def replayed_values(env: Environment, groups: Sequence[Group], on: str, times: int) -> list[list[list[float | None]]]:
    """What the filter would look at (`on`) in `times` replays of every trajectory: per group, member and replay.

    Members beyond those of the group select the noise, so every replay has its own. The replies are fixed: they do not
    react to where the noise leads. A replay whose replies run out before its end counts as not solved. One that breaks
    has no value.
    """
    replays = []
    for group in groups:
        first = 1 + max((trajectory.member for trajectory in group.trajectories), default=0)
        for number, trajectory in enumerate(group.trajectories):
            members = range(first + number * times, first + (number + 1) * times)
            replays.append(Group(group.task, tuple(_replay(env, trajectory, member) for member in members)))
    values = iter(values_on(replays, on))
    return [[next(values) for _ in group.trajectories] for group in groups]


def _replay(env: Environment, trajectory: Trajectory, member: int) -> Trajectory:
    player = Player(made(env.episode), trajectory.task, member, turns_of(env))
    for turn in trajectory.turns:
        if player.ending is None:
            player.advance(turn.reply)
    player.stop()
    return player.trajectory(trajectory.temperature, trajectory.policy_version)
