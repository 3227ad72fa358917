"""A socket that is read with one deadline for a whole message.

A time-out of a socket is for one read. A peer that sends one byte a minute never exceeds it.
"""

from __future__ import annotations

import io
import math
import socket
import time
from typing import Any


class DeadlineReader(io.RawIOBase):
    """The incoming bytes of a socket. Reading past the deadline raises TimeoutError.

    `most`: bytes of the whole message. Beyond them ValueError is raised.
    """

    def __init__(self, connection: socket.socket, seconds: float, most: float = math.inf) -> None:
        self._connection, self._most = connection, most
        # Keeps the socket open until this is closed, as every file of a socket does.
        self._file = connection.makefile("rb", 0)
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Set the deadline this many seconds from now."""
        self._deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._file.close()

    def readinto(self, buffer: Any) -> int:
        left = self.left
        if left <= 0:
            raise TimeoutError("the time for this message is over")
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        self._most -= count
        if self._most < 0:
            raise ValueError("it has no end")
        return count
