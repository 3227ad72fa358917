"""The data types of heedful: plain, frozen data that flows from tasks to metrics.

This module needs the standard library only. Its methods compute views of their own fields and nothing else.

Dimension letters of nested lists and tensors, used everywhere in the project:
`P` prompts (groups), `G` members of a group, `K` turns, `B` sequences, `T` tokens, `V` vocabulary,
`M` scored thoughts (rows), `N` distinct prompts (columns), `A` actions, `S` spellings of actions in tokens.
So `rewards_PG`, `logprobs_BT`, `scores_MN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol

PROBE = "probe"
"""The tag of a task that a chooser did not choose: it was drawn uniformly, so its episodes show the policy as it is."""

HELPED = "helped"
"""The tag of a task that begins with help (`envs.common.helped`)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One start state: the identity of a group."""

    id: str
    """Name of the start state: equal ids mean equal start states."""
    seed: int
    """Seed of the start state and, together with the member's number, of its noise."""
    split: str
    """`train`, `val` or `test`: decided by a stable hash of the start state."""
    tags: tuple[str, ...] = ()
    environment: str = ""
    """Name of the environment that drew it; empty where that is unknown, as in logs of other trainers."""


def without_help(task: Task) -> tuple[Task, int]:
    """The task as the environment drew it, and the turns or steps of help with which it begins."""
    if HELPED not in task.tags:
        return task, 0
    name, _, turns = task.id.rpartition("+h")
    return replace(task, id=name, tags=tuple(tag for tag in task.tags if tag != HELPED)), int(turns)


@dataclass(frozen=True, slots=True)
class Image:
    """One picture, as the bytes of a PNG file. Pictures with equal bytes are equal."""

    png: bytes = field(repr=False)
    width: int
    """Pixels, as the header of the file says."""
    height: int
    alt: str = field(default="", compare=False)
    """The same in words, for people: in a terminal, and where a page cannot show the picture. No policy reads it."""

    @property
    def digest(self) -> str:
        """The name of the picture in files: 32 hexadecimal digits of the SHA-256 of its bytes."""
        return hashlib.sha256(self.png).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. A sampled message carries its own token ids, so no text is tokenised twice."""

    role: str
    """`system`, `user`, `assistant`, or `tool` for the result of a call."""
    content: str
    ids: tuple[int, ...] | None = None
    """The sampled ids (assistant messages only). `None` for text that still has to be rendered."""
    images: tuple[Image, ...] = ()
    """Pictures, before the text of the message."""


CALL_START = (
    r"<(?:seed:|minimax:)?tool_call>|<\|tool_call>call:|<\|tool_call_start\|>\[|<\|tool_calls_section_begin\|>"
    r"|<｜tool▁calls▁begin｜>|<｜DSML｜\w+_calls>|\[TOOL_CALLS\]|(?:<\|channel\|>\w+)? ?to=functions\."
    r"|<\|python_tag\|>|\{\s*\"(?:name|arguments|parameters|type)\"\s*:"
)
"""A pattern of the text with which the call of a tool begins, in the forms of `models.chat.forms`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a policy may call: written into the chat template, and read back from a reply."""

    name: str
    description: str
    """One or two sentences for the model."""
    parameters: Mapping[str, object]
    """JSON schema of the arguments: an object with `properties` and `required`."""
    form: str = ""
    """The plain answer that a call stands for, with `{}` in the place of its only argument, such as `search[{}]`. Empty
    where a call has no plain answer."""

    @property
    def schema(self) -> dict[str, object]:
        """The tool as chat templates and servers take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of a policy: alternating messages, the last one from the user or a tool."""

    key: str
    """Unique among the conversations of one `collect`. A policy uses it to keep its KV cache over turns."""
    messages: tuple[Message, ...]
    restarts: bool = False
    """The window does not continue the conversation of the turn before, so all its ids are read again."""
    turn: int = 0
    """The number of the requested reply within its episode. Together with the key it selects the reply's noise."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range `[start, end)` over the sampled ids of one reply."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids appended since the last sampled token, and their text. Where `restarts`: the whole context."""

    text: str
    ids: tuple[int, ...]
    restarts: bool = False
    """True where the ids are the whole context: earlier ids of this trajectory were not read with them.
    The first turn needs no mark, because no ids come before it."""
    history: int = 0
    """Where `restarts`: the number of ids before the newest observation. The ids after them are new."""
    images: tuple[Image, ...] = ()
    """The pictures of the appended messages, in order."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The policy's sampled output of one turn, exactly as sampled.

    Example: the reply `Go up</think><answer>Up</answer><end>` under a forced `<think>` has
    `thought` over `Go up</think>` and `answer` over `<answer>Up</answer>`.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    """The reply as the environment reads it: a forced opening tag included, the end-of-turn token not."""
    logprobs: tuple[float, ...]
    """Per sampled token, under log softmax(logits / temperature)."""
    entropies: tuple[float, ...]
    """Per sampled token, the exact entropy of softmax(logits / temperature), in nats. Empty if unknown."""
    thought: Span
    """Up to and including the token(s) that end it."""
    answer: Span
    closed: bool
    """The thought was closed by its tag, or by the tool call after it."""
    cut: bool
    """The reply ended at the token limit, not at an end-of-turn token."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The environment's next text for the agent, and its pictures."""

    text: str
    opening: str = ""
    """The full form of this observation, instructions included, used when it starts a conversation. Empty: this
    environment cannot be shown in windows of history."""
    role: str = "user"
    """`tool` if it is the result of a call, else `user`. A conversation always begins with the user."""
    images: tuple[Image, ...] = ()
    """Pictures, shown before the text, and before `opening` where that stands in for the text."""


