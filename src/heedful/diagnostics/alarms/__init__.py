"""Alarms: their rules as data, and the state that watches a run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.diagnostics.alarms.conditions import Rule
    from heedful.diagnostics.alarms.early_check import EarlyCheck, check_gap
    from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
    from heedful.diagnostics.alarms.watch import Alarm, Alarms, first_raised, replay

__all__ = [
    "Alarm",
    "AlarmConfig",
    "Alarms",
    "EarlyCheck",
    "Rule",
    "check_gap",
    "first_raised",
    "replay",
    "standard_rules",
]

__getattr__ = lazily(
    __name__,
    {
        "Alarm": "heedful.diagnostics.alarms.watch",
        "AlarmConfig": "heedful.diagnostics.alarms.rules",
        "Alarms": "heedful.diagnostics.alarms.watch",
        "EarlyCheck": "heedful.diagnostics.alarms.early_check",
        "Rule": "heedful.diagnostics.alarms.conditions",
        "check_gap": "heedful.diagnostics.alarms.early_check",
        "first_raised": "heedful.diagnostics.alarms.watch",
        "replay": "heedful.diagnostics.alarms.watch",
        "standard_rules": "heedful.diagnostics.alarms.rules",
    },
)
