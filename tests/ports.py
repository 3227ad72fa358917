"""Ports for what is started later, or comes back to its port."""

from __future__ import annotations

import os
import random
import socket


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
