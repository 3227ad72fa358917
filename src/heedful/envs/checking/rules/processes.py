"""The rule that another process draws and plays the same, with other string hashes, in another order, a year later.

The rule finds a dependence on `hash`, on the order of a set, on the clock, on the process, or on the order of calls.
Each process has a fixed string hash, different from the others, so the result of the rule is reproducible. One case
can remain unseen: all n processes (this one included) walk a set of two fixed names in the same order in one of 2^(n -
1) cases.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.envs.checking.evidence import Evidence, seeds_of
from heedful.envs.checking.play import Bench, parting
from heedful.envs.checking.questions import Request, listed
from heedful.envs.checking.report import (
    Finding,
    absent,
    broken,
    holds,
    in_words,
    parted,
    seconds_text,
    shortened,
    unchecked,
)
from heedful.guarded import Raised, guarded_call

MOST_SEEDS = 150
"""Seeds that every process draws."""

MOST_EPISODES = 25
"""Episodes that every process plays again."""

AT_ONCE = 4
"""Processes that run at a time."""

LIMIT = 300.0
"""Seconds that one has."""

LATER = 400 * 86_400.0
"""Seconds by which the clock of the first one is ahead."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """What this process drew and played, for others to repeat."""

    tasks: list[list[Any]]
    episodes: list[list[str]]
    places: list[str]
    """Which episode each transcript is of."""


def elsewhere(bench: Bench, evidence: Evidence) -> Finding:
    """Tasks, first observations and episodes are the same in other processes."""
    count = bench.effort.processes
    if not count:
        return absent("no other processes were asked for")
    if type(bench.env).__module__ == "__main__" and not bench.origin:
        return absent(
            "the environment is defined in the script that is being run, which other processes cannot import; move it "
            "into a module of its own, and this is looked at"
        )
    sent = guarded_call(lambda: pickle.dumps(bench.env))
    if isinstance(sent, Raised) and not bench.origin:
        return unchecked("the environment cannot be pickled, so no other process can be handed it: see pickle")
    played = evidence.sound[:MOST_EPISODES]
    request = Request(
        env=b"" if isinstance(sent, Raised) or bench.origin else sent.value,
        origin=bench.origin,
        seeds=tuple(seeds_of(bench.effort.seeds)[:MOST_SEEDS]),
        episodes=tuple((one.task, one.member, tuple(one.replies)) for one in played),
    )
    tasks = [listed(task) for task in evidence.tasks[: len(request.seeds)]]
    expected = _Expected(tasks, [one.transcript() for one in played], [one.where() for one in played])
    with tempfile.TemporaryDirectory(prefix="heedful-check-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(_asked, request, number, Path(folder), expected) for number in range(count)]
        findings = [finding for each in asked if (finding := each.result()) is not None]
    if findings:
        return findings[0]
    return holds(
        f"{count} other process{'es' * (count > 1)} with other string hashes, one with its clock 400 days ahead, draw "
        f"the same {len(request.seeds)} tasks and play the same {len(played)} episodes"
    )


def _asked(request: Request, number: int, folder: Path, expected: _Expected) -> Finding | None:
    """Ask process number `number` (from 0), and say what is different there. `None` if nothing is."""
    later = LATER if number == 0 else 0.0
    where = f"process with PYTHONHASHSEED={number + 1}" + (", its clock 400 days ahead" if later else "")
    question, answer = folder / f"request-{number}", folder / f"answer-{number}"
    question.write_bytes(pickle.dumps(replace(request, backwards=number % 2 == 1, later=later)))
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(number + 1),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    # -P: the working directory is searched where this process searches it, and not before all else.
    command = [sys.executable, "-P", "-m", "heedful.envs.checking.elsewhere", str(question), str(answer)]
    try:
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return _different("another process did not finish", f"nothing within {seconds_text(LIMIT)}", where)
    if ended.returncode or not answer.exists():
        last = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        died = f"it was ended by signal {-ended.returncode}"
        return broken(
            "another process cannot make the environment, or play it",
            expected="an environment that worker processes can import, rebuild and play",
            found=died if ended.returncode < 0 else shortened(last[0], 300),
            where=where,
            remedy="keep the environment importable (a module that stands on PYTHONPATH) and free of what only this "
            "process has",
        )
    return _compared(json.loads(answer.read_text(encoding="utf-8")), expected, where)


def _compared(found: dict[str, Any], expected: _Expected, where: str) -> Finding | None:
    wrong = [at for at, pair in enumerate(zip(expected.tasks, found["tasks"], strict=True)) if pair[0] != pair[1]]
    if wrong:
        here, there = expected.tasks[wrong[0]], found["tasks"][wrong[0]]
        return _different(
            "another process draws other tasks",
            f"{len(wrong)} of {len(expected.tasks)} tasks differ: {in_words(here)} here, {in_words(there)} there",
            f"seed {seeds_of(wrong[0] + 1)[-1]}, {where}",
        )
    for place, one, two in zip(expected.places, expected.episodes, found["episodes"], strict=True):
        turn = parting(one, two)
        if turn is not None:
            before, after = parted(*(texts[turn] if turn < len(texts) else "nothing" for texts in (one, two)))
            said = "the first observation" if not turn else f"the answer to reply {turn}"
            return _different(
                "another process plays the same replies differently",
                f"{said} differs: {before} here, {after} there",
                f"{place}, {where}",
            )
    return None


def _different(sentence: str, found: str, where: str) -> Finding:
    return broken(
        sentence,
        expected="tasks and episodes that depend on seed, member, knobs and replies alone, on every machine",
        found=found,
        where=where,
        remedy="sort sets before walking or drawing from them, use hashlib in the place of hash(), and neither the "
        "clock, the process id nor anything counted over calls",
    )
