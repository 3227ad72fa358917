"""Alarms: their rules as data, and the state that watches a run for them."""

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
