"""What every scorer asks of prompts and thoughts, before it reads any. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.boundary import COLDEST, HOTTEST

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Prompts and thoughts as they are read: each distinct thought once."""

    prompts: list[Ids]
    thoughts: list[Ids]
    """All thoughts, as they were given."""
    distinct: list[Ids]
    rows_M: list[int]
    """The row of each thought in `distinct`."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each distinct thought."""
        return list(map(len, self.distinct))

    @property
    def lengths_M(self) -> list[int]:
        """Tokens of each thought."""
        return list(map(len, self.thoughts))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and the longest thought together."""
        return max(map(len, self.prompts)) + max(map(len, self.thoughts), default=0)


def read_pairs(
    scorer: str,
    prompts_N: Sequence[Sequence[int]],
    thoughts_M: Sequence[Sequence[int]],
    own_M: Sequence[int],
    temperature: float,
) -> Pairs:
    """Prompts and thoughts as plain ids. Raises ValueError as `refuse_malformed` does."""
    prompts: list[Ids] = [tuple(map(int, ids)) for ids in prompts_N]
    thoughts: list[Ids] = [tuple(map(int, ids)) for ids in thoughts_M]
    refuse_malformed(scorer, prompts, thoughts, own_M, temperature)
    row_of = {ids: row for row, ids in enumerate(dict.fromkeys(thoughts))}
    return Pairs(prompts, thoughts, list(row_of), [row_of[ids] for ids in thoughts])


def tokens_of_pairs(prompts: Sequence[Sequence[int]], thoughts: Sequence[Sequence[int]]) -> int:
    """The tokens of all distinct thoughts under all prompts, where each pair is a row of its own."""
    distinct = {tuple(ids) for ids in thoughts if len(ids)}
    return len(distinct) * sum(map(len, prompts)) + len(prompts) * sum(map(len, distinct))


def refuse_malformed(
    scorer: str, prompts: list[Ids], thoughts: list[Ids], own_M: Sequence[int], temperature: float
) -> None:
    """Raise ValueError, in the name of the scorer, for prompts, thoughts or columns that cannot be scored."""
    if not COLDEST <= temperature <= HOTTEST:
        raise ValueError(
            f"{scorer} expects a temperature between {COLDEST:g} and {HOTTEST:,}, found {temperature}: pass the one "
            "sampled with."
        )
    if not prompts or not all(prompts):
        raise ValueError(
            f"{scorer} expects prompts of at least one token, found {len(prompts)} prompts with lengths "
            f"{sorted(set(map(len, prompts)))}: leave out what was not prompted."
        )
    column_of: dict[Ids, int] = {}
    for column, ids in enumerate(prompts):
        if column_of.setdefault(ids, column) != column:
            raise ValueError(
                f"{scorer} expects distinct prompts, found the same {len(ids)} token ids as prompts {column_of[ids]} "
                f"and {column}: pass one of them and let own_M point both prompts' thoughts at it."
            )
    if len(own_M) != len(thoughts) or not all(0 <= own < len(prompts) for own in own_M):
        raise ValueError(
            f"{scorer} expects own_M to name a column from 0 to {len(prompts) - 1} for each of {len(thoughts)} "
            f"thoughts, found {len(own_M)} entries {sorted(set(own_M))}."
        )
