"""Audits of logged rollouts: any trainer's log in, the metrics of training out, with or without a model.

Promise: an audit only reads. What the log does not say is reported as missing or assumed, never invented.
"""

from heedful.audit.recognised import open_log
from heedful.audit.run import audit
from heedful.audit.settings import AuditSettings

__all__ = ["AuditSettings", "audit", "open_log"]
