"""The value of a score whose scorer also pays for replies that answer nothing.

The score of such a reply becomes 0, the full score becomes 1, and the order of all others is kept.
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
