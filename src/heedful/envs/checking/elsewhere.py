"""The program of the other processes of a check: `python -m heedful.envs.checking.elsewhere REQUEST ANSWER`.

It draws the tasks and plays the episodes of a pickled request, and writes the results as JSON. An exception of the
environment ends this process, and the report shows its last line.
"""

from __future__ import annotations

import datetime
import json
import pickle
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from heedful.boundary.trust import import_held
from heedful.envs.checking.play import Bench, Effort, made_anew
from heedful.envs.checking.play import scripted as scripted_replies
from heedful.envs.checking.questions import Request, listed


def main(request_file: str, answer_file: str) -> None:
    asked: Request = pickle.loads(Path(request_file).read_bytes())
    if asked.later:
        set_clock_ahead(asked.later)
    env = _env(asked)
    bench = Bench(env, Effort())
    order = list(range(len(asked.seeds)))
    tasks: dict[int, Any] = {}
    for index in reversed(order) if asked.backwards else order:
        task = bench.task(asked.seeds[index])
        tasks[index] = listed(task)
    places = list(range(len(asked.episodes)))
    episodes: dict[int, list[str]] = {}
    for place in reversed(places) if asked.backwards else places:
        task, member, replies = asked.episodes[place]
        episodes[place] = bench.play(task, member, scripted_replies(replies), len(replies)).transcript()
    answer = {"tasks": [tasks[index] for index in order], "episodes": [episodes[place] for place in places]}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


def _env(asked: Request) -> Any:
    """The environment, made in this process: what its constructor computes is computed here."""
    if asked.origin:
        module = asked.origin.partition(":")[0]
        make = import_held(asked.origin)
    else:
        env = pickle.loads(asked.env)
        module, make = type(env).__module__, partial(made_anew, env)
    if asked.later:
        set_calendar_ahead(module.partition(".")[0], asked.later)
    return make()


def set_clock_ahead(seconds: float) -> None:
    """Move the clock of this process ahead. Modules imported later see the same clock."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)


def set_calendar_ahead(package: str, seconds: float) -> None:
    """The same for the calendar, in the loaded modules of one package.

    In no others: compiled libraries reach into the classes of `datetime` and crash where they are not the real ones.
    """
    ahead = datetime.timedelta(seconds=seconds)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + ahead

        @classmethod
        def today(cls) -> Any:
            return cls.now()

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    class LaterDay(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return super().today() + ahead

    later_module = ModuleType("datetime")
    vars(later_module).update(vars(datetime) | {"datetime": Later, "date": LaterDay})
    replaced = [(datetime, later_module), (datetime.datetime, Later), (datetime.date, LaterDay)]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for attribute, value in list(vars(module).items()):
                for real, later in replaced:
                    if value is real:
                        setattr(module, attribute, later)


if __name__ == "__main__":
    main(*sys.argv[1:])
