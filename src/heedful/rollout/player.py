"""One agent in one environment, with a state of its own.

Promise: an environment that raises, or answers what its contract does not know, becomes an ending with the error's
text; it never takes other episodes down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from heedful.envs.common.wire import checked_observation, checked_step
from heedful.guarded import Raised, guarded_call
from heedful.protocols import Episode
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.types import Conversation, Ending, Message, Observation, Reply, Task, Trajectory, Turn

Answer = TypeVar("Answer")


class Player:
    """Plays one trajectory: holds the conversation, hands replies to the environment, notes what came of them.

    `context`: how much of the episode a conversation shows. The first observation begins a conversation as it is, a
    later one by its `opening`; `advance` raises ValueError where a window needs one and the environment gives none.
    """

    def __init__(
        self, environment: Episode, task: Task, member: int, max_turns: int, context: Context = FULL_HISTORY
    ) -> None:
        self.task = task
        self.member = member
        self.ending: Ending | None = None
        self._environment = environment
        self._max_turns = max_turns
        self._context = context
        self._turns: list[Turn] = []
        self._shown: list[Observation] = []
        self._outcome: float | None = None
        self._progress: float | None = None
        self._error = ""
        observation = self._guarded(lambda: checked_observation(environment.start(task, member)))
        if observation is not None:
            self._shown.append(observation)

    @property
    def key(self) -> str:
        """Unique among the episodes of one collection."""
        return f"{self.task.id}/{self.member}"

    @property
    def observation(self) -> Observation:
        """What the environment showed last."""
        return self._shown[-1]

    @property
    def conversation(self) -> Conversation:
        """What the policy is asked to continue: the turns that the context keeps, and the newest observation."""
        newest = len(self._shown) - 1
        first = self._context.first(newest)
        begin, *later = self._shown[first:]
        messages = [Message("user", begin.opening if first else begin.text)]
        for turn, observation in zip(self._turns[first:newest], later, strict=True):
            messages.append(Message("assistant", turn.reply.text, turn.reply.ids))
            messages.append(Message("user", observation.text))
        return Conversation(self.key, tuple(messages), first > 0, newest)

    def advance(self, reply: Reply) -> None:
        """Hand one reply to the environment and note the turn.

        A reply without a token ends the episode: the model had no room left for one. The turn in which the environment
        broke is not noted, since nothing is known of it.
        """
        if not reply.ids:
            self._end(Ending.OUT_OF_TOKENS, 0.0)
            return
        step = self._guarded(lambda: checked_step(self._environment.step(reply.text)))
        if step is None:
            return
        rewards = {name: float(value) for name, value in step.rewards.items()}
        self._turns.append(Turn(reply, rewards, step.actions, step.valid, step.effect, step.state))
        self._progress = step.progress if step.progress is not None else self._progress
        if step.ending is Ending.ERROR:
            self._error = step.effect or "the environment reported an error without a word on it"
            self._end(Ending.ERROR, None)
        elif step.ending is not None or len(self._turns) >= self._max_turns:
            self._end(step.ending or Ending.OUT_OF_TURNS, float(step.outcome or 0.0))
        else:
            self._context.check(step.observation, len(self._turns), self._max_turns)
            self._shown.append(step.observation)

    def trajectory(self, temperature: float, policy_version: int) -> Trajectory:
        """The finished episode as data."""
        assert self.ending is not None, "the episode has not ended"
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
        """The environment's answer; `None` if it raised, and then the episode has ended with the error's text."""
        answer = guarded_call(call)
        if isinstance(answer, Raised):
            self._error = str(answer)
            self._end(Ending.ERROR, None)
            return None
        return answer.value
