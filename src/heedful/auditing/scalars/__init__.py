"""Scalars that a trainer logs: one number for each step and name, read from the files of trackers and trainers."""

from heedful.auditing.scalars.aliases import Names
from heedful.auditing.scalars.files import ScalarRow, scalar_files, scalar_kind, scalar_rows
from heedful.auditing.scalars.history import History, mapped, scalar_metrics

__all__ = ["History", "Names", "ScalarRow", "mapped", "scalar_files", "scalar_kind", "scalar_metrics", "scalar_rows"]
