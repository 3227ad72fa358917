"""The client of inference servers: the one place where a request is repeated.

A request is a pure function of its ids, its seed and the weights, so repeating it duplicates nothing. Every request is
answered once, or ends in one sentence. Safe for several threads.

| failure | reaction |
|---|---|
| refused, reset, 502, 503, 504 | pauses of 1, 2, 4 ... 30 s within `patience`, on another server if there is one |
| 429 | the same, not before `Retry-After`; the requests that this server gets at once are halved |
| 400 or 422 that names an optional field | sent again without it, and so are all later requests |
| other 4xx | raised at once |
| no whole answer within `timeout` | the connection is closed, and the request repeated, at most twice |
| what is no answer of the dialect, other 500 | repeated at most twice |
| an engine that died, a reply of other weights | the server is restored (`Client.restore`), at most twice, then asked |
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from heedful.boundary.http import HttpServer, ServerRefused, ServerUnreachable
from heedful.policies.servers.dialects import HEALTH, Call, ForeignAnswer, OtherWeights, Tree
from heedful.policies.servers.exchange import Failed, WindowFull, check_urls, exchange

Answer = TypeVar("Answer")

LONGEST_PAUSE = 30.0
"""Seconds."""

_REPEATS = 2
"""Repetitions of a request that was too slow, answered unreadably, or for which the server had to be restored."""

_HEALTH_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is asked of a server at once, and how long it is waited for."""

    connections: int = 256
    """Most requests that one server gets at once."""
    timeout: float = 600.0
    """Seconds for one whole answer."""
    patience: float = 900.0
    """Seconds for which one request waits for servers that are away or busy."""
    pause: float = 1.0
    """Seconds of the first pause. Each further one is twice as long, up to 30 s."""
    tell_after: float = 30.0
    """Seconds of waiting after which a line tells of it."""


@dataclass(slots=True, eq=False)
class Server:
    """One of the servers, as the client sees it."""

    http: HttpServer
    most: float
    """The most requests at once. A 429 halves it, answers raise it again."""
    open: int = 0
    restored: int = 0
    """How often its weights were restored."""
    halved: float = 0.0
    """The time of the last halving."""
    lost: str = ""
    """Why it gets no more requests."""
    restoring: bool = False
    mending: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return self.http.url


@dataclass(slots=True)
class _Tries:
    """The failures of one request so far."""

    began: float
    pause: float
    kinds: Counter[str] = field(default_factory=Counter)