class Ending(Enum):
    """Why an episode ended."""

    SOLVED = "solved"
    FAILED = "failed"
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"
    ERROR = "environment_error"


@dataclass(frozen=True, slots=True)
class Step:
    """The environment's answer to one reply."""

    observation: Observation
    """Shown to the agent if the episode continues."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Named components. The reward is their sum."""
    ending: Ending | None = None
    outcome: float | None = None
    """In [0, 1], set when the episode ends: 1 = success, between = partial credit."""
    progress: float | None = None
    """In [0, 1], optional: how far a failed episode got."""
    actions: tuple[str, ...] = ()
    """The actions executed, in order."""
    valid: bool = True
    """The whole reply could be executed as written."""
    effect: str = ""
    """One line on what the environment did with the reply."""
    state: str = ""
    """The state after the reply, in a canonical form (empty = not reported)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt, one reply and their effects."""

    reply: Reply
    rewards: Mapping[str, float]
    """Component -> its value. NaN: it is known to have none, as a reward function that does not apply to a prompt."""
    actions: tuple[str, ...]
    valid: bool
    effect: str
    state: str

    @property
    def reward(self) -> float:
        """The sum of the components that have a value."""
        return sum(value for value in self.rewards.values() if value == value)  # NaN differs from itself


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One agent's episode in one environment."""

    task: Task
    member: int
    """The number within the group. It selects the member's noise."""
    turns: tuple[Turn, ...]
    ending: Ending
    outcome: float | None
    """`None`: the episode broke and was never scored. NaN: it has a reward, but its success is unknown."""
    progress: float | None = None
    policy_version: int = 0
    temperature: float = 1.0
    error: str = ""

    @property
    def reward(self) -> float | None:
        """The sum of all components of all turns, or `None` if the episode was never scored."""
        return None if self.outcome is None else sum(turn.reward for turn in self.turns)

    @property
    def success(self) -> bool | None:
        unknown = self.outcome is None or self.outcome != self.outcome  # NaN differs from itself
        return None if unknown else self.outcome == 1.0

    def component(self, name: str) -> float | None:
        """The sum of one reward component over the turns, NaN if it has no value in one of them.

        `None` if the episode was never scored. A turn that does not name the component adds 0.
        """
        return None if self.outcome is None else sum(turn.rewards.get(name, 0.0) for turn in self.turns)

    def context_ids(self, turn: int) -> tuple[int, ...]:
        """The ids in the context before the sampled ids of turn number `turn` (from 0): from the last restart on."""
        start = turn
        while start > 0 and not self.turns[start].reply.prompt.restarts:
            start -= 1
        ids: list[int] = []
        for earlier in self.turns[start:turn]:
            ids += earlier.reply.prompt.ids + earlier.reply.ids
        return (*ids, *self.turns[turn].reply.prompt.ids)


@dataclass(frozen=True, slots=True)
class Group:
    """One task and its trajectories: the unit of advantage, of filtering, of diagnosis."""

    task: Task
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A filter's decision on one group. It annotates the group and deletes nothing."""

    weight: float
    """0 = dropped. Kept groups weigh 1 unless the filter weighs softly."""
    reason: str
    """`kept`, `readmitted`, or why it was dropped."""
    spread: float | None
    """The statistic that the filter ranked by, or `None` if it could not be computed."""

    @property
    def kept(self) -> bool:
        return self.weight > 0


