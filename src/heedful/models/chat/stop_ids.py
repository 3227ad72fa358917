"""The ids that a model's `generation_config.json` names as ends of a reply. Its file may hold anything."""

from __future__ import annotations

from typing import Any


def named_stop_ids(generation: Any) -> list[int]:
    """`eos_token_id` of a generation configuration, one id or several. Raises ValueError for anything else."""
    named = getattr(generation, "eos_token_id", None)
    ids = named if isinstance(named, list | tuple) else [] if named is None else [named]
    wrong = [each for each in ids if type(each) is not int or each < 0]
    if wrong:
        raise ValueError(
            f"Expected ids of tokens as eos_token_id in generation_config.json, found {str(wrong[0])[:100]!r}. "
            "Correct the file."
        )
    return list(ids)
