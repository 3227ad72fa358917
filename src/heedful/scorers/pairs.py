"""What every scorer asks of prompts and thoughts, before it reads any. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

Ids = tuple[int, ...]


def refuse_malformed(
    scorer: str, prompts: list[Ids], thoughts: list[Ids], own_M: Sequence[int], temperature: float
) -> None:
    """Raise ValueError, in the name of the scorer, for prompts, thoughts or columns that cannot be scored."""
    if not temperature > 0:
        raise ValueError(f"{scorer} expects a temperature above 0, found {temperature}: pass the one sampled with.")
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
