"""A batch that another trainer sampled as heedful's groups: rows of ids, masks and rewards become trajectories.

The ids are the trainer's own. Rewards are the raw ones, with the trainer's weights and never normalised. Torch-free.

A completion with an alternating mask (tools, `env_mask`) is an episode. Each run of sampled ids is a reply, and the ids
between two runs are the prompt of the next reply.

Pictures stand in the trainer's ids as placeholders. A reader with `sight` puts the ids of the pictures there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.integrations.watching.pictures import count_in, with_pictures
from heedful.models.chat.replies import ReplyParser, Tags
from heedful.models.sight import Sight
from heedful.types import Ending, Group, Image, Prompt, Reply, Task, Trajectory, Turn

Ids = tuple[int, ...]
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled row of a batch, as plain data that can travel between processes."""

    prompt_ids: Ids
    ids: Ids
    sampled: tuple[bool, ...]
    """True = the policy sampled this id. False = a tool or an environment wrote it."""
    rewards: Mapping[str, float]
    """Reward function -> its weighted reward. NaN, or missing: it gave none for the row."""
    outcome: float = math.nan
    """Success in [0, 1]; NaN = unknown."""
    environment: str = ""
    """The environment named in the row, if a run mixes several."""
    played: Trajectory | None = None
    """The episode, if one of heedful's environments was played. Its rewards are already weighted."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the trainer gives beside the reward, for filters. They are no part of the reward."""
    logprobs: tuple[float, ...] = ()
    """The sampler's log-probabilities, one per id, or none."""
    version: int | None = None
    """The number of updates before the weights that sampled it. `None` = that of the batch."""
    rest: tuple[Completion, ...] = ()
    """Later rows of the same episode, each with a context of its own. Only their ids count."""
    images: tuple[Image, ...] = ()
    """The pictures of its prompt, and of what a tool or an environment wrote, in order."""
    unreadable: str = ""
    """Why its pictures are missing from `images`, if they are."""


@dataclass(frozen=True, slots=True)
class BatchReader:
    """A reader of the completions of one tokenizer."""

    parser: ReplyParser
    decode: Decode
    tags: Tags
    sight: Sight | None = None
    """Knows the ids of pictures. `None`: placeholders stay as they are."""

    def groups(self, members_PG: Sequence[Sequence[Completion]], version: int, temperature: float) -> list[Group]:
        """The completions as groups. The task is the one that was played, or is identified by the first prompt of the
        group.

        Raises Unplaced if pictures cannot be found among the ids of their rows.
        """
        return [self._group([*map(self._placed, members_G)], version, temperature) for members_G in members_PG]

    def _placed(self, completion: Completion) -> Completion:
        """The completion with the ids of its pictures."""
        if self.sight is None:
            return completion
        if completion.played is not None:
            for image in (image for turn in completion.played.turns for image in turn.reply.prompt.images):
                self.sight.show(image)
            return completion
        before = len(completion.prompt_ids)
        written = (*(True,) * before, *(not sampled for sampled in completion.sampled))
        ids = with_pictures(completion.prompt_ids + completion.ids, written, completion.images, self.sight)
        return replace(completion, prompt_ids=ids[:before], ids=ids[before:])

    def _group(self, members: Sequence[Completion], version: int, temperature: float) -> Group:
        # A member that was never played does not say which task its group has.
        known = (one for one in members if one.prompt_ids or (one.played is not None and one.played.turns))
        first = next(known, members[0])
        task = first.played.task if first.played is not None else _task(first)
        return Group(
            task,
            tuple(
                replace(
                    self._trajectory(completion, task, temperature),
                    member=member,
                    policy_version=version if completion.version is None else completion.version,
                )
                for member, completion in enumerate(members)
            ),
        )

    def _trajectory(self, completion: Completion, task: Task, temperature: float) -> Trajectory:
        if completion.played is not None:
            return replace(
                completion.played, task=task, turns=_with_rewards(completion.played.turns, completion.rewards)
            )
        turns = _with_rewards(tuple(self._turns(completion)), completion.rewards)
        scored = bool(completion.rewards)
        outcome = completion.outcome if scored else None
        ending = Ending.SOLVED if outcome == 1 else Ending.FAILED
        if turns and turns[-1].reply.cut:
            ending = Ending.OUT_OF_TOKENS
        return Trajectory(task, 0, turns, ending, outcome, temperature=temperature)

    def _turns(self, completion: Completion) -> Iterator[Turn]:
        for row in (completion, *completion.rest):
            restarts, left = row is not completion, row.images
            for prompt, ids, logprobs in replies_of(row):
                text = self.decode(prompt)
                opening = self.tags.opening_of(text)
                shown = 0 if self.sight is None else count_in(prompt, left, self.sight)
                asked = Prompt(text, prompt, restarts, images=left[:shown])
                left = left[shown:]
                reply: Reply = self.parser.parse(asked, ids, logprobs, opening=opening)
                yield Turn(reply, {}, (), True, "", "")
                restarts = False


