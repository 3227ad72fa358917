"""What a score is worth when the scorer also pays for replies that answer nothing.

Promise: a score that such a reply gets is worth 0, the full score is worth 1, and the rest keeps its order.
"""

from __future__ import annotations

FULL = 1.0 - 1e-9
"""From here on a score counts as full: scorers sum fractions in floating point."""


def above_floor(score: float, floor: float) -> float:
    """`score` in [0, 1], rescaled so that `floor` (what a reply that answers nothing gets) becomes 0."""
    if score >= FULL:
        return 1.0
    if score <= floor or floor >= FULL:
        return 0.0
    return (score - floor) / (1.0 - floor)
