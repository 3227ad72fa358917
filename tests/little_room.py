"""A bound on the memory of this process, for inputs that are small and unpack to very much."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = 2 << 30
"""Bytes of address space. What asks for more has a fault."""


@contextmanager
def little_room() -> Iterator[None]:
    """Within it, this process gets no more than `ROOM`. A reader that asks for more raises MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