def replies_of(completion: Completion) -> Iterator[tuple[Ids, Ids, tuple[float, ...]]]:
    """(ids new to the policy, ids it sampled after them, their log-probabilities) of each reply of one row.

    Ids after the last reply are left out. A completion without sampled ids is one reply without ids."""
    waiting: Ids = completion.prompt_ids
    if not any(completion.sampled):
        yield waiting + completion.ids, (), ()
        return
    for sampled, run in groupby(range(len(completion.ids)), key=lambda place: completion.sampled[place]):
        places = list(run)
        ids = completion.ids[places[0] : places[-1] + 1]
        if sampled:
            yield waiting, ids, completion.logprobs[places[0] : places[-1] + 1]
            waiting = ()
        else:
            waiting += ids


def row_of(turns: Sequence[Turn]) -> tuple[list[int], list[int], list[float]]:
    """Consecutive turns of an episode, each context extending the last, as one row behind the first turn's prompt.

    (ids, 1 = sampled and 0 = between two replies, log-probabilities with 0 where not sampled). Example: the prompt
    `a b`, the reply `C D`, the glue `e` and the reply `F` give `C D e F` and `1 1 0 1`."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for place, turn in enumerate(turns):
        reply = turn.reply
        glue = reply.prompt.ids if place else ()
        ids += glue + reply.ids
        mask += [0] * len(glue) + [1] * len(reply.ids)
        logprobs += [0.0] * len(glue) + list(reply.logprobs)
    return ids, mask, logprobs


def success_of(value: float, name: str, setting: str) -> float:
    """The value, if it can be success. Raises ValueError outside 0 to 1. `setting`: what has named it."""
    if not (math.isnan(value) or 0 <= value <= 1):
        raise ValueError(
            f"Expected success from 0 to 1 of {name!r}, which {setting} names, found {value}. Name one that gives it, "
            "or none."
        )
    return value


def in_groups(completions: Sequence[Completion], group_size: int) -> list[Sequence[Completion]]:
    """Consecutive completions, `group_size` each. The batch of a generation holds every completion of each prompt."""
    return [completions[start : start + group_size] for start in range(0, len(completions), group_size)]


def values_of(members_PG: Sequence[Sequence[Completion]], groups: Sequence[Group], on: str) -> list[list[float | None]]:
    """The values for a filter with this `on`, as in `values_on`.

    Exception: if `on` names a reward function or a measure, a completion without it has no value."""
    values_PG = values_on(groups, on)
    if on in ("outcome", "reward"):
        return values_PG
    return [
        [
            value if row.played is not None and value is not None else row.rewards.get(on, row.measures.get(on))
            for value, row in zip(values_G, members_G, strict=True)
        ]
        for values_G, members_G in zip(values_PG, members_PG, strict=True)
    ]


def _with_rewards(turns: tuple[Turn, ...], rewards: Mapping[str, float]) -> tuple[Turn, ...]:
    """The turns, with the rewards on the last one: a reward function judges the whole completion."""
    if not turns or not rewards:
        return turns
    merged = dict(turns[-1].rewards)
    for name, value in rewards.items():
        if name not in merged or not math.isnan(value):
            merged[name] = merged.get(name, 0.0) + value
    return (*turns[:-1], replace(turns[-1], rewards=merged))


def _task(completion: Completion) -> Task:
    pictures = () if min(completion.prompt_ids, default=0) < 0 else (image.digest for image in completion.images)
    content = ",".join(map(str, (*completion.prompt_ids, *pictures)))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    name = completion.environment or "prompt"
    return Task(f"{name}-{digest}", 0, "train", environment=name)
