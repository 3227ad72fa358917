"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

Promise: reads only; what the log does not say is said to be missing or assumed, never made up.
"""

from heedful.auditing.recognised import open_log
from heedful.auditing.run import audit
from heedful.auditing.settings import AuditSettings

__all__ = ["AuditSettings", "audit", "open_log"]
