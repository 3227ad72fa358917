"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

The log is only read. What it does not say is reported as missing or as assumed, never made up.
"""

from heedful.auditing.entry import Audit, audit
from heedful.auditing.recognised import open_log
from heedful.auditing.run import measure_log
from heedful.auditing.settings import AuditSettings

__all__ = ["Audit", "AuditSettings", "audit", "measure_log", "open_log"]
