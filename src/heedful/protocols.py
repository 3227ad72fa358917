"""The protocols that others implement. Each protocol is the whole contract of one seam. Standard library only."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from heedful.guarded import Answered, guarded_call
from heedful.types import (
    Conversation,
    CrossScores,
    Metric,
    Observation,
    Reply,
    SampledTrajectory,
    Step,
    Task,
    TokenCredit,
    Tool,
    Trajectory,
    Verdict,
)


class Episode(Protocol):
    """One episode: text in, text out, single use. The environment parses the reply."""

    def start(self, task: Task, member: int) -> Observation:
        """Build the start state of `task`. `member` selects the noise stream. Called once."""
        ...

    def step(self, response: str) -> Step:
        """Execute one reply. Must accept any text. An unreadable reply is a fault of the agent, not an error."""
        ...


def _has(instance: object, name: str) -> bool:
    """Like `hasattr`, also for a property of a user's environment that raises something else than AttributeError."""
    return isinstance(guarded_call(lambda: getattr(instance, name)), Answered)


if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


class _ByAttribute(_ProtocolMeta):
    """Makes `isinstance` call `hasattr` for each member of a protocol.

    From Python 3.12 on, `isinstance` ignores attributes that an object finds through `__getattr__`. A served
    environment, and one whose episodes run in worker processes, find most of their attributes there.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        if not vars(cls).get("_is_protocol"):
            return super().__instancecheck__(instance)
        asked = [each for each in cls.__mro__ if vars(each).get("_is_protocol") and each is not Protocol]
        return all(_has(instance, name) for each in asked for name in vars(each) if not name.startswith("_"))


@runtime_checkable
class Environment(Protocol, metaclass=_ByAttribute):
    """A configured kind of environment: frozen, its fields are the knobs. It makes tasks and episodes."""

    @property
    def name(self) -> str:
        """Registry name, for example `frozen_lake`."""
        ...

    @property
    def turns(self) -> int:
        """The most turns of an episode. The agent is told this number, and the environment enforces it."""
        ...

    def task(self, seed: int) -> Task:
        """The task that this seed draws, its split included. Pure: same seed, same task, on every machine."""
        ...

    def episode(self) -> Episode:
        """A fresh, unstarted episode."""
        ...


# Optional protocols of environments, beyond the contract. Callers check for them with `isinstance`.
#
# Other optional members have no protocol of their own: `summary` (one line for lists), `start_states` (how many tasks
# there are, None = many), `noisy` (members that give the same replies can get different rewards), `best_success(task)`
# (the chance of the best policy that reads its input, None = not computed), and `served` (what a server plays behind
# this environment).


@runtime_checkable
class ListsActions(Environment, Protocol):
    """An environment whose replies are lists of named actions, so that a random player can play it."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The names. Empty where answers are free text after all."""
        ...

    @property
    def actions_per_turn(self) -> int:
        """Most actions of one reply."""
        ...


@runtime_checkable
class AnswersFreely(Environment, Protocol):
    """An environment whose replies have one answer in free text. It can also draw a random player's answer."""

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A well-formed random answer: it uses the form and the parts of the task, without any thought."""
        ...


@runtime_checkable
class AnswersBlindly(Environment, Protocol):
    """An environment that can list answers for a player that does not read the input."""

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Complete answers of one turn, most promising first: the most common solutions of `tasks`."""
        ...


@runtime_checkable
class Demonstrates(Environment, Protocol):
    """An environment with a solver."""

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """One episode of (observation, reply) pairs, played as member 0. In windows of history it is replayed.

        Replies are as an agent writes them, thought tags included.
        """
        ...


@runtime_checkable
class TellsSteps(Environment, Protocol):
    """An environment whose solver can tell the steps of its first reply, so that the first of them can be given."""

    def solver_steps(self, task: Task) -> Sequence[str]:
        """The steps, in order, as the prompt may show them. Fewer than two: there is nothing to give."""
        ...


@runtime_checkable
class KnowsRight(Environment, Protocol):
    """An environment that can tell right actions."""

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> Mapping[str, float] | None:
        """How right each next action is, in [0, 1], as `Step.actions` names them. Actions without a value are wrong.

        `before`: the executed actions of each turn so far. `None`: not known of this task, or at this turn.
        """
        ...


@runtime_checkable
class GradesAnswers(Environment, Protocol):
    """An environment that can tell how good a whole first answer is."""

    def answer_worth(self, task: Task, reply: str) -> float | None:
        """The progress of the actions that are written in a first reply, of the most that one answer can make.

        From 0 (none, or the task is lost) to 1. `None`: not known of this task.
        """
        ...


