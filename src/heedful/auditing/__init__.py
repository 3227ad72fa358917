"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

The log is only read. What it does not say is reported as missing or as assumed, never made up. A package adds a format
with a reader (`heedful.auditing.readers.reader`) and an entry point `heedful.log_readers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
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

__getattr__ = lazily(
    __name__,
    {
        "Audit": "heedful.auditing.run",
        "AuditSettings": "heedful.auditing.settings",
        "Faults": "heedful.auditing.logs.records",
        "Fields": "heedful.auditing.logs.records",
        "Hints": "heedful.auditing.readers.reader",
        "Knowledge": "heedful.auditing.logs.records",
        "Location": "heedful.auditing.logs.records",
        "LoggedEpisode": "heedful.auditing.logs.records",
        "Misfit": "heedful.auditing.logs.records",
        "RowReader": "heedful.auditing.readers.reader",
        "audit": "heedful.auditing.run",
        "measure_log": "heedful.auditing.run",
        "open_log": "heedful.auditing.recognised",
        "unknown_of": "heedful.auditing.logs.records",
    },
)
