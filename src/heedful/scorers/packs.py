"""Plans of packs: which tokens of which thoughts are read in one flat row, and which tokens attend to which.

The plan depends on token ids only and is the same for every prompt. Each scored token of each thought follows exactly
one read token, or the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heedful.models.forward.shared_prompts import common_beginning

Ids = tuple[int, ...]
Ints = npt.NDArray[np.int64]

SHARE_BELOW = 0.75
"""Prefixes are shared if that leaves less than this fraction of the tokens to read."""
_PATH_COPIES = 16
"""Maximum keys of all thoughts of a pack, as a multiple of the budget. It limits the memory that sharing needs."""
_BUCKET_COPIES = 4
"""The same for the thoughts of one attention call."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Tokens to score, and the row of states that predicts each, in ascending order. A row may predict several."""

    rows_E: Ints
    tokens_E: Ints

    @classmethod
    def every(cls, rows: int, tokens: Ints) -> Targets:
        """All `tokens` after each of `rows` rows."""
        return cls(np.repeat(np.arange(rows), len(tokens)), np.tile(tokens, rows))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Thoughts of a pack of similar length, for attention among a thought's own tokens. Padding is on the right."""

    queries_BQ: Ints
    """The tokens that a thought is the first to contain."""
    keys_BK: Ints
    """All tokens that the thought reads: the shared ones, then its own."""
    starts_B: Ints
    """Number of shared tokens: query q attends to the keys up to starts + q."""
    real_BQ: npt.NDArray[np.bool_]
    """True = a query, False = padding."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Thoughts read in one flat row. All tokens with a successor are read, a shared prefix once."""

    rows: list[int]
    ids_R: Ints
    depths_R: Ints
    """Position of a read token in its thought, from 0."""
    targets: Targets
    """The scored tokens: all except first ones, those of a shared prefix once. Its rows are read tokens."""
    scored_BT: Ints
    """For each thought the targets of its second, third, ... token. -1 at padding."""
    buckets: list[Bucket]


def reads(thoughts: Sequence[Ids], *, share: bool) -> int:
    """Number of tokens read after each prompt if all thoughts fit one pack."""
    order = _order(thoughts, share)
    total = 0
    previous: Ids = ()
    for row in order:
        total += _new_reads(previous, thoughts[row], share)
        previous = thoughts[row]
    return total


def worth_sharing(thoughts: Sequence[Ids]) -> bool:
    """Whether shared prefixes save more reading than their bookkeeping costs."""
    alone = reads(thoughts, share=False)
    return alone > 0 and reads(thoughts, share=True) < SHARE_BELOW * alone


def plan_packs(thoughts: Sequence[Ids], budget: int, *, share: bool) -> list[Pack]:
    """Packs of at most `budget` read tokens and similar size. A longer thought is its own pack. No empty thoughts."""
    return [_pack(rows, thoughts, budget, share) for rows in _rows_of_packs(thoughts, budget, share)]


def reads_in_packs(thoughts: Sequence[Ids], budget: int, *, share: bool) -> int:
    """Number of tokens read after each prompt in the packs of `plan_packs`."""
    packs = _rows_of_packs(thoughts, budget, share)
    return sum(reads([thoughts[row] for row in rows], share=share) for rows in packs)


