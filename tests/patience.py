"""Waiting in tests: for an event, never for a clock. Only a test that fails reaches the limit."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds that a busy machine may take over what takes milliseconds or, with a new process, seconds."""


def comes(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Whether the condition becomes true. It is asked every 10 ms."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
