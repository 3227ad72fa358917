"""What heedful needs inside any other trainer: its batches as groups, the observer, the record of the run.

No trainer is imported here, and no torch. A folder beside this one knows one trainer and turns its batches into
`Completion`s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.integrations.watching.completions import Completion, row_of, success_of
    from heedful.integrations.watching.observer import Observer, Seen, observer_of, refuse_replaced
    from heedful.integrations.watching.record import STATE, Record, load_state, save_state
    from heedful.integrations.watching.settings import WatchingConfig, check_version, truncating, unknown_metrics

_PLACES = {
    "completions": ("Completion", "row_of", "success_of"),
    "observer": ("Observer", "Seen", "observer_of", "refuse_replaced"),
    "record": ("STATE", "Record", "load_state", "save_state"),
    "settings": ("WatchingConfig", "check_version", "truncating", "unknown_metrics"),
}
__all__ = [
    "STATE",
    "Completion",
    "Observer",
    "Record",
    "Seen",
    "WatchingConfig",
    "check_version",
    "load_state",
    "observer_of",
    "refuse_replaced",
    "row_of",
    "save_state",
    "success_of",
    "truncating",
    "unknown_metrics",
]

__getattr__ = lazily(__name__, {name: f"{__name__}.{file}" for file, names in _PLACES.items() for name in names})