def _rows_of_packs(thoughts: Sequence[Ids], budget: int, share: bool) -> list[list[int]]:
    target = reads(thoughts, share=share)
    target = -(-target // max(1, -(-target // budget)))
    packs: list[list[int]] = []
    rows: list[int] = []
    size = seen = 0
    previous: Ids = ()
    for row in _order(thoughts, share):
        length = len(thoughts[row])
        new = _new_reads(previous, thoughts[row], share)
        if rows and ((new and size >= target) or size + new > budget or seen + length > _PATH_COPIES * budget):
            packs.append(rows)
            rows, size, seen, new = [], 0, 0, length - 1
        rows.append(row)
        size, seen, previous = size + new, seen + length, thoughts[row]
    return [*packs, rows] if rows else packs


def _order(thoughts: Sequence[Ids], share: bool) -> list[int]:
    """Order in which neighbours are similar: in their tokens if prefixes are shared, else in their length."""
    rows = [row for row, ids in enumerate(thoughts) if ids]
    return sorted(rows, key=lambda row: thoughts[row]) if share else sorted(rows, key=lambda row: -len(thoughts[row]))


def _new_reads(previous: Ids, thought: Ids, share: bool) -> int:
    """Number of tokens of a thought that the previous thought, in order of tokens, has not read."""
    shared = min(common_beginning([previous, thought]), max(0, len(previous) - 1)) if share else 0
    return len(thought) - 1 - shared


@dataclass(frozen=True, slots=True)
class _Segment:
    """The tokens that one thought is the first to contain: `own` of them after `start` shared ones."""

    path: Ints
    """All tokens that the thought reads, by their position in the pack."""
    start: int

    @property
    def own(self) -> int:
        return len(self.path) - self.start


def _pack(rows: list[int], thoughts: Sequence[Ids], budget: int, share: bool) -> Pack:
    ids: list[Ids] = []
    depths: list[Ints] = []
    parents: list[Ints] = []
    tokens: list[Ids] = []
    scored: list[Ints] = []
    segments: list[_Segment] = []
    read = targets = 0
    previous: Ids = ()
    path, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for row in rows:
        thought = thoughts[row]
        common = common_beginning([previous, thought]) if share else 0
        segment = _Segment(_grown(path[:common], read, len(thought) - 1), min(common, len(path)))
        path, read = segment.path, read + segment.own
        ids.append(thought[segment.start : -1])
        depths.append(np.arange(segment.start, len(path)))
        segments.append(segment)
        unscored = max(1, common)
        scores = _grown(scores[: unscored - 1], targets, len(thought) - 1)
        targets += len(thought) - unscored
        parents.append(path[unscored - 1 :])
        tokens.append(thought[unscored:])
        scored.append(scores)
        previous = thought
    rows_E = np.concatenate(parents)
    order_E = np.argsort(rows_E, kind="stable")
    flat_E = np.array([token for part in tokens for token in part], dtype=np.int64)
    place_E = np.empty(len(order_E), dtype=np.int64)
    place_E[order_E] = np.arange(len(order_E))
    return Pack(
        rows=rows,
        ids_R=np.array([token for part in ids for token in part], dtype=np.int64),
        depths_R=np.concatenate(depths),
        targets=Targets(rows_E[order_E], flat_E[order_E]),
        scored_BT=_padded([place_E[one] for one in scored], -1),
        buckets=list(_buckets([segment for segment in segments if segment.own], _BUCKET_COPIES * budget)),
    )


def _grown(shared: Ints, start: int, length: int) -> Ints:
    """`shared`, filled up to `length` with new numbers from `start`."""
    return np.concatenate([shared, np.arange(start, start + length - len(shared))])


def _buckets(segments: list[_Segment], most_keys: int) -> Iterator[Bucket]:
    """Segments from long to short, cut where one has fewer than 3/4 of the longest one's tokens, minus 4."""
    segments = sorted(segments, key=lambda segment: -segment.own)
    chosen: list[_Segment] = []
    width = 0
    for segment in segments:
        width = max(width, len(segment.path))
        if chosen and (segment.own < 0.75 * chosen[0].own - 4 or (len(chosen) + 1) * width > most_keys):
            yield _bucket(chosen)
            chosen, width = [], len(segment.path)
        chosen.append(segment)
    if chosen:
        yield _bucket(chosen)


def _bucket(segments: list[_Segment]) -> Bucket:
    queries_BQ = _padded([segment.path[segment.start :] for segment in segments], -1)
    keys_BK = _padded([segment.path for segment in segments], 0)
    starts_B = np.array([segment.start for segment in segments])
    return Bucket(np.maximum(queries_BQ, 0), keys_BK, starts_B, queries_BQ >= 0)


def _padded(rows: list[Ints], value: int) -> Ints:
    padded = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded
