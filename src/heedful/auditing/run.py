"""An audit from end to end: measure a log step by step and write the results.

Promise: every step is on disk before the next one is read. What could not be read is counted. A log of which nothing
could be read is an error, not an empty page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heedful.auditing.conclusion import conclusion
from heedful.auditing.judges import judge_of
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults, Location, LoggedEpisode, Tell
from heedful.auditing.measure import measure_step, spread_unknown
from heedful.auditing.recognised import RecognisedLog, counted
from heedful.auditing.record import PROGRESS, RECORD, AuditRecord, Fingerprints, new_folder, resume
from heedful.auditing.scoring import ModelJudge
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep, StepStream, joined
from heedful.boundary import listed, to_json
from heedful.diagnostics.alarms.watch import Alarm, Alarms
from heedful.report import write_report
from heedful.storage import RunFolder, advising, held, read_metrics, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric


class Watcher(Protocol):
    """Shows an audit to a person while it goes on."""

    def begin(self, size: int) -> None:
        """Reading begins; `size` bytes in all."""
        ...

    def step(self, step: LoggedStep, metrics: Sequence[Metric]) -> None:
        """A step was measured; `step.read` says how far into the log it is."""
        ...

    def note(self, sentence: str) -> None: ...


def measure_log(
    log: RecognisedLog, settings: AuditSettings, out: Path | None, watch: Watcher, take_over: bool = False
) -> Path:
    """Measure a log and write `metrics.jsonl`, `audit.json`, `verdict.json` and `report.html`. Returns their folder.

    `out` is a new folder, or that of the same audit to go on with; `None` claims `audits/<name>-<n>`. With `take_over`
    the lock of a process on another host is taken over.

    Raises:
        ValueError: nothing could be read, `out` holds another audit, or another process is at work there.
    """
    # Loaded first: a name that leads nowhere should cost neither time nor a folder.
    with judge_of(settings, log.tags, log.seed) as judge:
        prints = Fingerprints.of(log.files)
        fresh = _fresh_record(log, settings, prints)
        folder = new_folder(Path("audits"), log.source) if out is None else out
        if folder.exists() and not folder.is_dir():
            resume(folder, fresh)  # refuses a file
        with held(folder, watch.note, take_over), advising(f"heedful audit {log.source} --out {folder}, same settings"):
            record = resume(folder, fresh)
            watch.note(f"Writing to {folder}.")
            _measure(log, settings, folder, record, prints, judge, watch)
            write_report(folder)
    return folder


@dataclass(slots=True)
class _Noticed:
    """What is noticed on the way through the steps."""

    tagged: bool = False
    """A reply has closed its thought."""
    last_fingerprint: str = ""
    repeated: int = 0
    single: bool = True
    """No group has had two episodes."""
    highest: int = -1
    """The highest step so far."""
    disorder: str = ""
    """What is said of the first step that comes after a higher one."""

    def notice(self, step: LoggedStep) -> None:
        self.repeated += step.fingerprint == self.last_fingerprint
        self.last_fingerprint = step.fingerprint
        if step.number < self.highest and not self.disorder:
            self.disorder = (
                f"Steps are out of order: step {step.number} comes after step {self.highest}. From there on no alarm "
                "is judged. Sort the log by step."
            )
        self.highest = max(self.highest, step.number)
        self.single = self.single and all(len(group.trajectories) < 2 for group in step.groups)
        self.tagged = self.tagged or any(
            turn.reply.closed for group in step.groups for member in group.trajectories for turn in member.turns
        )


def _measure(
    log: RecognisedLog,
    settings: AuditSettings,
    folder: Path,
    record: AuditRecord,
    prints: Fingerprints,
    judge: ModelJudge | None,
    watch: Watcher,
) -> None:
    """Measure the steps that `record` does not know of, then say what only the whole log shows."""
    run, faults, noticed, alarms = RunFolder(folder, folder.stat()), Faults(), _Noticed(), Alarms()
    done: set[int] = set()
    if record.lines:
        done = {line.step for line in read_metrics(run.metrics)}
        watch.note(f"Going on with {folder}: {len(done)} steps are measured.")
        alarms.load_state(record.state["alarms"])
        if judge is not None:
            judge.load_state(record.state)
    record.save(folder)
    watch.begin(log.files.size)
    for file, sentence in log.files.refused:
        faults.add(Location(file, 0), "a file that can be read", sentence)

    position = 0

    def tell(more: int) -> None:
        nonlocal position
        position += more

    def noticing(steps: Iterable[LoggedStep]) -> Iterator[LoggedStep]:
        for step in steps:
            record.steps += 1
            record.groups += len(step.groups)
            record.episodes += step.episodes
            in_order = not noticed.disorder
            noticed.notice(step)
            if in_order and noticed.disorder:
                watch.note(noticed.disorder)
            yield step

    steps = StepStream(_episodes(log, faults, tell), faults, lambda: position)
    tracker = JsonlTracker(run.metrics)
    lacking: list[str] = []  # of each step: why it does not hold what --on names
    try:
        for place, step in enumerate(joined(noticing(steps), settings.join)):
            if step.number in done:
                continue
            absent = spread_unknown(step, log.on, {}).get("signal/mixed", "")
            if absent and settings.on is not None and not (lacking or record.lines):
                watch.note(f"Step {step.number}: {absent}.")
            lacking.append(absent)
            diagnosis = measure_step(log, settings, judge, place, step, noticed.tagged)
            diagnosis.store_scores(run.scores(step.number))
            metrics, raised = diagnosis.metrics, list[Alarm]()
            if not noticed.disorder:  # else what went up seems to fall
                seen = alarms.observe(step.number, metrics)
                metrics, raised = [*metrics, *seen.metrics], [*seen.raised]
            run.refuse_moved("--out")
            tracker.write(step.number, metrics)
            record.lines += 1
            record.state = {**(judge.state() if judge is not None else {}), "alarms": alarms.state()}
            record.save_step(folder)
            watch.step(step, metrics)
            for alarm in raised:
                watch.note(alarm.sentence())
    finally:
        tracker.close()

    if not record.steps:
        for name in ("metrics.jsonl", RECORD, PROGRESS):
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty: it was there before
            folder.rmdir()
        raise ValueError(
            f"Expected episodes in {log.source} ({log.format}), found none that could be read: "
            f"{faults.count} lines do not fit ({'; '.join(map(str, faults.kept[:3]))})."
        )
    run.refuse_moved("--out")
    changed = prints.changed()
    _say_what_the_log_shows(log, settings, record, noticed, steps.interleaved, faults, prints.repeated(), changed)
    if judge is not None:
        if judge.retokenised:
            record.assumed.append(
                f"Prompts and thoughts were tokenised from text by {judge.name}; a thought without its closing tag is "
                "scored without an end, since text does not show the end-of-turn token."
            )
        record.found[:0] = judge.warnings()
        for sentence in judge.warnings():
            watch.note(sentence)
    record.complete = not changed
    record.count(faults)
    record.save(folder)
    _write_verdict(run, record)
    if settings.on is not None and lacking and all(lacking) and not done:
        raise ValueError(
            f"Expected --on to name reward, outcome or a reward of {log.source}, found it in no step: "
            f"{lacking[0]}. Name one of these, or leave --on out. The other readings are in {folder}."
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


def _fresh_record(log: RecognisedLog, settings: AuditSettings, prints: Fingerprints) -> AuditRecord:
    knowledge = log.reader.knowledge
    assumed = list(knowledge.assumed)
    if settings.scores and not knowledge.temperature:
        given = "as --temperature says" if settings.temperature else "the log does not hold it"
        assumed.append(f"Temperature of sampling: {settings.temperature or 1:g} ({given}).")
    if settings.scores:
        assumed.append("Sampling was not truncated (top-p 1, no top-k): no log says so.")
    resolved = {"tags": [log.tags.open, log.tags.close], "on": log.on, "seed": log.seed}
    return AuditRecord(
        source=str(log.source),
        name=log.source.resolve().name,
        format=log.format,
        files=prints.listed,
        settings={**to_json(settings), **resolved},
        aside=list(log.files.aside),
        found=list(knowledge.found),
        assumed=assumed,
    )


def _say_what_the_log_shows(
    log: RecognisedLog,
    settings: AuditSettings,
    record: AuditRecord,
    noticed: _Noticed,
    interleaved: int,
    faults: Faults,
    repeated: Sequence[str],
    changed: Sequence[str],
) -> None:
    """The sentences of what was found and assumed, which head the page."""
    record.found.append(
        f"{record.format}: {counted(len(log.files.files), 'file')}, {counted(record.steps, 'step')}, "
        f"{counted(record.episodes, 'episode')} in {counted(record.groups, 'group')}."
    )
    if settings.join > 1:
        record.found.append(f"Up to {settings.join} steps were read as one, under the number of the first (--join).")
    if interleaved:
        record.found.append(f"Steps are interleaved: {interleaved} episodes came after another step's.")
    if noticed.disorder:
        record.found.append(noticed.disorder)
    if noticed.repeated and log.foreign:
        record.found.append(
            f"{counted(noticed.repeated, 'step')} {'repeats' if noticed.repeated == 1 else 'repeat'} the texts of the "
            "step before: the trainer logged a batch again, and these readings are no new evidence."
        )
    if noticed.single:
        record.assumed.append("No two episodes share a group, so nothing can be said of spread within groups.")
    if not noticed.tagged and log.foreign:
        record.assumed.append(
            f"No reply holds {log.tags.close}: the whole reply was taken as the thought. If thoughts end "
            "otherwise, say so with --tags."
        )
    record.found += [f"{counted(count, 'row')} {what} left out." for what, count in faults.aside.items()]
    if repeated:
        record.found.append(
            f"Files hold the same bytes: {listed(repeated)}. If they are copies, their rows are no new evidence, "
            "and the judge of words knows their thoughts: audit the log without them."
        )
    if changed:
        record.found.append(
            f"The log changed while it was read: {listed(changed)}. These numbers are of no whole log. Audit it "
            "again with another --out when its trainer has ended."
        )


def _write_verdict(run: RunFolder, record: AuditRecord) -> None:
    read = [*record.found]
    if record.left_out["count"]:
        read.append(f"{counted(record.left_out['count'], 'line')} did not fit and were left out; see audit.json.")
    read += [f"Assumed: {sentence}" for sentence in record.assumed]
    tree = {"sentences": conclusion(read_metrics(run.metrics)), "read": read, "regime": "", "figures": {}}
    write_whole(run.verdict, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
