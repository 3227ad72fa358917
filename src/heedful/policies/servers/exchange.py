"""One request to an inference server: its answer as JSON, or one kind of failure.

Nothing is repeated here. The choice of a server and all repetitions are in `client.py`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Literal

from heedful.boundary.http import HttpServer, NoAnswer, ServerRefused, ServerUnreachable, parts_of
from heedful.boundary.jsontext import parse_json
from heedful.policies.servers.dialects import Call, Tree

_ANSWER = 4 * 2**20
"""Bytes of an answer beside its tokens. As objects of Python, JSON takes up to 20 times its bytes."""
_ANSWER_PER_TOKEN = 4096
"""Bytes of the id, the text, the bytes and the log-probability of a token. vLLM writes about 200."""

Kind = Literal["away", "busy", "slow", "dead", "stale", "garbled"]
"""away: refused, reset, or a gateway's 502 to 504. busy: 429. slow: no whole answer in time. dead: the server says that
its engine has died. stale: a reply of other weights. garbled: an answer that is no JSON, not of the dialect, or another
error of the server."""

_OF_NO_ANSWER: dict[str, Kind] = {"absent": "away", "broken": "away", "slow": "slow", "large": "garbled"}
_AWAY = (502, 503, 504)
_TOO_LONG = (
    *("context length", "context_length", "context size", "max_model_len"),
    *("maximum number of tokens", "prompt is too long", "too many tokens"),
)
"""Words of servers that refuse a conversation because it fills the model's window."""
_DEAD = ("enginecore", "enginedead", "engine is dead")
"""Words of vLLM's answers after its engine has died."""


class Failed(ServerUnreachable):
    """One attempt failed in a way that may pass."""

    def __init__(self, kind: Kind, sentence: str, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that the server asks to be left alone."""


class WindowFull(ServerRefused):
    """The server refused a conversation that fills the model's window."""


def exchange(server: HttpServer, call: Call, timeout: float) -> Tree:
    """The answer to one request: a JSON tree, `None` for an empty answer, or the text of a plain one.

    `timeout`: seconds for the whole answer. Raises Failed or ServerRefused.
    """
    method, body = ("GET", None) if call.body is None else ("POST", json.dumps(call.body, allow_nan=False).encode())
    try:
        answer = server.ask(method, call.path, body, timeout, _ANSWER + _ANSWER_PER_TOKEN * call.tokens)
    except NoAnswer as error:
        raise Failed(_OF_NO_ANSWER[error.kind], str(error)) from None
    status, at = answer.status, f"the server at {server.url}"
    pause = _seconds(answer.headers.get("Retry-After", ""))
    if status in _AWAY:
        raise Failed("away", f"{at} takes no requests now ({status})", pause)
    if status >= 400:
        said = server.without_secret(" ".join(_said(answer.body).split()))[:300]
        if status == 429:
            raise Failed("busy", f"{at} takes no more requests now (429: {said})", pause)
        if status >= 500:
            dead = any(word in said.lower() for word in _DEAD)
            raise Failed("dead" if dead else "garbled", f"{at} failed ({status}): {said}")
        full = status == 400 and any(words in said.lower() for words in _TOO_LONG)
        kind = WindowFull if full else ServerRefused
        raise kind(status, f"{at} refused {call.path} ({status}): {said}{_advice(status, call.path)}")
    if call.plain:
        return answer.body.decode(errors="replace")
    if not answer.body.strip():
        return None
    try:
        return parse_json(answer.body)
    except ValueError as error:
        said = server.without_secret(str(error))
        raise Failed("garbled", f"{at} answered {call.path} with what is no JSON: {said}") from None


def check_urls(urls: Sequence[str]) -> None:
    """Raise ValueError for what is no URL of an inference server, for none at all, and for one given twice."""
    for url in urls:
        parts_of(
            url,
            "an inference server, such as http://127.0.0.1:8000",
            "Put the key into an environment variable, and name the variable with api_key_env.",
        )
    if not urls or len({url.rstrip("/") for url in urls}) < len(urls):
        raise ValueError(f"Expected the URL of at least one inference server, each once, found {list(urls)}.")


def _said(answer: bytes) -> str:
    """The server's own words in a refusal."""
    text = answer[:2000].decode(errors="replace")
    with contextlib.suppress(ValueError):
        tree = parse_json(answer)
        found = tree.get("error") or tree.get("detail") or tree.get("message") if isinstance(tree, dict) else None
        field = found.get("param") if isinstance(found, dict) else None
        if isinstance(found, str) and tree.get("message"):  # NestJS: the error is the name of the status
            found = f"{found}: {tree['message']}"
        text = str(found.get("message", found) if isinstance(found, dict) else found or text)
        text += f" ({field})" if field and str(field) not in text else ""
    return text


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header. 0 for none, and for what is no number."""
    with contextlib.suppress(ValueError):
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0
    return 0.0


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