@runtime_checkable
class OffersTools(Environment, Protocol):
    """An environment whose replies are calls of tools. The renderer writes the tools into the chat template."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Empty where replies are plain text after all."""
        ...


class Policy(Protocol):
    """A source of replies to conversations. It owns the chat template and keeps the sampled ids."""

    @property
    def temperature(self) -> float: ...

    @property
    def version(self) -> int:
        """The number of updates of the weights so far."""
        ...

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation, in order."""
        ...


@runtime_checkable
class AnswersSubsets(Protocol):
    """Optional: a policy that can answer a subset of the running conversations at a time.

    A policy without it is called from one thread, one call at a time.
    """

    @property
    def parallel(self) -> int:
        """Most concurrent calls of `respond`, each from a thread of its own. 1 = from the caller's thread only."""
        ...

    def keep(self, keys: Collection[str]) -> None:
        """Keep the KV cache of these conversations, also if the next call leaves them out. Called before each one."""
        ...


@runtime_checkable
class ContinuousBatching(Protocol):
    """Optional, beyond `AnswersSubsets`: new conversations join the batch while other replies are being sampled."""

    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        """Answer conversations until none is left.

        `arrivals(wait)` gives the conversations that became ready since its last call. With `wait` it blocks until
        there is one. An empty answer then means that there will be no more. `hand_over(key, reply)` takes a reply that
        has ended.
        """
        ...


class WindowExceeded(ValueError):
    """Raised by a scorer when a prompt and a thought together do not fit its model's window."""


class Scorer(Protocol):
    """Scores thoughts under prompts that are not their own."""

    @property
    def name(self) -> str:
        """Empty for the policy that sampled. Any other name becomes part of the metric's name."""
        ...

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
    ) -> CrossScores:
        """log p(z_i | x_j) for every thought i and every distinct prompt j, given as token ids."""
        ...


@runtime_checkable
class PlansReading(Protocol):
    """A scorer that can say beforehand how much it would read."""

    def reading(self, prompts_N: Sequence[Sequence[int]], thoughts_M: Sequence[Sequence[int]]) -> int:
        """The tokens that forward passes would read to score these thoughts under these prompts, padding included."""
        ...


class Filter(Protocol):
    """Chooses prompts by the spread of their members' values. Pure, on plain numbers."""

    @property
    def on(self) -> str:
        """The kind of values: `outcome`, `reward` or the name of a reward component."""
        ...

    @property
    def share(self) -> float | None:
        """The factor of the loss scale `rho`, or `None` where the filter has no share."""
        ...

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]: ...


@runtime_checkable
class CreditsMembers(Protocol):
    """An advantage estimator that gives each member of a group one advantage, shared by all tokens of the member."""

    def member_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[float]:
        """One advantage per member, in order. A member whose `reward` is `None` or NaN gets 0.

        The members are one group, or a part of it: the gradient's noise is measured on halves of a group.
        """
        ...


@runtime_checkable
class CreditsTurns(Protocol):
    """An advantage estimator that gives each turn of a member one advantage, shared by all tokens of the turn."""

    def turn_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[list[float]]:
        """One list per member, in order: one advantage per turn, or an empty list for a member without a reward.

        The members are one group, or a part of it: the gradient's noise is measured on halves of a group.
        """
        ...


@runtime_checkable
class CreditsTokens(Protocol):
    """An advantage estimator that gives each sampled token an advantage of its own. The most general kind."""

    def token_credits(self, trajectories_B: Sequence[SampledTrajectory]) -> list[TokenCredit]:
        """The credit of every trajectory that is trained on in one step, in order. Called once per step."""
        ...


@runtime_checkable
class UsesCritic(CreditsTokens, Protocol):
    """An estimator that reads a critic's values. The run trains a critic for it, on the returns it gives."""

    def observed_returns(self, trajectories_B: Sequence[SampledTrajectory]) -> list[list[float]]:
        """The discounted rewards observed after each sampled token, one list per trajectory, without any value."""
        ...


Estimator: TypeAlias = CreditsMembers | CreditsTurns | CreditsTokens
"""An advantage estimator: a frozen dataclass with the method of exactly one of these kinds."""


class Tracker(Protocol):
    """Receives every step's metrics. A tracker that fails later only warns. One that cannot start raises an error."""

    def write(self, step: int, metrics: Sequence[Metric]) -> None: ...

    def close(self) -> None: ...
