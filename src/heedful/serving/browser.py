"""What a browser sends and needs beside pages: a password, forms of our own pages only, and strict headers."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from heedful.serving.sessions import Refusal

ROOT = "page"
"""The first word of the address of every page."""


@dataclass(frozen=True, slots=True)
class Html:
    """An answer to a browser: a page, or the address to go on to."""

    status: int
    body: str = ""
    location: str = ""


class Pages(Protocol):
    """The pages of an environment, below `/page`. The server has checked token, host and form of a request."""

    def answer(self, method: str, path: str, form: Mapping[str, str]) -> Html:
        """The answer to one request. Raises Refusal."""
        ...

    def refused(self, sentence: str) -> str:
        """The page of a refusal, as HTML."""
        ...


FORM = "application/x-www-form-urlencoded"

_MOST_FIELDS = 10

HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Of every page: no script, nothing from elsewhere, no frame of another site."""


def knows_token(authorization: str, token: str) -> bool:
    """Whether a request has the server's token as the password that a browser asks for, under any name."""
    kind, _, given = authorization.partition(" ")
    try:
        password = base64.b64decode(given, validate=True).partition(b":")[2] if kind.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        password = b""
    return hmac.compare_digest(password, token.encode())


def check_own_form(method: str, origin: str | None, host: str | None) -> None:
    """Raise Refusal for a form that the page of another site has sent."""
    try:
        foreign = method == "POST" and origin is not None and urlsplit(origin).netloc != host
    except ValueError:  # it is no URL
        foreign = True
    if foreign:
        raise Refusal(403, "Expected a form of this server's own pages.")


def fields_of(body: bytes, content_type: str) -> dict[str, str]:
    """The fields of a form. Raises Refusal."""
    if body and content_type != FORM:
        raise Refusal(415, f"Expected Content-Type: {FORM}, found {content_type}.")
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise Refusal(400, f"Expected a form of at most {_MOST_FIELDS} fields.") from error
    return dict(pairs)
