"""One agent in one environment, with a state of its own.

Promise: an environment that raises becomes an ending with the error's text; it never takes other episodes down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from heedful.protocols import Environment
from heedful.types import Conversation, Ending, Message, Reply, Step, Task, Trajectory, Turn

Answer = TypeVar("Answer")


class Episode:
    """Plays one trajectory: holds the conversation, hands replies to the environment, notes what came of them."""

    def __init__(self, environment: Environment, task: Task, member: int, max_turns: int) -> None:
        self.task = task
        self.member = member
        self.ending: Ending | None = None
        self._environment = environment
        self._max_turns = max_turns
        self._turns: list[Turn] = []
        self._messages: list[Message] = []
        self._outcome: float | None = None
        self._progress: float | None = None
        self._error = ""
        observation = self._guarded(lambda: environment.start(task, member))
        if observation is not None:
            self._messages.append(Message("user", observation.text))

    @property
    def conversation(self) -> Conversation:
        return Conversation(f"{self.task.id}/{self.member}", tuple(self._messages))

    def advance(self, reply: Reply) -> None:
        """Hand one reply to the environment and note the turn."""
        if not reply.ids:
            self._end(Ending.OUT_OF_TOKENS, 0.0)
            return
        step = self._guarded(lambda: self._environment.step(reply.text))
        if step is None:
            return
        self._turns.append(Turn(reply, dict(step.rewards), step.actions, step.valid, step.effect, step.state))
        self._progress = step.progress if step.progress is not None else self._progress
        if step.ending is not None:
            self._close(step)
        elif len(self._turns) >= self._max_turns:
            self._end(Ending.OUT_OF_TURNS, step.outcome if step.outcome is not None else 0.0)
        else:
            self._messages.append(Message("assistant", reply.text, reply.ids))
            self._messages.append(Message("user", step.observation.text))

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

    def _close(self, step: Step) -> None:
        """End as the environment says, unless what it says breaks the contract."""
        assert step.ending is not None
        if step.ending is Ending.ERROR:
            self._error = step.effect
            self._end(Ending.ERROR, None)
        elif step.outcome is None or not 0.0 <= step.outcome <= 1.0:
            self._error = f"the environment ended an episode with outcome {step.outcome!r}; expected a number in [0, 1]"
            self._end(Ending.ERROR, None)
        else:
            self._end(step.ending, step.outcome)

    def _guarded(self, call: Callable[[], Answer]) -> Answer | None:
        """The environment's answer; `None` if it raised, and then the episode has ended with the error's text."""
        try:
            return call()
        except Exception as error:  # foreign code: whatever it raises belongs to this episode alone
            self._error = f"{type(error).__name__}: {error}"
            self._end(Ending.ERROR, None)
            return None
