"""From closed steps to lines, alarms and sinks: the same for an audit, a watch and whoever else has steps.

Each line of `metrics.jsonl` names the rows and the scalars that it was measured from (`of`), so nothing else has to be
remembered. Whoever begins again hands on all steps from the first one. Lines that stand for their steps are read and
not measured again. From the first one on that does not, lines move to `superseded.jsonl`, and alarms go on from the
lines before it. So after a kill, a resumed trainer, or a row that shows the log in another light, `metrics.jsonl` is in
the end what an audit of the whole log writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.auditing.logs.records import Faults, digest
from heedful.auditing.noticed import Noticed
from heedful.auditing.recognised import RecognisedLog, counted
from heedful.auditing.record import STATES, AuditRecord
from heedful.auditing.scalars import scalar_metrics
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep, StartOver
from heedful.boundary import has_pyarrow, listed, read_json
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import Alarm, Alarms, StepAlarms
from heedful.storage import RunFolder, StepMetrics, append, metrics_of_line, read_metrics, write_rollouts, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric
from heedful.watching.sinks import Measured, Sink

if TYPE_CHECKING:
    from heedful.auditing.scoring import ModelJudge

SUPERSEDED = "superseded.jsonl"
SCALARS_ALONE = (
    "Template collapse: not measured, since scalars hold no thoughts. Name the rollouts, and the scalars after them."
)
STATES_KEPT = 17
"""Last lines after which the state of a model's measurements is kept. What differs before them is measured from the
start."""
_FRESH: Mapping[str, Any] = {"zscores": {}, "regimes": {}}
"""The state of a model that has measured nothing."""


@dataclass(slots=True)
class Pipeline:
    """Measures the steps of a log in order, each with its scalars; writes them, judges alarms, and tells the sinks."""

    log: RecognisedLog
    settings: AuditSettings
    folder: Path
    """It is there, and held by this process."""
    record: AuditRecord
    sinks: Sequence[Sink] = ()
    judge: ModelJudge | None = None
    told: set[tuple[str, int]] = field(default_factory=set)
    """Alarms that the sinks know, by name and step: none is told twice where a line is measured again."""
    raised: dict[str, int] = field(default_factory=dict)
    """Alarm -> the step at which it was raised first, by the lines so far."""
    noticed: Noticed = field(default_factory=Noticed)
    alarms: Alarms = field(default_factory=lambda: Alarms(rules=logged_rules(AlarmConfig())))
    lines: int = 0
    """Lines of `metrics.jsonl` so far."""
    place: int = 0
    """Steps with rollouts so far."""
    last: int = -1
    """The highest step so far."""
    absent: list[str] = field(default_factory=list)
    """Of each step with rollouts that was measured: why it does not hold what --on names, or nothing."""
    run: RunFolder = field(init=False)
    _begun: bool = False
    """A line has stood for a step, or was measured."""
    _stored: BufferedReader | None = None
    """The lines of an earlier reading, at the next one."""
    _at: int = 0
    """The bytes of the lines so far."""
    _tracker: JsonlTracker | None = None
    _states: dict[int, Any] = field(default_factory=dict)
    """Lines -> what a model's next measurement needs of those before it."""

    def __post_init__(self) -> None:
        self.run = RunFolder(self.folder, self.folder.stat())
        if self.run.metrics.exists():
            self._stored = self.run.metrics.open("rb")
        if self.judge is not None and (self.folder / STATES).exists():
            self._states = {int(lines): state for lines, state in read_json(self.folder / STATES).items()}
        self._states[0] = _FRESH

    def note(self, sentence: str) -> None:
        for sink in self.sinks:
            sink.note(sentence)

    def add(
        self, number: int, step: LoggedStep | None, scalars: Mapping[str, float] | None, counted: bool = False
    ) -> None:
        """Take the next step: its rollouts, if it has any, and its scalars under heedful's names.

        `scalars`: `None` where the trainer's files no longer go back to this step. Then a line keeps those it has.
        `counted`: the rollouts are in `noticed` already, since the caller joins steps.

        Raises StartOver where a model has to measure from the first step again.
        """
        if step is not None and not counted:
            self.noticed.notice(step, self.log.tags)
        self.last = max(self.last, number)
        reader, log = self.log.reader, self.log
        reading = (reader.rewards, reader.success, reader.group, log.on, log.tags, sorted(log.unknown.items()))
        of = [
            "" if step is None else digest(repr(reading)),
            "" if step is None else step.fingerprint,
            "" if not scalars else digest(repr(sorted(scalars.items()))),
        ]
        while (line := self._next()) is not None:
            if line.step == number and self._stands(line, of, scalars is None):
                self._begun = True
                self._replay(line, step)
                return
            if self._begun or line.step >= number:
                break
            self._replay(line, None)  # the log begins later than it did: a trainer has emptied its file
        self._begun = True
        self.supersede()
        self._measure(number, step, scalars or {}, "+".join(of))

    def _next(self) -> StepMetrics | None:
        """The next line of an earlier reading. A torn one, and one that no audit wrote, is none."""
        content = self._stored.readline() if self._stored is not None else b""
        if content.endswith(b"\n"):
            with suppress(ValueError, TypeError, KeyError):
                line = metrics_of_line(content)
                return line if line.of.count("+") == 2 else None
        return None

    def _stands(self, line: StepMetrics, of: Sequence[str], any_scalars: bool) -> bool:
        """Whether the line of this step is what would be measured now."""
        reading, rows, scalars = line.of.split("+")
        if reading != of[0] or not (any_scalars or scalars == of[2]):
            return False
        last = self._stored is not None and not self._stored.peek(1)
        if rows != of[1] and line.step not in self.record.rewritten and self.log.overwritten and last:
            self.keep(line.step)
        return rows == of[1] or line.step in self.record.rewritten

    def keep(self, number: int) -> None:
        """Let the line of a step stay, whose rows were written over: TRL does so with those of an evaluation."""
        if number not in self.record.rewritten:
            self.record.rewritten.append(number)
            self.record.save(self.folder)
            self.note(f"Step {number} was rewritten after it was measured. Its line stays.")

    def _replay(self, line: StepMetrics, step: LoggedStep | None) -> None:
        """Go on behind a line that is there."""
        self._at = self._stored.tell() if self._stored is not None else 0
        self.lines += 1
        self.place += step is not None
        raised: tuple[Alarm, ...] = ()
        if not self.noticed.disorder:
            seen = [metric for name, metric in line.metrics.items() if not name.startswith("alarm/")]
            raised = self._judge(line.step, seen).raised
        self._tell(Measured(line.step, [*line.metrics.values()], raised, step, replayed=True))

    def _judge(self, number: int, metrics: Sequence[Metric]) -> StepAlarms:
        found = self.alarms.observe(number, metrics)
        for alarm in found.raised:
            self.raised.setdefault(alarm.name, alarm.step)
        return found

    def _tell(self, measured: Measured) -> None:
        self.told |= {(alarm.name, alarm.step) for alarm in measured.raised}
        for sink in self.sinks:
            sink.step(measured)

    def supersede(self) -> None:
        """Move the lines that are left of an earlier reading to `superseded.jsonl`."""
        if self._stored is None:
            return
        if self.judge is not None and self.lines not in self._states:
            self._at = 0
        self._stored.seek(self._at)
        rest = self._stored.read()
        self._stored.close()
        self._stored = None
        whole = rest[: rest.rfind(b"\n") + 1]
        if whole:
            first, moved = json.loads(whole.splitlines()[0])["step"], counted(len(whole.splitlines()), "line")
            self.note(f"From step {first} on the log has changed, or is read otherwise: {moved} moved to {SUPERSEDED}.")
            with append(self.folder / SUPERSEDED) as stream:
                stream.write(whole)
                stream.flush()
                os.fsync(stream.fileno())
        os.truncate(self.run.metrics, self._at)
        if self.lines and not self._at:
            raise StartOver

    def _measure(self, number: int, step: LoggedStep | None, scalars: Mapping[str, float], of: str) -> None:
        """Write the next line."""
        log, settings, noticed = self.log, self.settings, self.noticed
        metrics, raised = scalar_metrics(scalars, settings.validation_tasks), list[Alarm]()
        if step is not None:
            from heedful.auditing.measure import measure_step, spread_unknown  # scalars alone need none of it

            absent = spread_unknown(step, log.on, {}).get("signal/mixed", "")
            if absent and settings.on is not None and not (self.absent or self.lines):
                self.note(f"Step {number}: {absent}.")
            self.absent.append(absent)
            if self.judge is not None and self._tracker is None:
                self.judge.load_state(self._states[self.lines])
            diagnosis = measure_step(log, settings, self.judge, self.place, step, noticed.untagged(log))
            diagnosis.store_scores(self.run.scores(number))
            metrics = [*diagnosis.metrics, *metrics]
            self.place += 1
        if not noticed.disorder:  # else what went up seems to fall
            seen = self._judge(number, metrics)
            metrics, raised = [*metrics, *seen.metrics], [*seen.raised]
        self.run.refuse_moved("--out")
        if step is not None and settings.keep_rollouts and has_pyarrow():
            write_rollouts(self.run.rollouts(number), number, "train", step.groups, step.verdicts)
        self.lines += 1
        if self.judge is not None:  # before the line: a line without its state could not be gone on from
            self._states[self.lines] = self.judge.state()
            self._states = {at: state for at, state in self._states.items() if at == 0 or at > self.lines - STATES_KEPT}
            write_whole(self.folder / STATES, json.dumps(self._states) + "\n")
        self._tracker = self._tracker or JsonlTracker(self.run.metrics)
        self._tracker.write_line(number, metrics, {"of": of})
        new = tuple(alarm for alarm in raised if (alarm.name, alarm.step) not in self.told)
        self._tell(Measured(number, metrics, new, step))

    def end(
        self,
        why: str = "",
        found: Sequence[str] = (),
        faults: Faults | None = None,
        complete: bool = True,
    ) -> None:
        """Write `audit.json`, the verdict and the page. `found`: sentences about the log. `complete`: all steps were
        handed on, so no line that is left of an earlier reading stands for one."""
        if complete:
            self.supersede()
        self.close()
        self.run.refuse_moved("--out")
        record, noticed, log = self.record, self.noticed, self.log
        record.steps, record.episodes, record.groups = noticed.steps, noticed.episodes, noticed.groups
        record.count(faults or Faults())
        told = [*found]
        if record.rewritten:
            told.append(
                f"Steps {listed(map(str, record.rewritten))} were rewritten after they were measured: their lines are "
                "those of the first rows."
            )
        assumed = [*noticed.assumed(log), *(self.judge.assumed() if self.judge is not None else ())]
        doubts = self.judge.warnings() if self.judge is not None else []
        for sentence in (*told, *(f"assumed: {sentence}" for sentence in assumed), *doubts):
            self.note(sentence)
        record.found = [*doubts, *record.found, *told]
        record.assumed += assumed
        record.complete = complete
        record.save(self.folder)
        read = [*record.found]
        if record.left_out["count"]:
            read.append(f"{counted(record.left_out['count'], 'line')} did not fit and were left out; see audit.json.")
        read += [f"Assumed: {sentence}" for sentence in record.assumed]
        from heedful.auditing.conclusion import conclusion  # a watch begins before there is anything to conclude

        lines = read_metrics(self.run.metrics) if self.run.metrics.exists() else []
        said = conclusion(lines, noticed.untagged(log)) if noticed.episodes else [SCALARS_ALONE]
        tree = {"sentences": said, "read": read, "regime": "", "figures": {}}
        write_whole(self.run.verdict, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
        if lines:
            from heedful.report import write_report  # a watch begins before there is a page

            write_report(self.folder)
        for sink in self.sinks:
            sink.end(why)

    def close(self) -> None:
        """Close the files."""
        for stream in (self._tracker, self._stored):
            if stream is not None:
                stream.close()
        self._tracker = self._stored = None
