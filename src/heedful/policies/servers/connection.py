"""One inference server over HTTP: one request, one answer, one kind of failure. Standard library only.

Nothing is repeated here, except a request on a kept connection that the server had closed meanwhile. The choice of a
server and all repetitions are in `client.py`.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import io
import json
import math
import re
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from heedful.boundary.jsontext import parse_json
from heedful.policies.servers.dialects import Call, Tree

_ANSWER = 4 * 2**20
"""Bytes of an answer beside its tokens. As objects of Python, JSON takes up to 20 times its bytes."""
_ANSWER_PER_TOKEN = 4096
"""Bytes of the id, the text, the bytes and the log-probability of a token. vLLM writes about 200."""

_LONG_SECRET = 16
"""Characters of a secret that no word of an answer equals by chance."""

Kind = Literal["away", "busy", "slow", "dead", "stale", "garbled"]
"""away: refused, reset, or a gateway's 502 to 504. busy: 429. slow: no whole answer in time. dead: the server says that
its engine has died. stale: a reply of other weights. garbled: an answer that is no JSON, not of the dialect, or another
error of the server."""

_AWAY = (502, 503, 504)
_DEAD = ("enginecore", "enginedead", "engine is dead")
"""Words of vLLM's answers after its engine has died."""


UNTRUSTED = 495
"""The status that some servers have for a bad certificate. Here it is the certificate of the server itself."""


class ServerUnreachable(ConnectionError):
    """No usable answer came. The sentence names the server."""


class ServerRefused(ValueError):
    """The server answered, with a refusal that a repetition cannot change."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Failed(ServerUnreachable):
    """One attempt failed in a way that may pass."""

    def __init__(self, kind: Kind, sentence: str, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that the server asks to be left alone."""


class _TooLarge(Exception):
    """An answer that is larger than what was asked for can be."""


