"""The head of an HTTP request, read strictly: a head that two programs could read differently is refused.

A proxy and a server that disagree on where a request ends can be made to answer one client with another one's answer
(request smuggling, RFC 9112, sections 2.2, 5.1, 5.2, 6.1 and 11.2). So nothing is repaired here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from io import BufferedIOBase

LARGEST_LINE = 2**16
"""Bytes of the first line, or of one field."""

MOST_FIELDS = 100

_FIRST = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e]+ HTTP/[0-9]\.[0-9]\r\n")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(rb"0|[1-9][0-9]*")
_ONCE = {b"content-length", b"content-type", b"host", b"authorization", b"transfer-encoding"}
"""Fields that decide something and may stand once."""


class BadHead(Exception):
    """A head that is refused, with its status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def read_head(incoming: BufferedIOBase) -> tuple[bytes, bytes]:
    """The first line and the lines of the fields, each with its line end, and the empty line after them.

    Empty where the client has closed. Raises BadHead.
    """
    first = incoming.readline(LARGEST_LINE + 1)
    if not first:
        return b"", b""
    if len(first) > LARGEST_LINE:
        raise BadHead(414, "The first line of the request is too long.")
    _check_end(first)
    if not _FIRST.fullmatch(first):
        raise BadHead(
            400,
            "Expected the first line of the request as a method, a path in ASCII and HTTP/1.1, with one space between "
            f"two of them, found {first[:40]!r}.",
        )
    lines: list[bytes] = []
    while True:
        line = incoming.readline(LARGEST_LINE + 1)
        if len(line) > LARGEST_LINE or len(lines) > MOST_FIELDS:
            raise BadHead(431, f"Expected at most {MOST_FIELDS} fields of at most {LARGEST_LINE:,} bytes.")
        _check_end(line)
        lines.append(line)
        if line == b"\r\n":
            check_fields([line[:-2] for line in lines[:-1]])
            return first, b"".join(lines)


def _check_end(line: bytes) -> None:
    if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
        raise BadHead(400, "Expected every line of the request's head to end with CR LF, and CR nowhere else.")


def check_fields(lines: Collection[bytes]) -> None:
    """Refuse fields that could be read in two ways. Raises BadHead."""
    found: dict[bytes, bytes] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadHead(
                400,
                "Expected each field of the request's head as `Name: value` on a line of its own, without a space "
                f"before the colon or the name, found {line[:40]!r}.",
            )
        name = field[1].lower()
        if name in found and name in _ONCE:
            raise BadHead(400, f"Expected the field {field[1].decode()} once, found it twice.")
        found[name] = field[2].strip(b" \t")
    length = found.get(b"content-length")
    if length is not None and b"transfer-encoding" in found:
        raise BadHead(400, "Expected a Content-Length and no Transfer-Encoding, found both.")
    if length is not None and length.isdigit() and not _LENGTH.fullmatch(length):
        raise BadHead(400, f"Expected a Content-Length without leading zeros, found {length[:40].decode()}.")


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
