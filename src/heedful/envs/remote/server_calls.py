"""Calls to an environment server, over connections that are kept and shared. Standard library only.

Every error names the server, and says whether the server could not be reached (`ServerUnreachable`) or refused
(`ServerRefused`). Safe for several threads.

Every request of the protocol may be repeated: a session is opened under a key, a step carries its turn, and the others
change nothing. A request is repeated once if a connection broke before the answer. It is never repeated because an
answer took too long.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import time
from collections import deque
from typing import Any
from urllib.parse import SplitResult

from heedful.boundary.open_files import in_home
from heedful.envs.common.contract import shown
from heedful.envs.transport.deadline import DeadlineReader
from heedful.envs.transport.wire import LARGEST_FRAME, Tree, WireError, decode, encode
from heedful.policies.servers import parts_of, redirected, refuse_interim, take_kept, without_secret

TOKEN_VARIABLE = "HEEDFUL_ENV_TOKEN"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to reach a missing server. They double from the first to the longest."""

_LONGEST_REFUSAL = 2000
"""Characters of a server's error that are told."""

_LONGEST_TOKEN = 4096
"""Bytes of a token. What is longer is no token, and may be a device without an end."""

_BUSY = (502, 503, 504)
"""Statuses of a server, or of a proxy before it, with which nothing was done."""


class ServerUnreachable(ConnectionError):
    """No answer came."""


class _Busy(ServerUnreachable):
    """The server, or a proxy before it, takes no further request at the moment."""


class ServerRefused(ValueError):
    """The server answered, with a refusal."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Response(http.client.HTTPResponse):
    """An answer that is read with one deadline, since a server may send a byte at a time."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        seconds = sock.gettimeout()
        super().__init__(sock, *arguments, **named)
        self.fp.close()
        self.fp = io.BufferedReader(
            DeadlineReader(sock, float("inf") if seconds is None else seconds, 2 * LARGEST_FRAME)
        )


class ServerCalls:
    """One server, as one process talks to it.

    `timeout`: seconds in which a request is sent, and again in which its answer has arrived whole. `wait`: seconds for
    which a server that has answered before and is away is waited for, by requests that ask for it. The time runs from
    when it was first missed, for all of them together.
    """

    def __init__(self, url: str, timeout: float, wait: float, token: str) -> None:
        self._parts, self._timeout, self._wait, self._token = checked_url(url), timeout, wait, token
        self.url = url.rstrip("/")
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._has_answered = False
        self._missed: float | None = None
        """When the server was first missed since its last answer."""

    def call(self, method: str, path: str, body: Tree = None, waits: bool = False) -> Tree:
        """The answer to one request.

        `waits`: keep trying to reach a server that is away. For requests that hold nothing there. One that is there
        but takes no further connection is tried again in any case.
        Raises ServerUnreachable, ServerRefused, or WireError for an answer that is no JSON.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = self._call(method, path, None if body is None else encode(body))
            except ServerUnreachable as error:
                now = time.monotonic()
                self._missed = self._missed or now
                hopeful = isinstance(error, _Busy) or (waits and self._has_answered)
                if not hopeful or now >= self._missed + self._wait:
                    raise
            else:
                self._has_answered, self._missed = True, None
                return answer
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _call(self, method: str, path: str, body: bytes | None) -> Tree:
        connection = take_kept(self._idle)
        fresh = connection is None
        while True:
            connection = connection or self._connect()
            try:
                status, where, answer = self._exchange(connection, method, path, body)
            except TimeoutError:
                connection.close()
                raise ServerUnreachable(f"the server at {self.url} gave no answer within {self._timeout:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                # A kept connection may have been closed by the server meanwhile; a fresh one should not break.
                connection.close()
                if fresh:
                    reason = self._safe(str(error)) or type(error).__name__
                    refused = isinstance(error, ConnectionRefusedError)
                    what = "was not reached" if refused else "broke off the connection"
                    raise ServerUnreachable(f"the server at {self.url} {what}: {reason}") from None
                self._idle.clear()
                connection, fresh = None, True
                continue
            break
        if status in _BUSY:
            raise _Busy(f"the server at {self.url} takes no further request at the moment ({status})")
        if 300 <= status < 400:
            raise ServerRefused(status, f"the server at {self.url} {redirected(path, status, self._safe(where))}")
        try:
            tree = decode(answer)
        except WireError as error:
            found = self._safe(str(error)).removeprefix("Expected JSON")
            asked = f"{method} {path} ({status})"
            raise WireError(f"Expected JSON of the server at {self.url} for {asked}{found}") from error
        if status >= 400:
            self._has_answered, self._missed = True, None
            told = tree.get("error") if isinstance(tree, dict) else None
            said = self._safe(told if isinstance(told, str) and told else shown(tree))[:_LONGEST_REFUSAL]
            raise ServerRefused(status, f"the server at {self.url} refused {method} {path} ({status}): {said}")
        return tree

    def _safe(self, text: str) -> str:
        """Words of the server, which may repeat the token."""
        return text.replace(self._token, "(the token)") if self._token else text

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, str, bytes]:
        """Status, the place of a redirection, and the body."""
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout)  # an earlier answer has left what remained of its time
        connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
        try:
            response = connection.getresponse()
            refuse_interim(response.status)
            answer = response.read(LARGEST_FRAME + 1)
        except ValueError as error:
            connection.close()
            raise WireError(
                f"Expected an answer in HTTP from the server at {self.url}: {self._safe(str(error))}."
            ) from error
        if len(answer) > LARGEST_FRAME:
            connection.close()
            raise WireError(
                f"Expected an answer of at most {LARGEST_FRAME:,} bytes from {self.url}, found a longer one."
            )
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        where = str(response.headers.get("Location", "another place"))
        return response.status, where, without_secret(answer, self._token)

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=self._timeout)
        connection.response_class = _Response
        try:
            connection.connect()
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ServerUnreachable(
                f"no environment server answers at {self.url} ({reason}); start one there with "
                "`heedful serve-env ENV`, or name another with --env.url"
            ) from None
        return connection


def checked_url(url: str) -> SplitResult:
    """The parts of an environment server's URL. Raises ValueError for what is none."""
    return parts_of(
        url,
        "an environment server, such as http://127.0.0.1:8765",
        f"Put the token into {TOKEN_VARIABLE}, or into a file that --env.token-file names.",
    )


def read_token(file: str) -> str:
    """The token that a server asks for: from a file if one is named, else from HEEDFUL_ENV_TOKEN. Empty = none.

    Raises ValueError for a file without a token in its first line, or one that cannot be sent in a header.
    """
    if not file:
        token, origin = os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    else:
        with in_home(file).open("rb") as stream:
            token, origin = stream.readline(_LONGEST_TOKEN).decode("utf-8", "replace").strip(), file
        if not token:
            raise ValueError(f"Expected a token in the first line of {file}, found nothing there.")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(f"Expected the token in {origin} as ASCII characters without spaces; make another one.")
    return token
