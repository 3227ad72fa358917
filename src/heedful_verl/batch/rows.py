"""Rows of verl's batches as completions in groups. Neither verl nor torch is needed.

A key is `<uid>_<session>_<part>`: a draw of a prompt, a member of its group, and a row of the member's episode. verl
keeps them in any order. A session without rows is a member that was never scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from heedful.boundary import listed
from heedful.integrations.watching import Completion, success_of
from heedful.types import Ending, Metric, Task, Trajectory
from heedful_verl.play.episodes import ENVIRONMENT, FIELD, read_episode

SCORE = "score"
"""The name of verl's reward as a component."""

MISSING = "verl has no row of this session: its agent loop failed, or left the episode out"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of verl's batch, as plain data."""

    key: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    """`response_mask`: True = the policy sampled this id."""
    score: float
    """The sum of `rm_scores`. A score that belongs to the last row of an episode is copied to its others."""
    logprobs: tuple[float, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """`extra_fields`."""
    source: str = ""
    """`data_source`."""
    versions: tuple[int, int] | None = None
    """The first and the last version of the weights that sampled it. `None` = unknown."""
    images: bool = False
    """It holds images, audio or video."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A batch in groups: the completions of each, and the keys of their rows."""

    members_PG: list[list[Completion]]
    keys_P: list[list[str]]
    stale: int = 0
    """Groups with a row that older weights sampled."""
    images: bool = False
    played: bool = False
    """Every episode was played in an environment of heedful."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """Task -> the environment that played it, as JSON."""
    measures: frozenset[str] = frozenset()
    """The names that a filter or `outcome` can use, beside the reward and components."""

    def stale_share(self) -> Metric:
        """`signal/stale`: the share of groups with a row that older weights sampled."""
        return Metric("signal/stale", self.stale / len(self.members_PG), n=len(self.members_PG))


def sampled_of(rows: Sequence[Row], group_size: int, outcome: str | None, version: int | None) -> Sampled:
    """The groups of a batch, in the order in which their first rows stand.

    `group_size`: sessions of each prompt (`rollout.n`). `outcome`: the key of `reward_extra_info` that measures
    success. `version`: that of the present weights. Raises ValueError for keys of another form, for an infinite reward,
    and for an outcome that is missing or outside 0 to 1.
    """
    by_uid: dict[str, dict[int, dict[int, Row]]] = {}
    for row in rows:
        uid, session, part = parts_of(row.key)
        by_uid.setdefault(uid, {}).setdefault(session, {})[part] = row
    members_PG: list[list[Completion]] = []
    for sessions in by_uid.values():
        size = max(group_size, max(sessions) + 1)
        members_PG.append([_member(sessions.get(number), outcome) for number in range(size)])
    groups = [[row for parts in sessions.values() for row in parts.values()] for sessions in by_uid.values()]
    return Sampled(
        members_PG,
        [[row.key for row in group] for group in groups],
        sum(any(_is_stale(row, version) for row in group) for group in groups),
        any(row.images for row in rows),
        played=all(FIELD in parts[max(parts)].extra for sessions in by_uid.values() for parts in sessions.values()),
        environments={
            episode.task.id: row.extra[ENVIRONMENT]
            for row, episode in _played(by_uid.values(), members_PG)
            if ENVIRONMENT in row.extra
        },
        measures=frozenset(name for row in rows for name in _numbers(row)),
    )


def parts_of(key: str) -> tuple[str, int, int]:
    """(uid, session, part) of a key. Raises ValueError for another form."""
    uid, *numbers = key.rsplit("_", 2)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise ValueError(
            f"Expected keys of the form <uid>_<session>_<part> in verl's batch, found {listed([key])}. Use verl's own "
            "agent-loop workers, or train with verl's own trainer mode."
        )
    return uid, int(numbers[0]), int(numbers[1])


def mini_batch_counts(real: Sequence[bool], ranks: int, rows: int) -> list[int]:
    """For each row, how many rows of its mini-batch are real, over all ranks.

    `real`: False for rows with which verl fills up. verl gives each rank consecutive rows, and cuts each rank's share
    into mini-batches of `rows / ranks`. Example: 1 1 1 0 of 2 ranks in mini-batches of 2 gives 2 1 2 1.
    """
    share, each = len(real) // ranks, rows // ranks
    counts: dict[int, int] = {}
    places = [(place % share) // each for place in range(len(real))]
    for number, is_real in zip(places, real, strict=True):
        counts[number] = counts.get(number, 0) + is_real
    return [counts[number] for number in places]


def _played(
    groups: Iterable[Mapping[int, Mapping[int, Row]]], members_PG: Sequence[Sequence[Completion]]
) -> Iterator[tuple[Row, Trajectory]]:
    """The last row of each episode of heedful, and the episode."""
    for sessions, members in zip(groups, members_PG, strict=True):
        for number, parts in sessions.items():
            row, episode = parts[max(parts)], members[number].played
            if FIELD in row.extra and episode is not None:
                yield row, episode


def _member(parts: Mapping[int, Row] | None, outcome: str | None) -> Completion:
    if not parts:
        broken = Trajectory(Task("", 0, "train"), 0, (), Ending.ERROR, None, error=MISSING)
        return Completion((), (), (), {}, played=broken)
    ordered = [parts[part] for part in sorted(parts)]
    last = ordered[-1]
    version = None if last.versions is None else last.versions[1]
    measures = _numbers(last)
    if FIELD in last.extra:
        episode = read_episode(last.extra[FIELD], ordered)
        return Completion((), (), (), {}, played=episode, measures=measures, version=version)
    first, *rest = [
        Completion(row.prompt_ids, row.response_ids, row.sampled, {}, logprobs=row.logprobs or ()) for row in ordered
    ]
    return Completion(
        first.prompt_ids,
        first.ids,
        first.sampled,
        {SCORE: _score(last)},
        _outcome(outcome, measures),
        last.source,
        measures=measures,
        logprobs=first.logprobs,
        version=version,
        rest=tuple(rest),
    )


def _numbers(row: Row) -> dict[str, float]:
    """The numbers of `reward_extra_info`, numpy's included. What is no number, and beyond a float, is left out."""
    found: dict[str, float] = {}
    given = row.extra.get("reward_extra_info") or {}
    for name, value in given.items():
        if isinstance(value, Real | np.bool_):
            with suppress(OverflowError):
                found[str(name)] = float(value)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _score(row: Row) -> float:
    if math.isinf(row.score):
        raise ValueError(
            f"Expected a finite reward of verl (rm_scores), found {row.score} in the row {listed([row.key])}. Return a "
            "finite number from the reward function."
        )
    return row.score


def _outcome(name: str | None, measures: Mapping[str, float]) -> float:
    if name is None:
        return math.nan
    if name not in measures:
        raise ValueError(
            f"Expected the key {name!r}, which heedful.outcome names, in reward_extra_info, found "
            f"{listed(sorted(measures)) or 'no numbers'}. Return it from the reward function, or name another key."
        )
    return success_of(measures[name], name, "heedful.outcome")


def _is_stale(row: Row, version: int | None) -> bool:
    return version is not None and row.versions is not None and row.versions[0] < version
