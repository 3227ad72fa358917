"""The collectors that configurations can name."""

from __future__ import annotations

from collections.abc import Mapping

from heedful.rollout.asynchronous import Asynchronous
from heedful.rollout.lock_step import LockStep

COLLECTORS: Mapping[str, type] = {"lock_step": LockStep, "async": Asynchronous}
"""Collectors by the name that configurations and the command line use."""
