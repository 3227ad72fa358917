"""What a step is measured with: the diagnostician, and how it asks a scorer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.measuring.diagnostician import Diagnosis, Diagnostician
    from heedful.measuring.diagnostics_config import DiagnosticsConfig
    from heedful.measuring.swapped import TokenScorer

__all__ = [
    "Diagnosis",
    "Diagnostician",
    "DiagnosticsConfig",
    "TokenScorer",
]

__getattr__ = lazily(
    __name__,
    {
        "TokenScorer": "heedful.measuring.swapped",
        "Diagnosis": "heedful.measuring.diagnostician",
        "Diagnostician": "heedful.measuring.diagnostician",
        "DiagnosticsConfig": "heedful.measuring.diagnostics_config",
    },
)
