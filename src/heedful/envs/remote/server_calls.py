"""Calls to an environment server. Every error names the server. Safe for several threads.

Every request of the protocol may be repeated: a session is opened under a key, a step carries its turn, and the others
change nothing. A request is repeated once if a connection broke before the answer. It is never repeated because an
answer took too long.
"""

from __future__ import annotations

import time

from heedful.boundary.foreign_text import brief
from heedful.boundary.http import TOKEN_VARIABLE, HttpServer, NoAnswer, ServerRefused, ServerUnreachable, parts_of
from heedful.envs.common.wire import LARGEST_FRAME, Tree, WireError, decode, encode

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to reach a missing server. They double from the first to the longest."""

_LONGEST_REFUSAL = 2000
"""Characters of a server's error that are told."""

_BUSY = (502, 503, 504)
"""Statuses of a server, or of a proxy before it, with which nothing was done."""


class _Busy(ServerUnreachable):
    """The server, or a proxy before it, takes no further request at the moment."""


class ServerCalls:
    """One server, as one process talks to it.

    `timeout`: seconds for one answer. `wait`: seconds for which a server that has answered before and is away is waited
    for, by requests that ask for it. The time runs from when it was first missed, for all of them together.
    """

    def __init__(self, url: str, timeout: float, wait: float, token: str) -> None:
        self.url = url.rstrip("/")
        self._server, self._timeout, self._wait = HttpServer(url, token), timeout, wait
        self._has_answered = False
        self._missed: float | None = None
        """When the server was first missed since its last answer."""

    def call(self, method: str, path: str, body: Tree = None, waits: bool = False) -> Tree:
        """The answer to one request.

        `waits`: keep trying to reach a server that is away. For requests that hold nothing there. One that is there
        but takes no further connection is tried again in any case.
        Raises ServerUnreachable, ServerRefused, or WireError for an answer that is no JSON.
        """
        sent, pause, broken = None if body is None else encode(body), _FIRST_PAUSE, 0
        while True:
            try:
                return self._call(method, path, sent)
            except ServerUnreachable as error:
                broken += isinstance(error, NoAnswer) and error.kind == "broken"
                if broken == 1:
                    broken += 1
                    continue
                now = time.monotonic()
                self._missed = self._missed or now
                hopeful = isinstance(error, _Busy) or (waits and self._has_answered)
                if not hopeful or now >= self._missed + self._wait:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _call(self, method: str, path: str, body: bytes | None) -> Tree:
        try:
            answer = self._server.ask(method, path, body, self._timeout, LARGEST_FRAME)
        except NoAnswer as error:
            if error.kind == "large":
                raise WireError(f"Expected an answer of the environment server, but {error}.") from None
            if error.kind == "absent":
                raise ServerUnreachable(
                    f"no environment server answers at {self.url} ({error.reason}); start one there with "
                    "`heedful serve-env ENV`, or name another with --env.url"
                ) from None
            raise
        if answer.status in _BUSY:
            raise _Busy(f"the server at {self.url} takes no further request at the moment ({answer.status})")
        try:
            tree = decode(answer.body)
        except WireError as error:
            found = self._server.without_secret(str(error)).removeprefix("Expected JSON")
            asked = f"{method} {path} ({answer.status})"
            raise WireError(f"Expected JSON of the server at {self.url} for {asked}{found}") from error
        self._has_answered, self._missed = True, None
        if answer.status >= 400:
            told = tree.get("error") if isinstance(tree, dict) else None
            said = self._server.without_secret(told if isinstance(told, str) and told else brief(tree))
            refused = f"the server at {self.url} refused {method} {path} ({answer.status})"
            raise ServerRefused(answer.status, f"{refused}: {said[:_LONGEST_REFUSAL]}")
        return tree


def check_url(url: str) -> None:
    """Raise ValueError for what is no URL of an environment server."""
    parts_of(
        url,
        "an environment server, such as http://127.0.0.1:8765",
        f"Put the token into {TOKEN_VARIABLE}, or into a file that --env.token-file names.",
    )