class Client:
    """Several servers with the same weights.

    `key`: the API key (`read_key`). `note`: shows a sentence to the user. A conversation stays with the server that it
    was first sent to, whose prefix cache knows it. The first request goes to the server with the fewest open ones.
    """

    def __init__(
        self,
        urls: Sequence[str],
        limits: Limits | None = None,
        *,
        key: str = "",
        note: Callable[[str], None] = print,
    ) -> None:
        check_urls(urls)
        self.limits = limits or Limits()
        self.servers = [Server(HttpServer(url, key), self.limits.connections) for url in urls]
        self.restore: Callable[[Server], None] = lambda server: None
        """Gives a server that has lost its weights the right ones. Called for one thread per server at a time."""
        self.repeats: Counter[str] = Counter()
        """Repetitions so far, by the kind of the failure."""
        self.left_out: set[str] = set()
        """Optional fields that a server refused. Requests no longer have them."""
        self._note = note
        self._homes: dict[str, Server] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._told = -LONGEST_PAUSE

    @property
    def most_at_once(self) -> int:
        """The most requests that all servers together get at once."""
        return self.limits.connections * len(self.servers)

    def ask(
        self,
        call: Call,
        read: Callable[[Tree], Answer],
        *,
        conversation: str = "",
        stale: Collection[int] = (),
        only: Server | None = None,
    ) -> Answer:
        """The answer to one request, as `read` reads it.

        `read` raises ForeignAnswer for an answer of another form, and OtherWeights for a reply of other weights.
        `conversation`: requests of one conversation go to one server, while it is there. `stale`: statuses with which
        a server refuses weights that it does not hold. It is then restored, as after a reply of other weights. `only`:
        this server is asked, whatever it failed at, and it is not restored.

        Raises ServerUnreachable or ServerRefused, with a sentence.
        """
        tries = _Tries(time.monotonic(), self.limits.pause)
        avoid: Server | None = None
        while True:
            server = only or self._take(conversation, avoid)
            restored, sent, avoid = server.restored, time.monotonic(), None
            asked = call.without(self.left_out)
            try:
                answer = read(exchange(server.http, asked, self.limits.timeout))
                with self._changed:
                    server.most = min(self.limits.connections, server.most + 1 / server.most)
                return answer
            except Failed as error:
                if error.kind == "busy":
                    with self._changed:
                        if sent >= server.halved:  # once for the requests that were under way together
                            server.most = max(1.0, min(server.most, server.open) / 2)
                            server.halved = time.monotonic()
                avoid, failure = server, error
            except ServerRefused as error:
                if self._leaves_out(server, asked, error):
                    continue
                if error.status not in stale:
                    raise
                failure = Failed("stale", str(error))
            except OtherWeights as error:
                said = server.http.without_secret(str(error))
                failure = Failed("stale", f"the server at {server.url} answered with other weights: {said}")
            except ForeignAnswer as error:
                said = server.http.without_secret(str(error))
                failure = Failed("garbled", f"the server at {server.url} answered {call.path} in another form: {said}")
            finally:
                if only is None:
                    with self._changed:
                        server.open -= 1
                        self._changed.notify_all()
            self._count(tries, failure)
            if failure.kind in ("dead", "stale") and only is None:
                self._restore(server, restored, failure)
            else:
                self._wait(tries, failure)

    def tell(self, server: Server, call: Call, timeout: float | None = None) -> Tree:
        """The answer of one server to one request, sent once. Raises Failed or ServerRefused."""
        return exchange(server.http, call, self.limits.timeout if timeout is None else timeout)

    def admit_all(self) -> None:
        """Send requests to all servers again, whatever they failed at, and to any of them at first."""
        with self._changed:
            self._homes.clear()
            for server in self.servers:
                server.lost = ""

    def wait_until_healthy(self, server: Server) -> None:
        """Return once the server answers. Raises ServerUnreachable when it does not within the patience."""
        tries = _Tries(time.monotonic(), self.limits.pause)
        while True:
            try:
                self.tell(server, HEALTH, _HEALTH_TIMEOUT)
                return
            except ServerRefused:
                return  # it is there; not every server has this endpoint
            except Failed as error:
                # Whatever it says: a server whose engine has died may answer until somebody starts it again.
                self._wait(tries, Failed("away", str(error)))

    def close(self) -> None:
        """Close all connections. A thread that waits for an answer gets a ServerUnreachable at once."""
        self._closing.set()
        for server in self.servers:
            server.http.close()
        with self._changed:
            self._changed.notify_all()

    def _take(self, conversation: str, avoid: Server | None) -> Server:
        """The server for the next attempt, counted as open there. Blocks while all have as many as they may."""
        with self._changed:
            while True:
                self._check_open()
                there = [server for server in self.servers if not server.lost]
                if not there:
                    raise ServerUnreachable(" ".join(server.lost for server in self.servers))
                ready = [server for server in there if not server.restoring]
                home = self._homes.get(conversation)
                if home in ready and (home is not avoid or len(ready) == 1):
                    ready = [home]
                elif len(ready) > 1:
                    ready = [server for server in ready if server is not avoid]
                ready = [server for server in ready if server.open < max(1, int(server.most))]
                if ready:
                    server = min(ready, key=lambda each: each.open)
                    server.open += 1
                    if conversation:
                        self._homes[conversation] = server
                    return server
                self._changed.wait()

    def _leaves_out(self, server: Server, asked: Call, refusal: ServerRefused) -> bool:
        """Whether the request is to be sent again without fields that this refusal names."""
        if refusal.status not in (400, 422) or isinstance(refusal, WindowFull):
            return False
        refused = asked.refused_in(str(refusal))
        with self._changed:
            new = sorted(refused - self.left_out)
            self.left_out |= refused
        for name in new:
            instead = "".join(f", and `{other}` sent in its place" for other in asked.optional[name])
            self._note(f"the server at {server.url} refuses `{name}`: it is left out from now on{instead}")
        return bool(refused)

    def _count(self, tries: _Tries, failure: Failed) -> None:
        """Raises the failure if the request is not to be repeated."""
        self._check_open()
        self.repeats[failure.kind] += 1
        tries.kinds[failure.kind] += 1
        if failure.kind not in ("away", "busy") and tries.kinds[failure.kind] > _REPEATS:
            shared = " Two runs seem to share the server: give each run its own." if failure.kind == "stale" else ""
            attempt = tries.kinds[failure.kind]
            raise ServerUnreachable(f"{str(failure).rstrip('.')}. This was attempt {attempt} of one request.{shared}")

    def _wait(self, tries: _Tries, failure: Failed) -> None:
        """Pause before the next attempt. Raises ServerUnreachable when the patience is over."""
        now = time.monotonic()
        if failure.kind in ("slow", "garbled"):
            tries.began = now  # the patience is for a server that is away
            if failure.kind == "slow":
                self._tell(f"asking again: {failure}", now)
            return
        pause = max(tries.pause, failure.retry_after)
        left = tries.began + self.limits.patience - now
        if pause > left:
            asked = (
                f" It asks to be left alone for {failure.retry_after:g} s."
                if failure.retry_after > max(left, 0)
                else ""
            )
            raise ServerUnreachable(
                f"{failure}. It was waited for {now - tries.began:.0f} s, and patience is {self.limits.patience:g} s."
                f"{asked} Start the server, or name another one."
            ) from failure
        waited = now - tries.began
        if waited >= self.limits.tell_after:
            self._tell(f"waiting: {failure} ({waited:.0f} s so far, at most {self.limits.patience:g} s)", now)
        if self._closing.wait(pause):
            self._check_open()
        tries.pause = min(2 * tries.pause, LONGEST_PAUSE)

    def _tell(self, sentence: str, now: float) -> None:
        """Note one of the requests that failed, since many may fail at the same time."""
        with self._changed:
            if now < self._told + LONGEST_PAUSE:
                return
            self._told = now
        self._note(sentence)

    def _restore(self, server: Server, seen: int, failure: Failed) -> None:
        """Give the server its weights back, unless another thread has done it since the request was sent.

        Its open requests end first: they would mix the weights, and keep the server from emptying its prefix cache.
        """
        with server.mending:
            if server.restored != seen or server.lost:
                return
            with self._changed:
                server.restoring = True
                self._changed.wait_for(lambda: not server.open or self._closing.is_set(), self.limits.timeout)
            try:
                self._check_open()
                self._note(f"restoring: {failure}")
                self.wait_until_healthy(server)
                self.restore(server)
                server.restored += 1
            except (ValueError, OSError) as error:
                server.lost = str(error)
                if all(each.lost for each in self.servers):
                    raise
                self._note(f"going on without {server.url}: {error}")
            finally:
                with self._changed:
                    server.restoring = False
                    self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ServerUnreachable("the connections to the inference servers were closed")
