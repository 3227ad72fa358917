"""The HTTP server of a `Service` or another one: connections, limits, tokens and shutdown.

Connections, the size of a request, the time for its arrival, sessions and idle time are limited. If there is a token,
every request except the health check needs it. Without a token the server listens on this machine only, and a request
must name it as its host.

It uses the standard library's threading server, not an ASGI framework. Environments are blocking code, so each request
would run in a thread under a framework too. The nine requests here need none of its features (streams, sockets for many
idle clients, schemas), and every user would have to install it. The standard library lacks three things, which are
added here: one segment per answer (otherwise TCP waits 40 ms between headers and body), limits, and time-outs of
connections. There is no TLS: put a reverse proxy or an SSH tunnel in front.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from heedful.boundary.jsontext import parse_json
from heedful.envs.transport.deadline import DeadlineReader
from heedful.envs.transport.wire import LARGEST_FRAME, Tree, encode
from heedful.serving.browser import HEADERS, ROOT, Html, Pages, check_own_form, fields_of, knows_token
from heedful.serving.connections import Connections, Limits, bind
from heedful.serving.heads import BadHead, is_named, read_head
from heedful.serving.sessions import Refusal, Sessions

CONNECTION_IDLE = 300.0
"""Seconds after which a silent connection is closed."""

SWEEP_EVERY = 1.0
"""Seconds between two checks for idle sessions."""


def check_address(host: str, token: str) -> None:
    """Refuse an address that other machines can reach, unless there is a token. Raises ValueError."""
    if token or _is_loopback(host):
        return
    raise ValueError(
        f"Expected a token before listening on {host}, which other machines may reach: anyone who reaches an "
        "environment server can use up its sessions and this machine. Set HEEDFUL_ENV_TOKEN to a secret (here and for "
        "the clients), give --token-file FILE, or listen on 127.0.0.1."
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Answers(Protocol):
    """What a server serves."""

    def answer(self, method: str, path: str, body: Tree) -> tuple[int, Tree]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        ...


class EnvironmentServer(ThreadingHTTPServer):
    """An HTTP server that listens from its creation and answers in `serve_forever`. `tell` receives the log lines."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        service: Answers,
        sessions: Sessions | None,
        token: str,
        limits: Limits,
        tell: Callable[[str], None],
        names: Sequence[str] = (),
        pages: Pages | None = None,
    ) -> None:
        """`sessions`: the episodes that the service holds, if it holds any. `names`: host names by which clients may
        call a server without a token, besides those of this machine. `pages`: for browsers, if there are any."""
        check_address(address[0], token)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.service, self.sessions, self.token, self.limits = service, sessions, token, limits
        self.names = (address[0], *names)
        self.pages = pages
        self._tell = tell
        self.connections = Connections(limits)
        self._counting = threading.Lock()
        self._requests = self._refused = 0
        self._seconds = 0.0
        self._next_sweep = time.monotonic() + SWEEP_EVERY
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        named = str(host)
        return f"http://{f'[{named}]' if ':' in named else named}:{port}"

    @property
    def requests(self) -> int:
        return self._requests

    def count(self, seconds: float, refused: bool) -> None:
        """Count one answered request. Every `log_every` requests make one log line."""
        with self._counting:
            self._requests += 1
            self._refused += refused
            self._seconds += seconds
            if self._requests % self.limits.log_every:
                return
            mean = 1000 * self._seconds / self.limits.log_every
            line = f"{self._requests:,} requests, the last {self.limits.log_every:,} of {mean:.2f} ms each; "
            self._seconds = 0.0
        self._tell(line + self.standing())

    def standing(self) -> str:
        """Sessions and refusals so far, for the log."""
        sessions = self.sessions
        if sessions is None:
            return f"{self._refused:,} requests refused"
        return (
            f"{sessions.opened:,} episodes begun, {sessions.open:,} open, {sessions.expired:,} closed as idle; "
            f"{self._refused:,} requests refused"
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        sentence = self.connections.admit(request, str(client_address[0]))
        if not sentence:
            super().process_request(request, client_address)
            return
        body = encode({"error": sentence})
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        request.settimeout(1.0)
        try:
            request.sendall(f"{head}Content-Type: application/json\r\nRetry-After: 1\r\n\r\n".encode() + body)
        except OSError:
            pass  # the client has gone
        finally:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def server_close(self) -> None:
        """Also close the open connections, because their threads would continue to answer."""
        super().server_close()
        self.connections.close()

    def service_actions(self) -> None:
        """Close idle sessions. `serve_forever` calls this between two connections, at least twice a second."""
        now = time.monotonic()
        if self.sessions is None or now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_EVERY
        closed = self.sessions.sweep()
        if closed:
            self._tell(f"{closed} idle session{'s' if closed > 1 else ''} closed; {self.standing()}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log every error except network errors. A broken connection ends only its own thread."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            self._tell(f"a request could not be answered: {type(error).__name__}: {error}")

    def server_bind(self) -> None:
        """Bind without the standard library's name look-up, which can take seconds and is not needed here."""
        bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    """One connection with its requests, until either side closes it."""

    protocol_version = "HTTP/1.1"
    server_version = "heedful"
    sys_version = ""
    timeout = CONNECTION_IDLE
    disable_nagle_algorithm = True
    wbufsize = 2**16
    """Large enough to send headers and body together."""
    server: EnvironmentServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection, CONNECTION_IDLE)
        self.rfile = self._incoming = io.BufferedReader(self._reader, 2**16)

    def handle_one_request(self) -> None:
        """Read one request strictly and answer it. The standard library's reading repairs what it can."""
        self.close_connection = True
        self._reader.allow(CONNECTION_IDLE)
        if not self._incoming.peek(1):
            return
        self._reader.allow(self.server.limits.request_seconds)
        try:
            first, fields = read_head(self._incoming)
        except BadHead as bad:
            self._refuse(bad.status, str(bad))
            return
        except TimeoutError:
            self._refuse(408, f"The request did not arrive within {self.server.limits.request_seconds:g} s.")
            return
        self.raw_requestline, self.rfile = first, io.BytesIO(fields)
        readable = self.parse_request()
        self.rfile = self._incoming
        if not readable:
            return
        method = getattr(self, f"do_{self.command}", None)
        if method is None:
            self.send_error(501, f"Unsupported method ({self.command!r})")
            return
        method()
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        """Ask a client for the body that it holds back. Without the flush both sides would wait for each other."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def _refuse(self, status: int, sentence: str) -> None:
        """Refuse a request that was not read to its end, and close the connection."""
        self.close_connection = True
        self.request_version, self.requestline, self.command = self.protocol_version, "", ""
        self._send(status, {"error": sentence})
        self.wfile.flush()
        self.server.count(0.0, refused=True)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing: a line per request would flood the terminal. See `EnvironmentServer.count`."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refusals by the standard library (malformed request line, too long headers), as JSON like other errors."""
        self.close_connection = True
        # Without this a request line without a version would get a body without headers.
        self.request_version = self.protocol_version
        self._send(code, {"error": f"{message or HTTPStatus(code).phrase}."})

    def _serve(self) -> None:
        if self.server.pages is not None and self.path.split("?")[0].split("/")[1:2] == [ROOT]:
            self._serve_page(self.server.pages)
            return
        begun = time.perf_counter()
        try:
            body = self._read()
            self.server.connections.is_answered(self.connection)
            status, tree = self.server.service.answer(self.command, self.path, body)
        except Refusal as refusal:
            status, tree = refusal.status, {"error": str(refusal)}
        except TimeoutError:
            self.close_connection = True
            limit = self.server.limits.request_seconds
            status, tree = 408, {"error": f"The request did not arrive within {limit:g} s."}
        self.server.connections.waits(self.connection)
        self.connection.settimeout(self.server.limits.request_seconds)
        self._send(status, tree)
        self.server.count(time.perf_counter() - begun, refused=status >= 400)

    def _serve_page(self, pages: Pages) -> None:
        """Answer a browser. The token is the password that the browser asks for."""
        begun = time.perf_counter()
        try:
            form = self._read_form()
            self.server.connections.is_answered(self.connection)
            answer = pages.answer(self.command, self.path, form)
        except Refusal as refusal:
            answer = Html(refusal.status, pages.refused(str(refusal)))
        except TimeoutError:
            self.close_connection = True
            answer = Html(408, pages.refused("The request did not arrive in time."))
        self.server.connections.waits(self.connection)
        self.connection.settimeout(self.server.limits.request_seconds)
        self._send_page(answer)
        self.server.count(time.perf_counter() - begun, refused=answer.status >= 400)

    def _read_form(self) -> dict[str, str]:
        """The fields of a form. Raises Refusal. The connection is closed where its body is not read."""
        closes, self.close_connection = self.close_connection, True
        if self.server.token and not knows_token(self.headers.get("Authorization", ""), self.server.token):
            raise Refusal(401, "Expected the server's token as the password, under any name.")
        self._check_host()
        check_own_form(self.command, self.headers.get("Origin"), self.headers.get("Host"))
        self.close_connection = closes
        return fields_of(self.rfile.read(self._length()), self.headers.get_content_type())

    def _send_page(self, answer: Html) -> None:
        body = answer.body.encode("utf-8", "replace")
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS:
            self.send_header(name, value)
        if answer.location:
            self.send_header("Location", answer.location)
        if answer.status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="heedful"')
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _read(self) -> Tree:
        """The request's body. Raises Refusal. The connection is closed if a body is left unread."""
        self._check_token()
        self._check_host()
        length = self._length()
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            raise Refusal(400, f"Expected a body of {length} bytes, found {len(body)}.")
        if not body:
            return {}
        if self.headers.get_content_type() != "application/json":
            # This also excludes web pages: a browser asks for permission before it sends this type to another site.
            raise Refusal(415, f"Expected application/json as Content-Type, found {self.headers['Content-Type']}.")
        try:
            return parse_json(body)
        except ValueError as error:
            raise Refusal(400, f"Expected the body as JSON, found {error}.") from error

    def _length(self) -> int:
        """Length of the body in bytes."""
        stated, most = self.headers.get("Content-Length", "0"), self.server.limits.largest_request
        if self.headers.get("Transfer-Encoding") or not (stated.isascii() and stated.isdigit()):
            self.close_connection = True
            raise Refusal(411, "Expected a Content-Length, as a whole number, and no Transfer-Encoding.")
        length = int(stated[:20])
        if length > most:
            self._discard(length)
            found = f"{length:,}" if len(stated) <= 20 else f"{len(stated):,} digits"
            raise Refusal(
                413,
                f"Expected a request of at most {most:,} bytes, found one of {found}: start the server with a "
                f"larger {self.server.limits.request_flag}, or shorten what is sent.",
            )
        return length

    def _discard(self, length: int) -> None:
        """Read and drop a body, so that the client reads the answer. A far too large body is cut off."""
        self.close_connection = self.close_connection or length > LARGEST_FRAME
        while length > 0 and not self.close_connection:
            part = self.rfile.read(min(length, 2**16))
            length -= len(part)
            self.close_connection = not part

    def _check_token(self) -> None:
        token = self.server.token
        if not token or self.path == "/health":
            return
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, f"Bearer {token}".encode()):
            self.close_connection = True
            raise Refusal(401, "Expected the server's token as `Authorization: Bearer TOKEN`: set HEEDFUL_ENV_TOKEN.")

    def _check_host(self) -> None:
        """Refuse a host name that is not this server's. With a token, a strange web page cannot ask anything."""
        host, names = self.headers.get("Host"), self.server.names
        if self.server.token or host is None or is_named(host, names):
            return
        self.close_connection = True
        raise Refusal(
            421,
            f"Expected this machine as the host of the request, found {host[:60]!r}. If clients call the server by "
            "that name, start it with --host-name NAME, or with a token.",
        )

    def _send(self, status: int, tree: Tree) -> None:
        body = encode(tree)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
