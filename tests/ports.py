"""Ports for what is started later, comes back to its port, or is not there."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody_at() -> Iterator[str]:
    """The URL of a port of this machine at which nobody listens, and that nobody else can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def lasting_port() -> int:
    """A port that is free now, and that the system does not give to whoever asks for any free port."""
    for port in random.Random(os.getpid()).sample(range(20_000, 32_000), 100):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free between 20000 and 32000")
