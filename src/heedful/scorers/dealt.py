"""A scorer whose pairs all ranks of a run share. Rank 0 asks, every rank scores its part, rank 0 gets the whole.

Every thought is scored under every prompt, so prompts are dealt first: no rank reads one that another rank reads. All
ranks read the prompts that are left over, each with its share of the thoughts. With weights that are spread over the
ranks (FSDP, ZeRO-3) all ranks make equally many passes (`models.forward.spread`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from heedful.scorers.pairs import Ids, ScoreSums, read_pairs
from heedful.types import CrossScores

if TYPE_CHECKING:
    from heedful.scorers.hf import HFScorer


class Ranks(Protocol):
    """The processes of a run."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def gather(self, item: Any) -> list[Any]:
        """The items of all ranks, on every rank, in the order of ranks."""
        ...


class Part(NamedTuple):
    """Distinct thoughts (rows) under prompts (columns)."""

    rows: list[int]
    columns: list[int]


class _Asked(NamedTuple):
    """What rank 0 asks of all ranks. `prompts` is empty where only the probes are to run."""

    prompts: list[Ids]
    thoughts: list[Ids]
    temperature: float
    keep: Literal["sums", "tokens"]


@dataclass(slots=True)
class DealtScorer:
    """`scorer` on every rank of a run.

    Rank 0 calls `cross_score` inside `asking()`, while all other ranks are in `answer()`. The scores equal those of one
    process up to the stated rounding. An error of any rank is raised on rank 0.
    """

    scorer: HFScorer
    ranks: Ranks
    reading_model: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes a context in which every rank may read the model, as often as it likes."""
    _probed: bool = False

    @property
    def name(self) -> str:
        return self.scorer.name

    @contextmanager
    def asking(self) -> Iterator[None]:
        """On rank 0: a context in which the other ranks answer. They leave `answer` at its end.

        The weights must not change in it, since every rank keeps what it has read of prompts.
        """
        try:
            with self.scorer.asking():
                yield
        finally:
            self.ranks.gather(None)

    def answer(self) -> None:
        """On every other rank: score what rank 0 asks, until its `asking()` has ended."""
        with self.scorer.asking():
            while (asked := self.ranks.gather(None)[0]) is not None:
                self._all(asked)

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores:
        """As `HFScorer.cross_score`, on rank 0, inside `asking()`."""
        pairs = read_pairs(prompts_N, thoughts_M)
        parts = self._ask(_Asked(pairs.prompts, pairs.distinct, temperature, keep))
        sums = ScoreSums(pairs.lengths, len(pairs.prompts), keep_tokens=keep == "tokens")
        noise, method = 0.0, ""
        for part, scored in parts:
            cells = np.ix_(part.rows, part.columns)
            for sums_MN, found_MN in zip(sums.sums_SMN, (scored.scores_MN, *scored.heads.values()), strict=True):
                sums_MN[cells] = found_MN
            if sums.tokens_MNT is not None:
                for row, tokens_NT in zip(part.rows, scored.tokens or (), strict=True):
                    sums.tokens_MNT[row][part.columns] = tokens_NT
            noise, method = max(noise, scored.noise), method or scored.method
        return sums.scores(pairs, own_M, noise, method)

    def reading(self, prompts_N: Sequence[Sequence[int]], thoughts_M: Sequence[Sequence[int]]) -> int:
        """The tokens that one process would read, padding included, so that a budget does not depend on the ranks."""
        if not self._probed:  # the probes read the model, so all ranks make them
            self._ask(_Asked([], [], 1.0, "sums"))
        return self.scorer.reading(prompts_N, thoughts_M)

    def _ask(self, asked: _Asked) -> list[tuple[Part, CrossScores]]:
        """What all ranks find, asked for by rank 0."""
        self.ranks.gather(asked)
        parts = self._all(asked)
        self._probed = True
        return parts

    def _all(self, asked: _Asked) -> list[tuple[Part, CrossScores]]:
        """The parts of all ranks. On rank 0 the first error of a rank is raised."""
        found: list[tuple[Part, CrossScores]] | BaseException
        try:
            with self.reading_model():
                found = self._share(asked)
        except BaseException as error:  # also Ctrl-C: the other ranks wait for an answer
            found = error
        gathered = self.ranks.gather(found)
        failed = next((one for one in gathered if isinstance(one, BaseException)), None)
        if failed is not None and self.ranks.rank == 0:
            raise failed
        return [] if failed is not None else [part for share in gathered for part in share]

    def _share(self, asked: _Asked) -> list[tuple[Part, CrossScores]]:
        if not asked.prompts:
            _ = self.scorer.method
            return []
        found = []
        for part in deal(asked.prompts, asked.thoughts, self.ranks.size)[self.ranks.rank]:
            prompts = [asked.prompts[column] for column in part.columns]
            thoughts = [asked.thoughts[row] for row in part.rows]
            own = [0] * len(thoughts)  # the caller knows whose thought it is
            found.append((part, self.scorer.cross_score(prompts, thoughts, own, asked.temperature, asked.keep)))
        return found


def deal(prompts: Sequence[Ids], thoughts: Sequence[Ids], ranks: int) -> list[list[Part]]:
    """What each rank scores, so that all read about as much and each pair of thought and prompt is scored once.

    Prompts are dealt from the longest on, in turns that alternate in direction. Thoughts under the prompts that are
    left over are cut in their sorted order, so that shared beginnings stay on one rank.
    """
    longest = sorted(range(len(prompts)), key=lambda column: -len(prompts[column]))
    whole = len(prompts) - len(prompts) % ranks
    every, columns_R = list(range(len(thoughts))), [list[int]() for _ in range(ranks)]
    for place, column in enumerate(longest[:whole]):
        round_, rank = divmod(place, ranks)
        columns_R[rank if round_ % 2 == 0 else ranks - 1 - rank].append(column)
    shares = [[Part(every, sorted(columns))] if columns and every else [] for columns in columns_R]
    if longest[whole:]:
        ordered = sorted(every, key=lambda row: thoughts[row])
        read = list(accumulate(1 + len(thoughts[row]) for row in ordered))
        for rank, share in enumerate(shares):
            rows = [row for row, end in zip(ordered, read, strict=True) if (end - 1) * ranks // read[-1] == rank]
            if rows:
                share.append(Part(sorted(rows), sorted(longest[whole:])))
    return shares
