"""One agent in one episode of an environment.

An episode that raises, or answers against its contract, ends with the error's text. Other episodes continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.envs.common.contract import checked_episode, checked_observation, checked_step, turns_of
from heedful.guarded import OwnPartFailed, Raised, RaisedElsewhere, guarded_call, of_own_part
from heedful.protocols import Environment, Episode, Policy
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.types import Conversation, Ending, Message, Observation, Reply, Step, Task, Trajectory, Turn

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


def replies_of(policy: Policy, conversations: Sequence[Conversation]) -> list[Reply]:
    """The policy's replies. Raises OwnPartFailed for a class of the user that fails or gives no complete replies."""
    found: list[object] = of_own_part(policy, "the policy", "respond()", lambda: list(policy.respond(conversations)))
    replies = [each for each in found if isinstance(each, Reply)]
    wrong = "" if len(replies) == len(found) == len(conversations) else f"{len(found)} values, {len(replies)} replies"
    sizes = of_own_part(policy, "the policy", "respond()", lambda: [(len(r.ids), len(r.logprobs)) for r in replies])
    for ids, logprobs in sizes:
        if logprobs and ids != logprobs:  # a served model that is only evaluated may tell none
            wrong = wrong or f"{ids} ids and {logprobs} log-probabilities"
    if wrong:
        raise OwnPartFailed(
            f"Expected {len(conversations)} replies with a log-probability per id from the policy "
            f"{type(policy).__name__}, found {wrong}. Correct respond()."
        )
    return replies


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
        """The newest observation. Raises RuntimeError, with the error, where the episode could not start."""
        if not self._shown:
            raise RuntimeError(f"Expected an episode that has started, found {self._error}.")
        return self._shown[-1]

    @property
    def conversation(self) -> Conversation:
        """The conversation for the policy: the turns that the context keeps, and the newest observation."""
        _ = self.observation  # raises where there is none
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
        if self.ending is not None:
            raise RuntimeError(f"Expected an episode that goes on, found one that has ended ({self.ending.value}).")
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
        """The finished episode as data."""
        if self.ending is None:
            raise RuntimeError("Expected an episode that has ended, found one that goes on. Call advance, or stop.")
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
