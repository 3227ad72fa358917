"""The rule that another process draws and plays the same: under other string hashes, in another order, a year later.

Promise: a dependence on `hash`, on the order of a set, on the clock, on the process or on the order of calls changes
what at least one of the processes answers. Python's string hash is fixed in each of them to another value, so the
answer of this rule is the same whenever it is asked. What remains: a set of two fixed names is walked in the same order
by all of n processes (this one included) in one of 2^(n - 1) cases.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.envs.check_evidence import Evidence, seeds_of
from heedful.envs.check_play import Bench
from heedful.envs.check_report import Finding, absent, broken, holds, parted, seconds_text, shortened
from heedful.foreign import Raised, attempt
from heedful.types import Task

MOST_SEEDS = 150
"""Seeds that every process draws."""

MOST_EPISODES = 25
"""Episodes that every process plays again."""

_LATEST = 300.0
"""Seconds that the processes have, started together."""


@dataclass(frozen=True, slots=True)
class Request:
    """What another process is to do; it travels pickled."""

    family: bytes
    """Pickled; empty where `origin` makes it."""
    origin: str
    seeds: tuple[int, ...]
    episodes: tuple[tuple[Task, int, tuple[str, ...]], ...]
    """(task, member, replies)."""
    backwards: bool
    later: float
    """Seconds that its clock is ahead."""


@dataclass(frozen=True, slots=True)
class _Other:
    """One process that was started."""

    hash_seed: int
    later: float
    process: subprocess.Popen[str]
    answer: Path

    def __str__(self) -> str:
        clock = ", its clock 400 days ahead" if self.later else ""
        return f"process with PYTHONHASHSEED={self.hash_seed}{clock}"


def elsewhere(bench: Bench, evidence: Evidence) -> Finding:
    """Tasks, first observations and episodes are the same in other processes."""
    count = bench.effort.processes
    if not count:
        return absent("no other processes were asked for")
    module = type(bench.family).__module__
    if module == "__main__" and not bench.origin:
        return absent(
            "the family is defined in the script that is being run, which other processes cannot import; move it into "
            "a "
            "module of its own, and this is looked at"
        )
    sent = attempt(lambda: pickle.dumps(bench.family))
    if isinstance(sent, Raised) and not bench.origin:
        return absent("the family cannot be pickled, so no other process can be handed it")
    episodes = tuple((one.task, one.member, tuple(one.replies)) for one in evidence.sound[:MOST_EPISODES])
    seeds = tuple(seeds_of(bench.effort.seeds)[:MOST_SEEDS])
    expected = {
        "tasks": [_listed(task) for task in evidence.tasks[: len(seeds)]],
        "episodes": [played.transcript() for played in evidence.sound[:MOST_EPISODES]],
    }
    with tempfile.TemporaryDirectory(prefix="heedful-check-") as folder:
        others = []
        for number in range(count):
            request = Request(
                family=b"" if isinstance(sent, Raised) or bench.origin else sent.value,
                origin=bench.origin,
                seeds=seeds,
                episodes=episodes,
                backwards=number % 2 == 1,
                later=400 * 86_400.0 if number == 0 else 0.0,
            )
            others.append(_started(request, number + 1, Path(folder)))
        findings = [finding for other in others if (finding := _compared(other, expected, episodes)) is not None]
        for other in others:
            if other.process.poll() is None:
                other.process.kill()
                other.process.communicate()
    if findings:
        return findings[0]
    return holds(
        f"{count} other processes with string hashes of their own, one of them with its clock 400 days ahead, draw "
        f"the same "
        f"{len(seeds)} tasks and play the same {len(episodes)} episodes"
    )


def _started(request: Request, hash_seed: int, folder: Path) -> _Other:
    asked, answer = folder / f"request-{hash_seed}", folder / f"answer-{hash_seed}"
    asked.write_bytes(pickle.dumps(request))
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    command = [sys.executable, "-m", "heedful.envs.check_elsewhere", str(asked), str(answer)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    return _Other(hash_seed, request.later, process, answer)


def _compared(
    other: _Other, expected: dict[str, Any], episodes: tuple[tuple[Task, int, tuple[str, ...]], ...]
) -> Finding | None:
    """What is different there; `None` if nothing is."""
    try:
        _, errors = other.process.communicate(timeout=_LATEST)
    except subprocess.TimeoutExpired:
        return _different("another process did not finish", f"nothing within {seconds_text(_LATEST)}", str(other))
    if other.process.returncode or not other.answer.exists():
        last = errors.strip().splitlines()[-1:] or [f"exit code {other.process.returncode}"]
        return broken(
            "another process cannot make the family, or play it",
            expected="a family that worker processes can import, rebuild and play",
            found=shortened(last[0], 300),
            where=str(other),
            remedy="keep the family importable (a module that stands on PYTHONPATH) and free of what only this "
            "process has",
        )
    found = json.loads(other.answer.read_text(encoding="utf-8"))
    wrong = [
        index for index, (one, two) in enumerate(zip(expected["tasks"], found["tasks"], strict=True)) if one != two
    ]
    if wrong:
        here, there = expected["tasks"][wrong[0]], found["tasks"][wrong[0]]
        seed = seeds_of(wrong[0] + 1)[-1]
        return _different(
            "another process draws other tasks",
            f"{len(wrong)} of {len(expected['tasks'])} tasks differ: {shortened(repr(here))} here, "
            f"{shortened(repr(there))} there",
            f"seed {seed}, {other}",
        )
    for (task, member, _), one, two in zip(episodes, expected["episodes"], found["episodes"], strict=True):
        if one != two:
            turn = next(
                (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]),
                min(len(one), len(two)),
            )
            said = "the first observation" if not turn else f"the answer to reply {turn}"
            return _different(
                "another process plays the same replies differently",
                f"{said} differs: {_difference(one, two, turn)}",
                f"task {task.id} (seed {task.seed}), member {member}, {other}",
            )
    return None


def _difference(one: list[str], two: list[str], turn: int) -> str:
    here, there = parted(*(texts[turn] if turn < len(texts) else "nothing" for texts in (one, two)))
    return f"{here} here, {there} there"


def _different(sentence: str, found: str, where: str) -> Finding:
    return broken(
        sentence,
        expected="tasks and episodes that depend on seed, member, knobs and replies alone, on every machine",
        found=found,
        where=where,
        remedy="sort sets before walking or drawing from them, use hashlib in the place of hash(), and neither the "
        "clock, "
        "the process id nor anything counted over calls",
    )


def _listed(task: Task) -> list[Any]:
    return [task.id, task.seed, task.split, list(task.tags)]
