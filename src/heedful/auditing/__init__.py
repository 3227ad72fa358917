"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

The log is only read. What it does not say is reported as missing or as assumed, never made up. A package adds a format
with a reader (`heedful.auditing.readers.reader`) and an entry point `heedful.log_readers`.
"""

from heedful.auditing.logs.records import Faults, Fields, Knowledge, Location, LoggedEpisode, Misfit, unknown_of
from heedful.auditing.readers.reader import Hints, RowReader
from heedful.auditing.recognised import open_log
from heedful.auditing.run import Audit, audit, measure_log
from heedful.auditing.settings import AuditSettings

__all__ = [
    "Audit",
    "AuditSettings",
    "Faults",
    "Fields",
    "Hints",
    "Knowledge",
    "Location",
    "LoggedEpisode",
    "Misfit",
    "RowReader",
    "audit",
    "measure_log",
    "open_log",
    "unknown_of",
]
