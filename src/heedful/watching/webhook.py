"""A message to a webhook for each new alarm. It never delays the watch, and its URL is shown nowhere: it is a secret.

No text of a rollout leaves this machine, unless examples were asked for.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heedful.boundary.foreign_text import clean, cut
from heedful.boundary.http import UNTRUSTED, HttpServer, NoAnswer, ServerRefused
from heedful.boundary.jsontext import read_json
from heedful.diagnostics.alarms.watch import Alarm
from heedful.types import Trajectory
from heedful.watching.sinks import STALLED, AlarmHistory, Measured, Pending, Sink

TIMEOUT, TRIES = 5.0, 2
"""Seconds for an answer, and how often a message is sent at most."""
_ANSWER = 1 << 20
_WHY = {
    "absent": "it was not reached",
    "broken": "the connection broke off",
    "slow": f"no answer within {TIMEOUT:g} s",
    "large": "its answer was too large",
    "untrusted": "its certificate is not trusted",
}
_TEXT = 1000
"""Characters of a prompt and of a reply in an example."""


def webhook_url(variable: str) -> str:
    """The URL in an environment variable. Raises ValueError where there is none. The URL is in no message."""
    if "://" in variable:
        raise ValueError(
            "Expected --webhook to name an environment variable that holds the URL, found a URL. Whoever reads it can "
            "write there, and lists of processes and shells keep what is typed: export it, and name the variable."
        )
    url = os.environ.get(variable, "").strip()
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        found = "something else" if url else "nothing"
        raise ValueError(f"Expected a URL (https://...) in the environment variable {variable}, found {found} there.")
    return url


class Webhook(Sink):
    """Posts `{"text": ..., "heedful": {...}}` for each alarm that was not told before. Slack shows `text`."""

    def __init__(self, url: str, run: str, tell: Callable[[str], None], examples: bool = False) -> None:
        """`tell` is called in the thread of the watch, once, if a message does not arrive."""
        parts = urlsplit(url)
        self._server = HttpServer(f"{parts.scheme}://{parts.netloc}")
        self._path = url.partition(parts.netloc)[2]
        self._run = run
        self._tell = tell
        self._examples = examples
        self._alarms = AlarmHistory()
        self._failure = ""
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        # httpx notes the URL of each request, and a trainer's own log may show that.
        logging.getLogger("httpx").addFilter(lambda record: url not in record.getMessage())

    def begin(self, folder: Path) -> None:
        status = folder / "status.json"  # of the watch before this one, which has told of a run that stands still
        if status.exists() and read_json(status)["stalled"]:
            self._alarms.standing.add(STALLED)
        self._thread.start()

    def step(self, measured: Measured) -> None:
        for alarm in self._alarms.add(measured):
            self._put(alarm, measured)

    def pending(self, pending: Pending) -> None:
        for alarm in self._alarms.wait(pending):
            self._put(alarm, None)
        self._tell_of_failure()

    def close(self) -> None:
        """Wait for the messages on their way, as long as one may take."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(TRIES * TIMEOUT + 1)
        self._server.close()
        self._tell_of_failure()

    def _put(self, alarm: Alarm, measured: Measured | None) -> None:
        causes = [cause.sentence() for cause in self._alarms.causes()[:3]]
        told: dict[str, Any] = {"run": self._run, "step": alarm.step, "alarm": alarm.name, "severity": alarm.severity}
        told |= {"evidence": alarm.evidence, "causes": causes}
        if self._examples and measured is not None and measured.step is not None:
            told["examples"] = _examples([each for group in measured.step.groups for each in group.trajectories])
        text = clean(f"{self._run}: {alarm.sentence()}")
        self._queue.put(json.dumps({"text": text, "heedful": told}).encode())

    def _send_all(self) -> None:
        while (body := self._queue.get()) is not None:
            why = ""
            for _ in range(TRIES):
                try:
                    status = self._server.ask("POST", self._path, body, TIMEOUT, _ANSWER).status
                    why = "" if status < 300 else f"it answered {status}"
                except NoAnswer as error:  # its sentence names the URL
                    why = _WHY[error.kind]
                except ServerRefused as error:
                    why = _WHY["untrusted"] if error.status == UNTRUSTED else f"it answered {error.status}"
                if not why:
                    break
            self._failure = self._failure or why

    def _tell_of_failure(self) -> None:
        if self._failure:
            self._tell(f"A message to the webhook did not arrive: {self._failure}. The watch goes on without it.")
            self._failure, self._tell = "", lambda sentence: None


def _examples(members: list[Trajectory]) -> list[dict[str, Any]]:
    """The best and the worst paid episode of a step, by their first turns."""
    paid = sorted(
        (each for each in members if each.turns and each.reward is not None), key=lambda each: each.reward or 0
    )
    return [
        {
            "reward": each.reward,
            "prompt": cut(each.turns[0].reply.prompt.text, _TEXT),
            "reply": cut(each.turns[0].reply.text, _TEXT),
        }
        for each in (paid[-1:] + paid[:1] if len(paid) > 1 else paid)
    ]
