"""Which thoughts are scored under which prompts: rows and columns of a cross-score matrix, scope by scope.

Prompts are distinct by their token ids. First turns need no random numbers. The other scopes draw only from the
generator passed in.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.types import CALL_START, Group, Image, Reply, Trajectory

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThoughtTags:
    """The texts around a thought, for the texts that are stored with the scores. Scores use ids, whose range the reply
    holds."""

    open: str = "<think>"
    close: str = "</think>"

    def split(self, reply: Reply) -> tuple[str, str]:
        """The text before the first token of the thought, and the text of the thought.

        Exact where tags and tokens end together. An end-of-turn token has no text.
        """
        before, text = reply.prompt.text, reply.text
        if before.rstrip().endswith(self.open):
            text = text.removeprefix(before[before.rindex(self.open) :])
        elif self.open in text:
            written, _, text = text.partition(self.open)
            before += written + self.open
        if not reply.closed:
            return before, text
        if self.close in text:
            return before, text.partition(self.close)[0] + self.close
        return before, re.split(CALL_START, text, maxsplit=1)[0]  # a thought that a tool call ended


@dataclass(frozen=True, slots=True)
class Thoughts:
    """M thoughts and the N distinct prompts they were sampled under."""

    prompts_N: tuple[Ids, ...]
    """Token ids of the whole context up to the first id of the thought."""
    thoughts_M: tuple[Ids, ...]
    """Token ids of each thought, its end included."""
    own_M: tuple[int, ...]
    tasks_M: tuple[str, ...]
    """The id of the task of each thought."""
    closed_M: tuple[bool, ...]
    """True where the thought was closed by its tag."""
    prompt_texts_N: tuple[str, ...]
    """What was new to the model in each prompt: the whole of a first turn or of a window, else the last observation."""
    thought_texts_M: tuple[str, ...]
    images_N: tuple[tuple[Image, ...], ...] = ()
    """The pictures that belong to each of these texts. Empty: no prompt has any."""


@dataclass(frozen=True, slots=True)
class SwappedObservations:
    """M thoughts of one turn number, each with its own history, and the N distinct observations they answer.

    Row i under column j is thought i after `context(i, j)`: history kept, the last observation swapped. In its
    own column the context is the one that the thought was sampled under.
    """

    histories_M: tuple[Ids, ...]
    """Token ids of each context up to its last observation."""
    observations_N: tuple[Ids, ...]
    """Token ids from the last observation to the next generation prompt."""
    leads_M: tuple[Ids, ...]
    """What was sampled before the thought (an opening tag that is not forced). Stays with the thought."""
    thoughts_M: tuple[Ids, ...]
    own_M: tuple[int, ...]
    tasks_M: tuple[str, ...]
    """The id of the task of each thought."""
    closed_M: tuple[bool, ...]
    why: str = ""
    """Why there are no rows."""

    def context(self, row: int, column: int) -> Ids:
        return (*self.histories_M[row], *self.observations_N[column], *self.leads_M[row])


@dataclass(frozen=True, slots=True)
class _Row:
    """One thought with what came before it."""

    prompt: Ids
    thought: Ids
    task: str
    closed: bool
    prompt_text: str
    thought_text: str
    images: tuple[Image, ...]

    @classmethod
    def of(cls, trajectory: Trajectory, turn: int, tags: ThoughtTags) -> _Row:
        reply = trajectory.turns[turn].reply
        before, text = tags.split(reply)
        prompt = (*trajectory.context_ids(turn), *reply.ids[: reply.thought.start])
        return cls(prompt, _thought(reply), trajectory.task.id, reply.closed, before, text, reply.prompt.images)


def by_environment(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each environment, in order of first appearance."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.task.environment, []).append(group)
    return found


def first_turn_thoughts(
    groups: Sequence[Group], tags: ThoughtTags, prompts: int | None = None, thoughts: int | None = None
) -> Thoughts:
    """The first turns' thoughts of the first `prompts` groups, `thoughts` members each (`None`: all).

    Members are exchangeable, so the first ones are as good a sample as any. Left out: members without a turn and
    thoughts without a token. Groups with equal prompts share a column.
    """
    rows = [
        _Row.of(trajectory, 0, tags)
        for group in groups[:prompts]
        for trajectory in group.trajectories[:thoughts]
        if 0 in turns_with_a_thought(trajectory)
    ]
    return _together(rows)


def any_turn_thoughts(groups: Sequence[Group], tags: ThoughtTags, rng: random.Random, rows: int = 64) -> Thoughts:
    """Thoughts of `rows` trajectories, one turn drawn uniformly from each; of all where there are fewer.

    Drawn without replacement, so a column is shared only where whole contexts are equal. Later contexts hold the
    model's own earlier text, by which it may recognise its thought.
    """
    candidates = [trajectory for trajectory in members(groups) if turns_with_a_thought(trajectory)]
    drawn = rng.sample(candidates, min(rows, len(candidates)))
    return _together([_Row.of(one, rng.choice(turns_with_a_thought(one)), tags) for one in drawn])


def swapped_observations(
    groups: Sequence[Group], rng: random.Random, rows: int = 32, columns: int = 16
) -> SwappedObservations:
    """At most `rows` thoughts of one later turn and at most `columns` of the observations they answer.

    The groups must be of one environment. The turn is the one, from the second on, with the most thoughts (the
    earliest of equals: in practice the second), so that measurements of one run compare. Trajectories are taken in a
    drawn order. One whose observation would be a column too many is passed over.
    """
    reaching = Counter(turn for trajectory in members(groups) for turn in turns_with_a_thought(trajectory) if turn)
    why = "no episode has a second turn with a thought"
    for turn in sorted(reaching, key=lambda turn: (-reaching[turn], turn)):
        found = _swapped_at(turn, groups, rng, rows, columns)
        if len(found.observations_N) > 1:
            return found
        why = "all later turns of a kind show the same observation"
    return SwappedObservations((), (), (), (), (), (), (), why)


def _swapped_at(turn: int, groups: Sequence[Group], rng: random.Random, rows: int, columns: int) -> SwappedObservations:
    candidates = [trajectory for trajectory in members(groups) if turn in turns_with_a_thought(trajectory)]
    place: dict[Ids, int] = {}
    chosen: list[tuple[Ids, Reply, int, str]] = []
    for trajectory in rng.sample(candidates, len(candidates)):
        history, observation = observed(trajectory, turn)
        if len(chosen) == rows or (observation not in place and len(place) == columns):
            continue
        reply = trajectory.turns[turn].reply
        chosen.append((history, reply, place.setdefault(observation, len(place)), trajectory.task.id))
    return SwappedObservations(
        histories_M=tuple(history for history, _, _, _ in chosen),
        observations_N=tuple(place),
        leads_M=tuple(reply.ids[: reply.thought.start] for _, reply, _, _ in chosen),
        thoughts_M=tuple(_thought(reply) for _, reply, _, _ in chosen),
        own_M=tuple(own for _, _, own, _ in chosen),
        tasks_M=tuple(task for _, _, _, task in chosen),
        closed_M=tuple(reply.closed for _, reply, _, _ in chosen),
    )


def observed(trajectory: Trajectory, turn: int) -> tuple[Ids, Ids]:
    """The context of the reply of turn number `turn` (from 0): the history, and the observation after it.

    After a reply that was cut, what was appended begins with the token that ends that reply: it is history. In a
    window of history the opening and the replies that it keeps are history. Where nothing is kept there is none.
    """
    context, prompt = trajectory.context_ids(turn), trajectory.turns[turn].reply.prompt
    ending = 1 if turn and trajectory.turns[turn - 1].reply.cut else 0
    known = prompt.history if prompt.restarts else ending
    start = len(context) - len(prompt.ids) + known
    return context[:start], context[start:]


def members(groups: Sequence[Group]) -> Iterable[Trajectory]:
    """All episodes, group by group."""
    return (trajectory for group in groups for trajectory in group.trajectories)


def turns_with_a_thought(trajectory: Trajectory) -> list[int]:
    """The numbers of the turns (from 0) whose thought has a token."""
    return [number for number, turn in enumerate(trajectory.turns) if len(turn.reply.thought)]


def _thought(reply: Reply) -> Ids:
    return reply.ids[reply.thought.start : reply.thought.end]


def _together(rows: Sequence[_Row]) -> Thoughts:
    """Rows with equal prompts share a column."""
    columns: dict[Ids, int] = {}
    first: dict[Ids, _Row] = {}
    for row in rows:
        columns.setdefault(row.prompt, len(columns))
        first.setdefault(row.prompt, row)
    images_N = tuple(row.images for row in first.values())
    return Thoughts(
        prompts_N=tuple(columns),
        thoughts_M=tuple(row.thought for row in rows),
        own_M=tuple(columns[row.prompt] for row in rows),
        tasks_M=tuple(row.task for row in rows),
        closed_M=tuple(row.closed for row in rows),
        prompt_texts_N=tuple(row.prompt_text for row in first.values()),
        thought_texts_M=tuple(row.thought_text for row in rows),
        images_N=images_N if any(images_N) else (),
    )