class Connections:
    """The connections to one server. Safe for several threads, and for `close` from any of them.

    `key`: the API key, sent in a header and shown nowhere. Raises ValueError for what is no URL of a server.
    """

    def __init__(self, url: str, key: str = "") -> None:
        parts = _check_url(url)
        self.url = url.rstrip("/")
        self._parts, self._key = parts, key
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = False

    def exchange(self, call: Call, timeout: float) -> Tree:
        """The answer to one request: a JSON tree, `None` for an empty answer, or the text of a plain one.

        `timeout`: seconds for the whole answer. A connection that is too slow is closed, upon which the server drops
        the request. Raises Failed or ServerRefused.
        """
        body = None if call.body is None else json.dumps(call.body, allow_nan=False).encode()
        deadline = time.monotonic() + timeout
        connection = self._take()
        kept = connection is not None
        while True:
            try:
                connection = connection or self._connect(timeout)
                status, headers, answer = self._send(connection, call, body, deadline)
            except ssl.SSLCertVerificationError as error:
                self._drop(connection)
                raise ServerRefused(
                    UNTRUSTED,
                    f"the certificate of the server at {self.url} is not trusted ({error.verify_message}). Give the "
                    "server another one, or name a file with the right ones in the variable SSL_CERT_FILE.",
                ) from None
            except TimeoutError:
                self._drop(connection)
                raise Failed("slow", f"the server at {self.url} gave no whole answer within {timeout:g} s") from None
            except _TooLarge as error:
                self._drop(connection)
                raise Failed("garbled", self._sentence(f"answered {call.path} with too much", error)) from None
            except socket.gaierror as error:
                raise Failed(
                    "away",
                    f"no machine with the name {self._parts.hostname} was found ({error.strerror}) for the server at "
                    f"{self.url}. Check the spelling",
                ) from None
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                # A connection that `close` has shut down in another thread fails with one of the last two.
                self._drop(connection)
                if not kept or self._closed:
                    refused = isinstance(error, ConnectionRefusedError)
                    what = "was not reached" if refused else "broke off the connection"
                    raise Failed("away", self._sentence(what, error)) from None
                connection, kept = None, False
                continue
            return self._read(call, status, headers, answer)

    def close(self) -> None:
        """Close all connections, also those on which a thread waits. The thread gets a `Failed`."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError, AttributeError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        while self._idle:
            self._idle.pop().close()

    def _send(
        self, connection: http.client.HTTPConnection, call: Call, body: bytes | None, deadline: float
    ) -> tuple[int, Any, bytes]:
        largest = _ANSWER + _ANSWER_PER_TOKEN * call.tokens
        connection.response_class = _timed_response(deadline, 2 * largest)
        connection.request(call.method, self._parts.path.rstrip("/") + call.path, body, self._headers)
        response = connection.getresponse()
        refuse_interim(response.status)
        answer = response.read(largest + 1)
        if len(answer) > largest:
            raise _TooLarge(f"an answer of more than {largest:,} bytes")
        if response.will_close:
            self._drop(connection)
        else:
            self._keep(connection)
        return response.status, response.headers, without_secret(answer, self._key)

    def _read(self, call: Call, status: int, headers: Any, answer: bytes) -> Tree:
        said = self._said(answer)
        if status == 429:
            asked = _seconds(headers.get("Retry-After", ""))
            raise Failed("busy", f"the server at {self.url} takes no more requests now (429: {said})", asked)
        if status in _AWAY:
            raise Failed(
                "away",
                f"the server at {self.url} takes no requests now ({status})",
                _seconds(headers.get("Retry-After", "")),
            )
        if status >= 500:
            dead = any(word in said.lower() for word in _DEAD)
            raise Failed("dead" if dead else "garbled", f"the server at {self.url} failed ({status}): {said}")
        if 300 <= status < 400:
            where = self.without_key(str(headers.get("Location", "another place")))
            raise ServerRefused(status, f"the server at {self.url} {redirected(call.path, status, where)}")
        if status >= 400:
            raise ServerRefused(
                status, f"the server at {self.url} refused {call.path} ({status}): {said}{_advice(status, call.path)}"
            )
        if call.plain:
            return answer.decode(errors="replace")
        if not answer.strip():
            return None
        try:
            return parse_json(answer, constant=_no_number)
        except ValueError as error:
            raise Failed("garbled", self._sentence(f"answered {call.path} with what is no JSON", error)) from None

    def _said(self, answer: bytes) -> str:
        """The server's own words, without the key."""
        text = answer[:2000].decode(errors="replace")
        with contextlib.suppress(ValueError):
            tree = parse_json(answer)
            found = tree.get("error") or tree.get("detail") or tree.get("message") if isinstance(tree, dict) else None
            text = str(found.get("message", found) if isinstance(found, dict) else found or text)
        return self.without_key(" ".join(text.split()))[:300]

    def _sentence(self, what: str, error: Exception) -> str:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"the server at {self.url} {what}: {' '.join(self.without_key(reason).split())}"

    def without_key(self, text: str) -> str:
        """Words of the server, which may repeat the key."""
        return text.replace(self._key, "(the key)") if self._key else text

    def _take(self) -> http.client.HTTPConnection | None:
        connection = take_kept(self._idle)
        if connection is not None:
            with self._lock:
                self._open.add(connection)
        return connection

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _drop(self, connection: http.client.HTTPConnection | None) -> None:
        if connection is None:
            return
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=timeout)
        with self._lock:
            if self._closed:
                raise ConnectionError("the client was closed")
            self._open.add(connection)
        try:
            connection.connect()
        except OSError:
            self._drop(connection)
            raise
        return connection


class _Timed(io.RawIOBase):
    """The bytes of a socket until a deadline. A server that sends a byte now and then is too slow, too.

    `most`: bytes with heads and the lengths of chunks, where `http.client` believes a length below 0.
    """

    def __init__(self, connected: socket.socket, deadline: float, most: int) -> None:
        self._socket, self._deadline, self._most = connected, deadline, most
        # Keeps the socket open until this is closed: `http.client` closes it after a head that ends the connection.
        self._file = connected.makefile("rb", 0)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._file.close()

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        count = self._socket.recv_into(buffer)
        self._most -= count
        if self._most < 0:
            raise _TooLarge("an answer without an end")
        return count


