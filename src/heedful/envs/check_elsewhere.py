"""What the other processes of a check run: `python -m heedful.envs.check_elsewhere REQUEST ANSWER`.

Promise: draws the tasks and plays the episodes of a pickled request, and writes what came of them as JSON. What the
environment raises ends this process, whose last line of error is then shown.
"""

from __future__ import annotations

import datetime
import importlib
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from heedful.envs.check_play import Bench, Effort, made_anew
from heedful.envs.check_play import scripted as scripted_replies
from heedful.envs.check_processes import Request


def main(request_file: str, answer_file: str) -> None:
    asked: Request = pickle.loads(Path(request_file).read_bytes())
    if asked.later:
        set_clock_ahead(asked.later)
    family = _family(asked)
    bench = Bench(family, Effort())
    order = list(range(len(asked.seeds)))
    tasks: dict[int, Any] = {}
    for index in reversed(order) if asked.backwards else order:
        task = bench.task(asked.seeds[index])
        tasks[index] = [task.id, task.seed, task.split, list(task.tags)]
    places = list(range(len(asked.episodes)))
    episodes: dict[int, list[str]] = {}
    for place in reversed(places) if asked.backwards else places:
        task, member, replies = asked.episodes[place]
        episodes[place] = bench.play(task, member, scripted_replies(replies), len(replies)).transcript()
    answer = {"tasks": [tasks[index] for index in order], "episodes": [episodes[place] for place in places]}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


def _family(asked: Request) -> Any:
    """Made anew here, so that what it works out when it is made is worked out in this process."""
    if asked.origin:
        module, _, attribute = asked.origin.partition(":")
        return getattr(importlib.import_module(module), attribute)()
    return made_anew(pickle.loads(asked.family))


def set_clock_ahead(seconds: float) -> None:
    """From now on this process believes that it is so much later; modules imported after this are told the same."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return super().now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=seconds)

    class LaterDay(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return super().today() + datetime.timedelta(seconds=seconds)

    datetime.datetime, datetime.date = Later, LaterDay  # type: ignore[misc]


if __name__ == "__main__":
    main(*sys.argv[1:])
