"""HTTP to one server: a request has one whole answer, or ends in one sentence that names the server.

httpx does the work: kept connections, TLS, limits. It is imported when the first server is asked. Redirections are not
followed, and what the server says is shown without the secret that it got.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from heedful.boundary.open_files import in_home

TOKEN_VARIABLE = "HEEDFUL_ENV_TOKEN"

_LONG_SECRET = 16
"""Characters of a secret that no word of an answer equals by chance."""
_LONGEST_TOKEN = 4096
"""Bytes of a token in a file. What is longer may be a device without an end."""


class ServerUnreachable(ConnectionError):
    """No usable answer came. The sentence names the server."""


class NoAnswer(ServerUnreachable):
    """Nothing usable came of one request."""

    def __init__(self, kind: Literal["absent", "broken", "slow", "large"], sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.kind = kind
        """absent: nobody listens there. broken: the connection ended early. slow: no whole answer in time."""
        self.reason = reason


class ServerRefused(ValueError):
    """The server answered, with a refusal that a repetition cannot change."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


UNTRUSTED = 495
"""The status that some servers have for a bad certificate. Here it is the certificate of the server itself."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpServer:
    """One server. Safe for several threads, and for `close` from any of them.

    `secret`: an API key or a token, sent in a header and shown nowhere.
    """

    def __init__(self, url: str, secret: str = "") -> None:
        self.url = url.rstrip("/")
        self._secret = secret
        self._lock = threading.Lock()
        self._client: Any = None
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        """Open connections, which `close` has to end: a thread may wait for an answer there."""
        self._closed = False

    def ask(self, method: str, path: str, body: bytes | None, timeout: float, most: int) -> Answer:
        """The answer to one request.

        `timeout`: seconds for each piece of the answer, and for the whole. A connection that is too slow is closed,
        upon which the server drops the request. `most`: bytes of the answer. A request is repeated if a kept
        connection turns out to be closed. Raises NoAnswer, or ServerRefused for a redirection or a bad certificate.
        """
        import httpx

        deadline = time.monotonic() + timeout
        while True:
            fresh: list[Any] = []
            try:
                with self._opened().stream(
                    method,
                    self.url + path,
                    content=body,
                    timeout=timeout,
                    extensions={"trace": lambda event, found, fresh=fresh: self._traced(event, found, fresh)},
                ) as response:
                    content = bytearray()
                    for piece in response.iter_raw():
                        content += piece
                        if len(content) > most:
                            said = f"answered {path} with too much: an answer of more than {most:,} bytes"
                            raise NoAnswer("large", f"the server at {self.url} {said}")
                        if time.monotonic() > deadline:
                            raise httpx.ReadTimeout("")
                status, headers = response.status_code, response.headers
                break
            except httpx.TimeoutException:
                said = f"the server at {self.url} gave no whole answer within {timeout:g} s"
                raise NoAnswer("slow", said) from None
            except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: `close` was called meanwhile
                if fresh or self._closed or isinstance(error, httpx.ConnectError):
                    raise self._failure(error, isinstance(error, httpx.ConnectError)) from None
        if 300 <= status < 400:
            where = self.without_secret(str(headers.get("Location", "another place")))
            raise ServerRefused(
                status,
                f"the server at {self.url} redirects {path} to {where[:300]!r} ({status}), and redirections are not "
                "followed: a key could be sent elsewhere. Name the server with the URL at which it answers itself.",
            )
        found = bytes(content)
        if len(self._secret) >= _LONG_SECRET:  # a short one may be a word of the answer; messages leave it out
            found = found.replace(self._secret.encode(), b"(the key)")
        return Answer(status, headers, found)

    def without_secret(self, text: str) -> str:
        """Words of the server, which may repeat the secret."""
        return text.replace(self._secret, "(the key)") if self._secret else text

    def close(self) -> None:
        """Close all connections, also those on which a thread waits. The thread gets a `NoAnswer`."""
        with self._lock:
            self._closed = True
            for stream in self._streams:
                _end(stream)
        if self._client is not None:
            self._client.close()

    def _opened(self) -> Any:
        import httpx

        with self._lock:
            if self._client is None:
                headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
                self._client = httpx.Client(
                    headers=headers | ({"Authorization": f"Bearer {self._secret}"} if self._secret else {}),
                    # Reads SSL_CERT_FILE. No variable names a proxy: the key would be sent there.
                    verify=ssl.create_default_context() if self.url.startswith("https") else False,
                    trust_env=False,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=None),
                )
            return self._client

    def _traced(self, event: str, found: Mapping[str, Any], fresh: list[Any]) -> None:
        """Remember each connection that is opened, and end one that was opened while `close` was called."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            stream = found["return_value"]
            fresh.append(stream)
            with self._lock:
                self._streams.add(stream)
                if self._closed:
                    _end(stream)

    def _failure(self, error: BaseException, connecting: bool) -> Exception:
        cause = error
        while inner := cause.__cause__ or cause.__context__:
            cause = inner
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ServerRefused(
                UNTRUSTED,
                f"the certificate of the server at {self.url} is not trusted ({cause.verify_message}). Give the "
                "server another one, or name a file with the right ones in the variable SSL_CERT_FILE.",
            )
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        reason = " ".join(self.without_secret(reason).split())
        if isinstance(cause, socket.gaierror):
            return NoAnswer(
                "absent",
                f"no machine with the name {urlsplit(self.url).hostname} was found ({reason}) for the server at "
                f"{self.url}. Check the spelling",
                reason,
            )
        kind, said = ("absent", "was not reached") if connecting else ("broken", "broke off the connection")
        return NoAnswer(kind, f"the server at {self.url} {said}: {reason}", reason)  # type: ignore[arg-type]


def _end(stream: Any) -> None:
    with contextlib.suppress(OSError):
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def parts_of(url: str, of: str, instead: str) -> SplitResult:
    """The parts of a server's URL. Raises ValueError for what is none, and for a user, a password or a query in it.

    `of`: what server, with an example. `instead`: the last sentence of the error, where a secret belongs. The secret
    is in no message.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or an address that is none
        fits = False
    if not fits:
        found = repr(url) if "@" not in url else "one with a user or a password"
        raise ValueError(f"Expected the URL of {of}, found {found}.")
    odd = "a query or a fragment (? or # and what follows)" if "?" in url or "#" in url else ""
    odd = "a user or a password" if parts.username or parts.password else odd
    if odd:
        raise ValueError(
            f"Expected the URL of {parts.hostname} without {odd}, since URLs are written into files and messages. "
            f"{instead}"
        )
    return parts


def read_key(variable: str) -> str:
    """The API key in an environment variable, or nothing for an empty name.

    Raises ValueError where the variable is not set, or holds what no header can carry. The key is in no message.
    """
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(f"Expected an API key in the environment variable {variable}, found nothing there.")
    return _sendable(key, f"the environment variable {variable}")


def read_token(file: str) -> str:
    """The token of an environment server: from a file if one is named, else from HEEDFUL_ENV_TOKEN. Empty = none.

    Raises ValueError for a file without a token in its first line, or one that cannot be sent in a header.
    """
    if not file:
        return _sendable(os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE)
    with in_home(file).open("rb") as stream:
        token = stream.readline(_LONGEST_TOKEN).decode("utf-8", "replace").strip()
    if not token:
        raise ValueError(f"Expected a token in the first line of {file}, found nothing there.")
    return _sendable(token, file)


def _sendable(secret: str, place: str) -> str:
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError(
            f"Expected the key or token in {place} as ASCII characters without spaces, found characters that no header "
            "can carry. Make another one."
        )
    return secret
