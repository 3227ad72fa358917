"""An audit from end to end: measure a log step by step and write the results.

Promise: every step is on disk before the next one is read. What could not be read is counted. A log of which nothing
could be read is an error, not an empty page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from heedful.auditing.conclusion import conclusion
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults, Location, LoggedEpisode, Tell
from heedful.auditing.measure import measure_step, spread_unknown
from heedful.auditing.noticed import Noticed
from heedful.auditing.readers.verifiers import TRACELESS, traceless
from heedful.auditing.recognised import RecognisedLog, counted, open_log
from heedful.auditing.record import PROGRESS, RECORD, AuditRecord, Fingerprints, new_folder, resume
from heedful.auditing.scalars import History, mapped
from heedful.auditing.scoring import ModelJudge, judge_of
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep, StepStream, joined
from heedful.boundary import listed, trusting
from heedful.console import SafeConsole
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import Alarm, Alarms
from heedful.report import write_report
from heedful.report.record import stored_sentences
from heedful.storage import RunFolder, StepMetrics, advising, held, read_metrics, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric

SCALARS_ALONE = (
    "Template collapse: not measured, since scalars hold no thoughts. Name the rollouts, and the scalars after them."
)
PAUSE = 5.0
"""Seconds between lines."""


@dataclass(slots=True)
class AuditProgress:
    """A line now and then that says how far an audit is."""

    console: Console
    size: int = 1
    told: float = 0.0

    def begin(self, size: int) -> None:
        self.size = max(1, size)

    def step(self, step: LoggedStep, metrics: Sequence[Metric]) -> None:
        if time.monotonic() - self.told >= PAUSE:
            self.told = time.monotonic()
            value = next((metric.value for metric in metrics if metric.name == "reward/mean"), None)
            reward = f"{value:.3f}" if isinstance(value, int | float) else "-"
            self.console.print(
                f"step {step.number}: {step.episodes} episodes of {len(step.groups)} groups, reward {reward}, "
                f"{min(100, round(100 * step.read / self.size))}% of the log read"
            )

    def note(self, sentence: str) -> None:
        self.console.print(sentence)


def measure_log(
    log: RecognisedLog, settings: AuditSettings, out: Path | None, watch: AuditProgress, take_over: bool = False
) -> Path:
    """Measure a log and write `metrics.jsonl`, `audit.json`, `verdict.json` and `report.html`. Returns their folder.

    `out` is a new folder, or that of the same audit to go on with; `None` claims `audits/<name>-<n>`. With `take_over`
    the lock of a process on another host is taken over.

    Raises:
        ValueError: nothing could be read, `out` holds another audit, or another process is at work there.
    """
    history = History.of(log.files.scalars, mapped(settings.map))
    # Loaded first: a name that leads nowhere should cost neither time nor a folder.
    with judge_of(settings, log.tags, log.seed) as judge:
        prints = Fingerprints.of(log.files)
        fresh = AuditRecord.of(log, settings, prints)
        fresh.scalars = history.read
        folder = new_folder(Path("audits"), log.source) if out is None else out
        if folder.exists() and not folder.is_dir():
            resume(folder, fresh)  # refuses a file
        with held(folder, watch.note, take_over), advising(f"heedful audit {log.source} --out {folder}, same settings"):
            record = resume(folder, fresh)
            watch.note(f"Writing to {folder}.")
            run, faults, noticed = RunFolder(folder, folder.stat()), Faults(), Noticed()
            stream, refusal = _measure(log, settings, history, run, record, judge, watch, faults, noticed)
            if not noticed.steps and not history.steps:
                _leave_nothing(folder)
                raise ValueError(
                    f"Expected episodes in {log.source} ({log.format}), found none that could be read: "
                    f"{faults.count} lines do not fit ({'; '.join(map(str, faults.kept[:3]))})."
                )
            run.refuse_moved("--out")
            record.steps, record.episodes, record.groups = noticed.steps, noticed.episodes, noticed.groups
            record.count(faults)
            changed = prints.changed()
            found = [*history.found()]
            if noticed.steps:
                found = [*noticed.found(log, settings, faults, stream.interleaved, history.evaluated), *found]
            if changed:
                found.append(
                    f"The log changed while it was read: {listed(changed)}. These numbers are of no whole log. Audit "
                    "it again with another --out when its trainer has ended."
                )
            assumed = [*noticed.assumed(log), *(judge.assumed() if judge is not None else ())]
            for sentence in (*found, *(f"assumed: {sentence}" for sentence in assumed)):
                watch.note(sentence)
            doubts = judge.warnings() if judge is not None else []
            for sentence in doubts:
                watch.note(sentence)
            record.found = [*doubts, *record.found, *found]
            record.assumed += assumed
            record.complete = not changed
            record.save(folder)
            _write_verdict(run, record, noticed.untagged(log))
            if refusal:
                raise ValueError(refusal)
            write_report(folder)
    return folder


def _measure(
    log: RecognisedLog,
    settings: AuditSettings,
    history: History,
    run: RunFolder,
    record: AuditRecord,
    judge: ModelJudge | None,
    watch: AuditProgress,
    faults: Faults,
    noticed: Noticed,
) -> tuple[StepStream, str]:
    """Measure the steps that `record` does not know of. Returns the stream, and the sentence of an --on that no step
    holds. A step of scalars alone has a line of its own."""
    alarms, done = Alarms(rules=logged_rules(AlarmConfig())), set[int]()
    if record.lines:
        done = {line.step for line in read_metrics(run.metrics)}
        watch.note(f"Going on with {run.path}: {len(done)} steps are measured.")
        alarms.load_state(record.state["alarms"])
        if judge is not None:
            judge.load_state(record.state)
    record.save(run.path)
    watch.begin(log.files.size)
    for file, sentence in log.files.refused:
        faults.add(Location(file, 0), "a file that can be read", sentence)

    position = 0

    def tell(more: int) -> None:
        nonlocal position
        position += more

    def noticing(steps: Iterable[LoggedStep]) -> Iterator[LoggedStep]:
        for step in steps:
            noticed.notice(step)
            yield step

    stream = StepStream(_episodes(log, faults, tell), faults, lambda: position)
    tracker = JsonlTracker(run.metrics)
    lacking: list[str] = []  # of each step: why it does not hold what --on names
    try:
        place = -1
        for number, step in history.beside(joined(history.trained(noticing(stream)), settings.join)):
            place += step is not None
            if number in done:
                continue
            metrics, raised = history.metrics(number, settings.validation_tasks), list[Alarm]()
            if step is not None:
                absent = spread_unknown(step, log.on, {}).get("signal/mixed", "")
                if absent and settings.on is not None and not (lacking or record.lines):
                    watch.note(f"Step {number}: {absent}.")
                lacking.append(absent)
                diagnosis = measure_step(log, settings, judge, place, step, noticed.untagged(log))
                diagnosis.store_scores(run.scores(number))
                metrics = [*diagnosis.metrics, *metrics]
            if not noticed.disorder:  # else what went up seems to fall
                seen = alarms.observe(number, metrics)
                metrics, raised = [*metrics, *seen.metrics], [*seen.raised]
            run.refuse_moved("--out")
            tracker.write(number, metrics)
            record.lines += 1
            record.state = {**(judge.state() if judge is not None else {}), "alarms": alarms.state()}
            record.save_step(run.path)
            if step is not None:
                watch.step(step, metrics)
            for alarm in raised:
                watch.note(alarm.sentence())
    finally:
        tracker.close()
    if settings.on is None or not lacking or not all(lacking) or done:
        return stream, ""
    return stream, (
        f"Expected --on to name reward, outcome or a reward of {log.source}, found it in no step: "
        f"{lacking[0]}. Name one of these, or leave --on out. The other readings are in {run.path}."
    )


def _episodes(log: RecognisedLog, faults: Faults, tell: Tell) -> Iterator[LoggedEpisode]:
    for file in log.files.files:
        try:
            rows = rows_of(file, faults, tell, log.reader.columns)
        except OSError as error:
            found = f"{type(error).__name__}: {error.strerror}"
            faults.add(Location(file, 0), "the file that was there when the audit began", found)
            continue
        yield from log.reader.episodes(rows, faults)
    for file in log.files.failures:
        faults.aside[TRACELESS] += sum(traceless(row) for _, row in rows_of(file, faults, tell))


def _leave_nothing(folder: Path) -> None:
    for name in ("metrics.jsonl", RECORD, PROGRESS):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty: it was there before
        folder.rmdir()


def _write_verdict(run: RunFolder, record: AuditRecord, lost: str) -> None:
    """`lost`: why thoughts cannot be told apart (`Noticed.untagged`)."""
    read = [*record.found]
    if record.left_out["count"]:
        read.append(f"{counted(record.left_out['count'], 'line')} did not fit and were left out; see audit.json.")
    read += [f"Assumed: {sentence}" for sentence in record.assumed]
    said = conclusion(read_metrics(run.metrics), lost) if record.episodes else [SCALARS_ALONE]
    tree = {"sentences": said, "read": read, "regime": "", "figures": {}}
    write_whole(run.verdict, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit and its folder."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return RunFolder(self.path).report

    @property
    def verdict(self) -> tuple[str, ...]:
        """The sentences that head the page."""
        return stored_sentences(RunFolder(self.path).verdict)

    def metrics(self) -> list[StepMetrics]:
        """All metrics, one entry per measured step of the log."""
        return read_metrics(RunFolder(self.path).metrics)


def audit(
    log: Path | str,
    *,
    model: Path | str | None = None,
    out: Path | str | None = None,
    settings: AuditSettings | None = None,
    scalars: Iterable[Path | str] = (),
    trust: Iterable[str] = (),
    show: bool = True,
    take_over: bool = False,
) -> Audit:
    """Measure what a trainer logged: heedful, TRL, verl, verifiers, RAGEN, or plain JSON lines.

    Args:
        log: a file or a folder of rollouts, or a file of scalars; it is only read.
        model: a causal model (folder or Hugging Face name) that scores the thoughts; without one, what needs no model
            is measured.
        out: the audit's folder; by default `audits/<name>-<n>`. In the folder of an interrupted audit of the same log
            the audit continues.
        settings: everything else that can be set.
        scalars: files of scalars of the same run, such as `trainer_state.json`; joined by step.
        trust: models (a folder or a Hugging Face name) that may run code of their own. No log names code.
        show: print the progress.
        take_over: take over the folder from a process on another host that has ended.

    Raises ValueError, a sentence, where nothing can be read, or `out` holds another audit.
    """
    chosen = settings or AuditSettings()
    if model is not None:
        chosen = replace(chosen, model=str(model))
    progress = AuditProgress(SafeConsole(soft_wrap=True, quiet=not show))
    with trusting(trust):
        folder = None if out is None else Path(out)
        return Audit(
            measure_log(open_log(Path(log), chosen, [*map(Path, scalars)]), chosen, folder, progress, take_over)
        )
