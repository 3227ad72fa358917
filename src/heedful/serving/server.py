"""The HTTP server of a `Service` or another one, on starlette and uvicorn: tokens, limits and shutdown.

The size of a request, connections, sessions and idle time are limited. If there is a token, every request except the
health check needs it. Without a token the server listens on this machine only, and a request must name it as its host.
There is no TLS: put a reverse proxy or an SSH tunnel in front.

Environments are blocking code, so each request is answered in a thread.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from heedful.boundary.jsontext import expecting, parse_json
from heedful.envs.common.wire import LARGEST_FRAME, Tree, encode
from heedful.serving.sessions import Refusal, Sessions
from heedful.stopping import STOP_SIGNALS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

CONNECTIONS = 512
"""Most connections that are open, and requests that are answered, at the same time."""

LOG_EVERY = 10_000
"""Requests between two lines of log."""


class Answers(Protocol):
    """What a server serves."""

    def answer(self, method: str, path: str, body: Tree) -> tuple[int, Tree]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        ...


def check_address(host: str, token: str) -> None:
    """Refuse an address that other machines can reach, unless there is a token. Raises ValueError."""
    if not token and not is_named(f"[{host}]" if ":" in host else host, ()):
        raise ValueError(
            f"Expected a token before listening on {host}, which other machines may reach: anyone who reaches an "
            "environment server can use up its sessions and this machine. Set HEEDFUL_ENV_TOKEN to a secret (here and "
            "for the clients), give --token-file FILE, or listen on 127.0.0.1."
        )


def is_named(host: str, names: Collection[str]) -> bool:
    """Whether the field Host names this server: a loopback address, `localhost`, or one of `names`. Ports do not count.

    A web page can make a browser send requests to 127.0.0.1 under a name of the page's own (DNS rebinding). Its name
    then stands in Host.
    """
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d+)?", host)
    if match is None:
        return False
    name = match[1].strip("[]").lower().rstrip(".")
    if name == "localhost" or name in {each.lower().rstrip(".") for each in names}:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class EnvironmentServer:
    """An HTTP server that listens from its creation and answers in `serve_forever`. `tell` receives the log lines.

    `sessions`: the episodes that the service holds, if it holds any. `largest`: bytes of the longest request. `names`:
    host names by which clients may call a server without a token, besides those of this machine.
    """

    def __init__(
        self,
        address: tuple[str, int],
        service: Answers,
        sessions: Sessions | None,
        token: str,
        largest: int,
        tell: Callable[[str], None],
        names: Sequence[str] = (),
    ) -> None:
        check_address(address[0], token)
        try:
            import uvicorn
        except ImportError as error:
            raise ModuleNotFoundError(
                'A server needs starlette and uvicorn, which are not installed: pip install "heedful[serve]".'
            ) from error
        self.service, self.sessions, self.token, self.largest = service, sessions, token, largest
        self.names = (address[0], *names)
        self.requests = self._refused = 0
        self._seconds = 0.0
        self._tell = tell
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._socket = socket.create_server(address, family=family, backlog=2048)
        except (OSError, TypeError, UnicodeError) as error:  # TypeError: what can be no name of a host
            raise ValueError(
                f"Expected a free port of an address of this machine, found port {address[1]} of {address[0]!r:.80} "
                f"({getattr(error, 'strerror', None) or error}). Give another --port or --host."
            ) from error
        # asyncio does so where a socket names its protocol. Otherwise a body waits 40 ms for the acknowledged head.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server_address = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            self._application,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS + 1,
            timeout_keep_alive=300,
            timeout_graceful_shutdown=1,
            callback_notify=self._sweep,
            timeout_notify=0,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = self._stopped_by_signals  # type: ignore[method-assign]

    @property
    def url(self) -> str:
        host, port = self.server_address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def serve_forever(self) -> None:
        """Answer until `shutdown`. In the main thread also until Ctrl-C or one of `STOP_SIGNALS`."""
        self._server.run(sockets=[self._socket])

    def shutdown(self) -> None:
        self._server.should_exit = True

    def close(self) -> None:
        self._socket.close()

    def standing(self) -> str:
        """Sessions and refusals so far, for the log."""
        sessions = self.sessions
        if sessions is None:
            return f"{self._refused:,} requests refused"
        return (
            f"{sessions.opened:,} episodes begun, {sessions.open:,} open, {sessions.expired:,} closed as idle; "
            f"{self._refused:,} requests refused"
        )

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """uvicorn's own way raises the signal again after the end, which would be the exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            if not self._server.should_exit:
                self._tell("stopping")
            self._server.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, *STOP_SIGNALS)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _sweep(self) -> None:
        """Close idle sessions, once a second."""
        closed = self.sessions.sweep() if self.sessions is not None else 0
        if closed:
            self._tell(f"{closed} idle session{'s' if closed > 1 else ''} closed; {self.standing()}")

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        from starlette.requests import ClientDisconnect, Request

        if scope["type"] != "http":
            return
        begun = time.perf_counter()
        try:
            response = await self._answered(Request(scope, receive))
        except ClientDisconnect:
            return
        await response(scope, receive, send)
        self.requests += 1
        self._refused += response.status_code >= 400
        self._seconds += time.perf_counter() - begun
        if self.requests % LOG_EVERY == 0:
            mean, self._seconds = 1000 * self._seconds / LOG_EVERY, 0.0
            told = f"{self.requests:,} requests, the last {LOG_EVERY:,} of {mean:.2f} ms each"
            self._tell(f"{told}; {self.standing()}")

    async def _answered(self, request: Request) -> Response:
        from anyio import to_thread
        from starlette.responses import Response

        try:
            self._check_origin(request)
            body = await self._body(request)
            with expecting("the body as JSON", error=partial(Refusal, 400)):
                tree = parse_json(body) if body else {}
            to_thread.current_default_thread_limiter().total_tokens = CONNECTIONS
            status, answer = await to_thread.run_sync(
                self.service.answer, request.method, request.url.path, tree, abandon_on_cancel=True
            )
        except Refusal as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        headers = {"Retry-After": "1"} if status in (429, 503) else None
        return Response(encode(answer), status, headers, "application/json")

    def _check_origin(self, request: Request) -> None:
        """Refuse a request without the token. Without one, refuse a web page of another site, which a browser sends."""
        given, host = request.headers.get("authorization", ""), request.headers.get("host", "")
        if self.token:
            wanted = f"Bearer {self.token}".encode()
            if request.url.path != "/health" and not hmac.compare_digest(given.encode("utf-8", "replace"), wanted):
                sentence = "Expected the server's token as `Authorization: Bearer TOKEN`: set HEEDFUL_ENV_TOKEN."
                raise Refusal(401, sentence)
        elif not is_named(host, self.names):
            raise Refusal(
                421,
                f"Expected this machine as the host of the request, found {host[:60]!r}. If clients call the server by "
                "that name, start it with --host-name NAME, or with a token.",
            )
        kind = request.headers.get("content-type", "")
        # A browser asks for permission before it sends this type to another site.
        if request.method == "POST" and kind.partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, f"Expected application/json as Content-Type, found {kind}.")

    async def _body(self, request: Request) -> bytes:
        """The body of a request. Raises Refusal. Too large a one is read and dropped, so that the client reads why."""
        body, count = bytearray(), 0
        async for part in request.stream():
            count += len(part)
            body += part if count <= self.largest else b""
            if count > LARGEST_FRAME:
                break
        if count > self.largest:
            raise Refusal(
                413,
                f"Expected a request of at most {self.largest:,} bytes, found one of {count:,} or more: start the "
                "server with a larger --largest-request, or shorten what is sent.",
            )
        return bytes(body)
