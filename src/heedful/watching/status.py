"""What a person, a program or an agent reads of a run that goes on: `STATUS.md`, `status.json` and the live page.

All are made from the run's folder, written whole and then renamed, so no reader sees half of one. `docs/watch.md`
lists the fields.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from heedful.console import duration
from heedful.diagnostics.alarms.causes import Cause, likely
from heedful.report.outcome import SEVERITIES, Outcome
from heedful.storage import RunFolder, write_whole
from heedful.watching.sinks import STALLED, Measured, Pending, Sink

SCHEMA = 1
"""Rises when a key of `status.json` changes its meaning."""
HEARTBEAT, PAGE = 30.0, 30
"""Seconds after which an unchanged status is written again, and between two pages."""
SHARE = 50
"""Files take at most one part in so many of the time: a long run's page is written less often."""
NOTES, CAUSES = 20, 5
_CHECKPOINT = re.compile(r"(?:checkpoint-|global_step_|step_)(\d+)")


@dataclass(slots=True)
class Pace:
    """Says when something that costs time is due again."""

    least: float
    """Seconds from one to the next."""
    clock: Callable[[], float]
    next: float = float("-inf")

    def due(self) -> bool:
        return self.clock() >= self.next

    def run(self, write: Callable[[], object]) -> None:
        began = self.clock()
        write()
        now = self.clock()
        self.next = now + max(self.least, SHARE * (now - began))