class TokenCredit(NamedTuple):
    """The advantage estimator's output for the sampled tokens of one trajectory, one number per token."""

    advantages_T: Sequence[float]
    returns_T: Sequence[float] = ()
    """The target of the critic before each token. Empty without a critic."""


@dataclass(frozen=True, slots=True)
class SampledTrajectory:
    """One trajectory to be trained on, as an estimator of token credit sees it."""

    group: Group
    """All members, including the members that are not trained on."""
    trajectory: Trajectory
    values_T: tuple[float, ...] = ()
    """The critic's estimate before each sampled token. Empty without a critic."""

    @property
    def rewards_K(self) -> list[float]:
        """The reward of each turn."""
        return [turn.reward for turn in self.trajectory.turns]

    @property
    def turns_T(self) -> list[int]:
        """The turn number of each sampled token, from 0."""
        return [number for number, turn in enumerate(self.trajectory.turns) for _ in turn.reply.ids]


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One row of a training batch: a trajectory, or consecutive turns of one, merged by their common prefix.

    Example, two turns: prompt `a b`, reply `C D`, glue `e`, reply `F` with advantage 0.5 gives
    ids `a b C D e F`, trained `0 0 1 1 0 1`, advantages `0 0 .5 .5 0 .5`.
    """

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    """True = the policy sampled this token."""
    logprobs: tuple[float, ...]
    """The sampler's log-probabilities, 0 where not trained."""
    advantages: tuple[float, ...]
    """0 where not trained."""
    group: int
    """Index of its group in the step."""
    member: int
    """Names the trajectory together with `group`. A trajectory may have several samples."""
    weight: float
    """The trajectory's weight, shared by its samples."""
    values: tuple[float, ...] = ()
    """The critic's estimates before the update, at the trained tokens, 0 elsewhere. Empty without a critic."""
    returns: tuple[float, ...] = ()
    """The targets of the critic. Empty without a critic."""
    regularised: bool = True
    """KL penalty, entropy bonus and readings read it. They are means over episodes of the policy that is updated."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One reading. A reading that could not be taken has the value `None` and says why."""

    name: str
    value: float | str | None
    n: int | None = None
    """The number of values behind the reading."""
    low: float | None = None
    high: float | None = None
    why: str = ""
    """Why there is no value, or no interval."""
    clusters: float | None = None
    """The effective number of tasks, prompts or groups that decide the interval's width
    (`statistics.intervals.effective_clusters`); `None` where it is not known."""

    @property
    def number(self) -> float | None:
        """The value of a reading that is a number. `None` for a label, and where there is no value."""
        return float(self.value) if isinstance(self.value, int | float) else None


@dataclass(frozen=True, slots=True)
class CrossScores:
    """Log-probabilities of M thoughts under N distinct prompts, in nats."""

    scores_MN: Sequence[Sequence[float]]
    """Row i, column j: log p(z_i | x_j), summed over the tokens of z_i (a float64 array)."""
    lengths_M: Sequence[int]
    """T_i: tokens of z_i."""
    own_M: Sequence[int]
    """The column of the prompt under which z_i was sampled."""
    heads: Mapping[int, Sequence[Sequence[float]]] = field(default_factory=dict)
    """For each k: the same sums over the first min(k, T_i) tokens."""
    noise: float = 0.0
    """Stated rounding error of one sum, in nats: closer scores count as tied."""
    tokens: Sequence[Sequence[Sequence[float]]] | None = None
    """Only on request: the N x T_i log-probabilities of thought i, one per token (float32 arrays). They add up to
    `scores_MN`, to float32 rounding."""
    method: str = ""
    """How the scorer read the pairs, for people. Empty if it does not say."""
    tasks_M: Sequence[str] | None = None
    """The task of each thought, where several prompts may be contexts of one task: intervals are taken over tasks.
    `None`: every prompt is independent of the others."""


class Rightness(Protocol):
    """How right each next action of a task is, as `protocols.KnowsRight` tells it."""

    def __call__(self, task: Task, before: Sequence[Sequence[str]] = ()) -> Mapping[str, float] | None:
        """Action -> how right it is in [0, 1]; actions without a value are wrong. `None`: not known.

        `before`: the executed actions of each turn so far.
        """
        ...


class Worth(Protocol):
    """How good a whole first answer is, as `protocols.GradesAnswers` tells it."""

    def __call__(self, task: Task, reply: str) -> float | None:
        """The progress of the actions written in a reply, of the most that one answer can make. `None`: not known."""
        ...


def nothing_right(task: Task, before: Sequence[Sequence[str]] = ()) -> None:
    """The rightness of an environment that names no right actions."""
