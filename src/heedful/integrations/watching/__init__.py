"""What heedful needs inside any other trainer: its batches as groups, the observer, the record of the run.

No trainer is imported here, and no torch. A folder beside this one knows one trainer and turns its batches into
`Completion`s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.integrations.watching.completions import BatchReader, Completion
    from heedful.integrations.watching.observer import Observer, Seen
    from heedful.integrations.watching.record import STATE, Record, load_state, reading_state, save_state
    from heedful.integrations.watching.settings import numbers_of, refuse_soft_weights, truncating, unknown_metrics

__all__ = [
    "STATE",
    "BatchReader",
    "Completion",
    "Observer",
    "Record",
    "Seen",
    "load_state",
    "numbers_of",
    "reading_state",
    "refuse_soft_weights",
    "save_state",
    "truncating",
    "unknown_metrics",
]

__getattr__ = lazily(
    __name__,
    {
        "BatchReader": "heedful.integrations.watching.completions",
        "Completion": "heedful.integrations.watching.completions",
        "Observer": "heedful.integrations.watching.observer",
        "Seen": "heedful.integrations.watching.observer",
        "Record": "heedful.integrations.watching.record",
        "STATE": "heedful.integrations.watching.record",
        "load_state": "heedful.integrations.watching.record",
        "reading_state": "heedful.integrations.watching.record",
        "save_state": "heedful.integrations.watching.record",
        "numbers_of": "heedful.integrations.watching.settings",
        "refuse_soft_weights": "heedful.integrations.watching.settings",
        "truncating": "heedful.integrations.watching.settings",
        "unknown_metrics": "heedful.integrations.watching.settings",
    },
)