class Status(Sink):
    """Keeps these files of a folder up to date: at each alarm, and else as often as `Pace` allows.

    The last page, without a refresh, is that of the pipeline.
    """

    def __init__(
        self, log: Path, clock: Callable[[], float] = time.time, every: float = 1.0, page: bool = True
    ) -> None:
        """
        Args:
            log: what is watched. Checkpoints are looked for around it.
            clock: seconds since 1970.
            every: least seconds from one status to the next.
            page: write the page, too.
        """
        self._log = log
        self._clock = clock
        self._folder = RunFolder(Path())
        self._state, self._page = Pace(every, clock), Pace(PAGE, clock)
        self._paged = page
        self._step: int | None = None
        self._pending = Pending(0.0)
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._changed = self._grown = True
        self._last = 0.0

    def begin(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._notes.clear()  # what was told while the log was waited for is over

    def note(self, sentence: str) -> None:
        self._notes.append(sentence)

    def step(self, measured: Measured) -> None:
        self._step = measured.number
        self._changed = self._grown = True
        self._write(at_once=bool(measured.raised) and not measured.replayed)

    def pending(self, pending: Pending) -> None:
        before, self._pending = self._pending, pending
        self._changed |= (before.stalled, before.open_step) != (pending.stalled, pending.open_step)
        self._write()

    def end(self, why: str) -> None:
        self._write_status(why or "All that is there is measured.")

    def _write(self, at_once: bool = False) -> None:
        stale = self._clock() - self._last >= HEARTBEAT
        if at_once or ((self._changed or stale) and self._state.due()):
            self._changed, self._last = False, self._clock()
            self._state.run(self._write_status)
        if self._paged and self._step is not None and (at_once or (self._grown and self._page.due())):
            self._grown = False
            from heedful.report import write_report  # a watch begins before there is a page

            self._page.run(lambda: write_report(self._folder, PAGE))

    def _write_status(self, ended: str = "") -> None:
        outcome = None if self._step is None else Outcome.of(self._folder.path)
        tree = self.tree(outcome, ended)
        write_whole(self._folder.path / "status.json", json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
        write_whole(self._folder.path / "STATUS.md", "\n".join(_markdown(tree)) + "\n")

    def tree(self, outcome: Outcome | None, ended: str) -> dict[str, Any]:
        """The content of `status.json`. `outcome`: of the steps so far, `None` before the first one."""
        from heedful.report.attribution import measured_causes  # with what draws pages

        pending, raised = self._pending, outcome.raised if outcome else ()
        series = outcome.run.series if outcome else {}
        standing = {one.name for one in raised if series[f"alarm/{one.name}"].numeric[-1].number}
        severities = {one.severity for one in raised if one.name in standing}
        health = "warning" if "warning" in severities else "healthy"
        health = "stalled" if pending.stalled and not ended else health
        scores = series["trainer/validation"].numeric if "trainer/validation" in series else ()
        best = max(scores, key=lambda point: point.number or 0.0, default=None)
        serious = [one.step for one in raised if SEVERITIES.index(one.severity)]
        found = outcome.to_json() if outcome else {"alarms": [], "causes": [], "figures": {}}
        waits = [asdict(cause) for cause in likely({STALLED: self._step or 0} if pending.stalled and not ended else {})]
        return {
            "schema": SCHEMA,
            "run": run_name(self._log),
            "time": round(self._clock(), 1),
            "ended": ended,
            "health": "collapse" if "collapse" in severities else health,
            "step": self._step,
            "open_step": pending.open_step,
            "age": round(pending.age, 1),
            "interval": pending.interval,
            "stalled": pending.stalled,
            "alarms": [one | {"standing": one["name"] in standing} for one in found["alarms"]],
            "causes": [*waits, *found["causes"]][:CAUSES],
            "measured": measured_causes(RunFolder(self._log), raised[-1].step) if raised else [],
            "best_validation": best and {"step": best.step, "value": best.number},
            "checkpoint": last_checkpoint(self._log, min(serious)) if serious else None,
            "figures": found["figures"],
            "notes": [*self._notes, *(outcome.not_judged() if outcome else ())],
            "page": str(self._folder.report),
        }


def run_name(log: Path) -> str:
    """The last two parts of a log's place: of `trl-output/completions` the second alone would name any run."""
    return "/".join(log.resolve().parts[-2:])


def last_checkpoint(log: Path, before: int) -> str | None:
    """The last checkpoint of a step below `before` around a log: `checkpoint-N`, `global_step_N` or `step_N`, in the
    log's folder, in the two above it, and in folders `checkpoints` and `weights` there. `None` where there is none.

    A folder `step_N` in the log itself holds rollouts, as prime-rl has it, and is none.
    """
    found: dict[int, Path] = {}
    for folder in log.resolve().parents[:2] if log.is_file() else (log.resolve(), *log.resolve().parents[:2]):
        for entry in chain(*(place.glob("*") for place in (folder, folder / "checkpoints", folder / "weights"))):
            name = _CHECKPOINT.fullmatch(entry.name) if entry.is_dir() else None
            if name and int(name[1]) < before and not (entry.parent == log.resolve() and entry.name.startswith("step")):
                found.setdefault(int(name[1]), entry)
    return str(found[max(found)]) if found else None


def _markdown(tree: dict[str, Any]) -> Iterator[str]:
    """The same for a person."""
    pace = f", a step every {duration(tree['interval'], 1)}" if tree["interval"] else ""
    yield f"# {tree['run']}: {tree['health']}"
    yield ""
    reached = "No step is closed yet" if tree["step"] is None else f"Step {tree['step']}"
    yield f"{reached}, last line {duration(tree['age'])} before {time.ctime(tree['time'])}{pace}."
    yield from ("", tree["stalled"]) if tree["stalled"] else ()
    yield from ("", f"Ended: {tree['ended']}") if tree["ended"] else ()
    yield ""
    for one in tree["alarms"]:
        stands = f"since step {one['step']}" if one["standing"] else f"steps {one['step']} to {one['last']}"
        yield f"- **{one['name']}** ({one['severity']}, {stands}): {one['evidence']}."
    yield from () if tree["alarms"] else ("No alarm.",)
    told = [*tree["measured"], *(Cause(**cause).sentence() for cause in tree["causes"][:3])]
    causes = [f"{place}. {sentence}" for place, sentence in enumerate(told, start=1)]
    yield from ("", "Likely causes:", "", *causes) if causes else ()
    if best := tree["best_validation"]:
        yield from ("", f"Best validation: {best['value']:.3f} at step {best['step']}.")
    if tree["checkpoint"]:
        yield from ("", f"Last checkpoint before the first alarm: `{tree['checkpoint']}`.")
    yield from ("", "| | first | last |", "|---|---|---|") if tree["figures"] else ()
    for figure in tree["figures"].values():
        first, last = ("-" if value is None else f"{value:.3f}" for value in (figure["first"], figure["last"]))
        yield f"| {figure['words']} | {first} | {last} |"
    yield from ("", *(f"- {note}" for note in tree["notes"]))
