"""The refusal of soft weights: inside another trainer a group is kept or dropped. Torch-free."""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.protocols import Filter
from heedful.types import Verdict

UNEVEN = tuple((1.0,) * ones + (0.0,) * (8 - ones) for ones in (0, 1, 4, 8))
"""Values of groups to which a filter with weights gives unequal weights."""


def refuse_soft_weights(trainer: str, filter: Filter) -> None:
    """Raise ValueError for a filter that gives a few uneven groups other weights than 0 and 1."""
    check_weights(trainer, filter, filter(UNEVEN, random.Random(0)))


def check_weights(trainer: str, filter: Filter, verdicts: Sequence[Verdict]) -> None:
    """Raise ValueError for weights other than 0 and 1, because the trainer's loss can only keep or drop rows."""
    weights = sorted({verdict.weight for verdict in verdicts})
    if not set(weights) <= {0.0, 1.0}:
        raise ValueError(
            f"Inside {trainer} a group is kept or dropped, but {type(filter).__name__} gives soft weights (here "
            f"{', '.join(f'{weight:.3g}' for weight in weights)}). Choose a filter without weights, such as TopP."
        )
