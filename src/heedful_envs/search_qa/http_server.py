"""The HTTP server of an index, on starlette and uvicorn: tokens, limits and shutdown.

The size of a request and the number of connections are limited. If there is a token, every request except the health
check needs it. Without a token the server listens on this machine only, and a request must name it as its host. There
is no TLS: put a reverse proxy or an SSH tunnel in front.

Searches are blocking code, so each request is answered in a thread.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from heedful.boundary import in_home, parse_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

TOKEN_VARIABLE = "HEEDFUL_ENV_TOKEN"

CONNECTIONS = 512
"""Most connections that are open, and requests that are answered, at the same time."""


_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Refusal(Exception):
    """A request that is not served, with its HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Answers(Protocol):
    """What a server serves."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        ...


def read_token(file: str) -> str:
    """The token that clients send: from a file if one is named, else from HEEDFUL_ENV_TOKEN. Empty = none."""
    return in_home(file).read_text("utf-8").splitlines()[0].strip() if file else os.environ.get(TOKEN_VARIABLE, "")


def check_address(host: str, token: str) -> None:
    """Refuse an address that other machines can reach, unless there is a token. Raises ValueError."""
    if not token and not is_named(f"[{host}]" if ":" in host else host, ()):
        raise ValueError(
            f"Expected a token before listening on {host}, which other machines may reach. Set {TOKEN_VARIABLE} to a "
            "secret, give --token-file FILE, or listen on 127.0.0.1."
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


class HttpServer:
    """An HTTP server that listens from its creation and answers in `serve_forever`. `tell` receives its last words.

    `largest`: bytes of the longest request. `names`: host names by which clients may call a server without a token,
    besides those of this machine.
    """

    def __init__(
        self,
        address: tuple[str, int],
        service: Answers,
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
        self.service, self.token, self.largest = service, token, largest
        self.names = (address[0], *names)
        self._tell = tell
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._socket = socket.create_server(address, family=family, backlog=2048)
        except OSError as error:
            raise ValueError(
                f"Expected a free port of an address of this machine, found port {address[1]} of {address[0]!r} "
                f"({error.strerror or error}). Give another --port or --host."
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
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = self._stopped_by_signals  # type: ignore[method-assign]

    @property
    def url(self) -> str:
        host, port = self.server_address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def serve_forever(self) -> None:
        """Answer until `shutdown`. In the main thread also until Ctrl-C, SIGTERM or SIGHUP."""
        self._server.run(sockets=[self._socket])

    def shutdown(self) -> None:
        self._server.should_exit = True

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

        before = {number: signal.signal(number, stop) for number in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        from starlette.requests import ClientDisconnect, Request

        if scope["type"] == "http":
            with contextlib.suppress(ClientDisconnect):
                await (await self._answered(Request(scope, receive)))(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        from anyio import to_thread
        from starlette.responses import Response

        try:
            self._check_origin(request)
            body = await self._body(request)
            try:
                tree = parse_json(body) if body else {}
            except ValueError as error:
                raise Refusal(400, f"Expected the body as JSON, found {error}.") from error
            to_thread.current_default_thread_limiter().total_tokens = CONNECTIONS
            status, answer = await to_thread.run_sync(
                self.service.answer, request.method, request.url.path, tree, abandon_on_cancel=True
            )
        except Refusal as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        return Response(json.dumps(answer), status, media_type="application/json")

    def _check_origin(self, request: Request) -> None:
        """Refuse a request without the token. Without one, refuse a web page of another site, which a browser sends."""
        given, host = request.headers.get("authorization", ""), request.headers.get("host", "")
        if self.token:
            wanted = f"Bearer {self.token}".encode()
            if request.url.path != "/health" and not hmac.compare_digest(given.encode("utf-8", "replace"), wanted):
                raise Refusal(401, "Expected the server's token as `Authorization: Bearer TOKEN`.")
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
        if count > self.largest:
            raise Refusal(
                413,
                f"Expected a request of at most {self.largest:,} bytes, found one of {count:,}: start the server with "
                "a larger --largest-request, or ask fewer queries at once.",
            )
        return bytes(body)
