"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

The log is only read. What it does not say is reported as missing or as assumed, never made up. A package adds a format
with a reader (`heedful.auditing.readers`) and an entry point `heedful.log_readers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.auditing.recognised import open_log
    from heedful.auditing.run import Audit, audit, measure_log
    from heedful.auditing.settings import AuditSettings

__all__ = ["Audit", "AuditSettings", "audit", "measure_log", "open_log"]

__getattr__ = lazily(
    __name__,
    {
        "Audit": "heedful.auditing.run",
        "AuditSettings": "heedful.auditing.settings",
        "audit": "heedful.auditing.run",
        "measure_log": "heedful.auditing.run",
        "open_log": "heedful.auditing.recognised",
    },
)