def _timed_response(deadline: float, most: int) -> type[http.client.HTTPResponse]:
    class TimedResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
            super().__init__(sock, *given, **named)
            self.fp.close()
            self.fp = io.BufferedReader(_Timed(sock, deadline, most))

    return TimedResponse


def refuse_interim(status: int) -> None:
    """Raise HTTPException for a status with which no answer has come yet. The answer would be read as the next one."""
    if status < 200:
        raise http.client.HTTPException(f"status {status} in the place of an answer")


def take_kept(idle: deque[http.client.HTTPConnection]) -> http.client.HTTPConnection | None:
    """A kept connection, if there is one. Those that hold what nobody asked for are closed.

    That is the end of the connection, or a proxy's 408, which is no answer to us.
    """
    with contextlib.suppress(IndexError):
        while True:
            connection = idle.pop()
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()
    return None


def check_urls(urls: Sequence[str]) -> None:
    """Raise ValueError for what is no URL of an inference server, for none at all, and for one given twice."""
    for url in urls:
        _check_url(url)
    if not urls or len({url.rstrip("/") for url in urls}) < len(urls):
        raise ValueError(f"Expected the URL of at least one inference server, each once, found {list(urls)}.")


def _check_url(url: str) -> SplitResult:
    """The parts of an inference server's URL. Raises ValueError for what is none."""
    return parts_of(
        url,
        "an inference server, such as http://127.0.0.1:8000",
        "Put the key into an environment variable, and name the variable with api_key_env.",
    )


def parts_of(url: str, of: str, instead: str) -> SplitResult:
    """The parts of a server's URL. Raises ValueError for what is none, and for a user, a password or a query in it.

    `of`: what server, with an example. `instead`: the last sentence of the error, where a secret belongs. The secret
    is in no message.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        known = known and not re.search(r"\s", url)  # urlsplit takes line ends and tabs out
        str(parts.hostname).encode("idna")
    except ValueError:  # of a port, an address or a name that is none
        known = False
    if not known:
        found = repr(url) if "@" not in url else "one with a user or a password"
        raise ValueError(f"Expected the URL of {of}, found {found}.")
    if "?" in url or "#" in url:
        raise ValueError(
            f"Expected the URL of {parts.hostname} without a query or a fragment (? or # and what follows), since it "
            f"is not sent, and URLs are written into files and messages. {instead}"
        )
    if parts.username or parts.password:
        raise ValueError(
            f"Expected the URL of {parts.hostname} without a user or a password, since URLs are written into files "
            f"and messages. {instead}"
        )
    return parts


def without_secret(answer: bytes, secret: str) -> bytes:
    """An answer with "(the key)" in the place of the secret that the server got.

    A server that repeats what it was sent would put it into replies, names and sentences, some of which are cut. A
    short secret stays, since it may be a word of the answer. Messages leave it out.
    """
    return answer.replace(secret.encode(), b"(the key)") if len(secret) >= _LONG_SECRET else answer


def redirected(path: str, status: int, where: str) -> str:
    """What a server did that answered with a redirection, as the rest of a sentence."""
    return (
        f"redirects {path} to {where[:300]!r} ({status}), and redirections are not followed: a key could be sent "
        "elsewhere. Name the server with the URL at which it answers itself."
    )


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header: a number, or a date. 0 for none, or for what is neither."""
    if not retry_after:
        return 0.0
    with contextlib.suppress(ValueError):
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _advice(status: int, path: str) -> str:
    """What to do about a refusal, as a sentence."""
    if status in (401, 403) and not path.startswith("/inference/"):
        return " Put the key into an environment variable, and name the variable with api_key_env."
    if path.startswith("/inference/") and status in (403, 404):
        return " Start vLLM with --enable-scale-out: without it there is no endpoint for token ids."
    if path.startswith("/v1/") and "lora" in path:
        return " Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
    if status == 404 and not path.startswith(("/v1/", "/retrieve")):
        return " Start vLLM with VLLM_SERVER_DEV_MODE=1: without it there are no endpoints for weights."
    return ""
