"""The connections of a server: how many there may be, from how many addresses, and which one makes room.

A connection either waits for its client (for a request, or until an answer is taken) or its request is being answered.
Where there is no room, the connection that has waited longest for its client is closed. So clients that send nothing,
or a byte at a time, lock nobody out. A client of ours makes a closed connection anew.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import TCPServer


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server."""

    largest_request: int = 2**22
    """Maximum size in bytes. A character of a reply can take six bytes."""
    connections: int = 512
    """Maximum number of open connections. Each takes a thread."""
    log_every: int = 10_000
    """Requests between two lines of log."""
    per_address: int = 0
    """Maximum number of open connections of one address. 0 = three quarters of all."""
    request_seconds: float = 30.0
    """Seconds in which a request must have arrived whole, and an answer must have been taken."""
    safe_seconds: float = 5.0
    """Seconds for which a connection may wait for its client before another one can take its place."""
    request_flag: str = "--largest-reply"
    """What sets `largest_request`, for the sentence of a refusal."""

    @property
    def of_an_address(self) -> int:
        return self.per_address or max(1, self.connections * 3 // 4)


@dataclass(slots=True)
class _Seat:
    address: str
    waiting_since: float | None
    """`None` while a request is being answered."""


class Connections:
    """The open connections. Thread-safe."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._seats: dict[socket.socket, _Seat] = {}

    def admit(self, connection: socket.socket, address: str) -> str:
        """Take in a connection: empty, or the sentence of a refusal."""
        limits = self._limits
        with self._lock:
            its = [held for held, seat in self._seats.items() if seat.address == address]
            if len(its) >= limits.of_an_address and not self._make_room(its):
                if limits.of_an_address < limits.connections:
                    return f"All {limits.of_an_address} connections of one address are in use; try again later."
                return f"All {limits.connections} connections of this server are in use; try again later."
            if len(self._seats) >= limits.connections and not self._make_room(list(self._seats)):
                return f"All {limits.connections} connections of this server are in use; try again later."
            self._seats[connection] = _Seat(address, self._clock())
        return ""

    def _make_room(self, among: list[socket.socket]) -> bool:
        """Close the connection that has waited longest for its client, if one has waited long enough."""
        waited = [(seat.waiting_since, held) for held in among if (seat := self._seats[held]).waiting_since is not None]
        since, longest = min(waited, key=lambda pair: pair[0], default=(None, None))
        if since is None or longest is None or since > self._clock() - self._limits.safe_seconds:
            return False
        del self._seats[longest]
        with contextlib.suppress(OSError):
            longest.shutdown(socket.SHUT_RDWR)
        return True

    def waits(self, connection: socket.socket) -> None:
        """The connection waits for its client from now on."""
        self._note(connection, self._clock())

    def is_answered(self, connection: socket.socket) -> None:
        """The connection's request has arrived and is being answered."""
        self._note(connection, None)

    def _note(self, connection: socket.socket, since: float | None) -> None:
        with self._lock:
            seat = self._seats.get(connection)
            if seat is not None:
                seat.waiting_since = since

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._seats.pop(connection, None)

    def close(self) -> None:
        """Shut all connections down."""
        with self._lock:
            for connection in self._seats:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def bind(server: TCPServer) -> None:
    """Take the address of a server. Raises ValueError where it is none of this machine, or its port is not free."""
    try:
        TCPServer.server_bind(server)
    except (OSError, TypeError) as error:  # Python raises TypeError for what can be no name of a host
        host, port = server.server_address[:2]
        raise ValueError(
            f"Expected a free port of an address of this machine, found port {port} of {host!r:.80} "
            f"({getattr(error, 'strerror', None) or error}). Give another --port or --host."
        ) from error
