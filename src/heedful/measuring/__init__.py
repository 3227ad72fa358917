"""What a step is measured with: the diagnostician, and how it asks a scorer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.measuring.swapped import TokenScorer

__all__ = ["TokenScorer"]

__getattr__ = lazily(__name__, {"TokenScorer": "heedful.measuring.swapped"})
