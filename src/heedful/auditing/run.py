"""An audit from end to end: measure a log step by step and write the results.

Promise: every step is on disk before the next one is read. What could not be read is counted. A log of which nothing
could be read is an error, not an empty page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from heedful.auditing.conclusion import conclusion
from heedful.auditing.judges import judge_of
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults, Location, LoggedEpisode
from heedful.auditing.logs.values import names
from heedful.auditing.measure import judged, sampled_groups, spread_unknown, step_metrics
from heedful.auditing.recognised import RecognisedLog, counted
from heedful.auditing.record import PROGRESS, RECORD, AuditRecord, Fingerprints, new_folder, resume
from heedful.auditing.scoring import ModelJudge
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep, StepStream, joined
from heedful.boundary import to_json
from heedful.diagnostics.actions.strategies import input_to_action
from heedful.diagnostics.alarms.watch import Alarm, Alarms
from heedful.diagnostics.names import unavailable
from heedful.report import write_report
from heedful.seeds import derive, stream
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


@dataclass(slots=True)
class _Tally:
    """What is noticed on the way."""

    tags_seen: bool = False
    last_fingerprint: str = ""
    repeated: int = 0
    single: bool = True
    """No group has had two episodes."""
    highest: int = -1
    """The highest step so far."""
    disorder: str = ""
    """What is said of the first step that comes after a higher one."""


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
        return _measure(log, settings, out, watch, judge, take_over)


def _measure(
    log: RecognisedLog,
    settings: AuditSettings,
    out: Path | None,
    watch: Watcher,
    judge: ModelJudge | None,
    take_over: bool,
) -> Path:
    prints = Fingerprints.of(log.files)
    fresh = _fresh_record(log, settings, prints)
    folder = new_folder(Path("audits"), log.source) if out is None else out
    if folder.exists() and not folder.is_dir():
        resume(folder, fresh)  # refuses a file
    with held(folder, watch.note, take_over), advising(f"heedful audit {log.source} --out {folder}, same settings"):
        record = resume(folder, fresh)
        watch.note(f"Writing to {folder}.")
        _Audit(log, settings, folder, record, prints, judge, watch).run()
        write_report(folder)
    return folder


@dataclass(slots=True)
class _Audit:
    """One audit in progress."""

    log: RecognisedLog
    settings: AuditSettings
    folder: Path
    record: AuditRecord
    prints: Fingerprints
    judge: ModelJudge | None
    watch: Watcher
    faults: Faults = field(default_factory=Faults)
    tally: _Tally = field(default_factory=_Tally)
    alarms: Alarms = field(default_factory=Alarms)
    position: int = 0
    """Bytes read so far."""

    def run(self) -> None:
        run, done = RunFolder(self.folder, self.folder.stat()), self._done()
        self._load_state()
        self.record.save(self.folder)
        self.watch.begin(self.log.files.size)
        for file, sentence in self.log.files.refused:
            self.faults.add(Location(file, 0), "a file that can be read", sentence)
        steps = StepStream(self._episodes(), self.faults, lambda: self.position)
        tracker = JsonlTracker(run.metrics)
        lacking: list[str] = []  # of each step: why it does not hold what --on names
        try:
            for place, step in enumerate(joined(self._noticed(steps), self.settings.join)):
                if step.number in done:
                    continue
                absent = spread_unknown(step, self.log.on, {}).get("signal/mixed", "")
                if absent and self.settings.on is not None and not (lacking or self.record.lines):
                    self.watch.note(f"Step {step.number}: {absent}.")
                lacking.append(absent)
                metrics = self._measure(place, step)
                raised: Sequence[Alarm] = ()
                if not self.tally.disorder:  # else what went up seems to fall
                    seen = self.alarms.observe(step.number, metrics)
                    metrics, raised = [*metrics, *seen.metrics], seen.raised
                run.refuse_moved("--out")
                tracker.write(step.number, metrics)
                self._save_step()
                self.watch.step(step, metrics)
                for alarm in raised:
                    self.watch.note(alarm.sentence())
        finally:
            tracker.close()
        if not self.record.steps:
            self._refuse_empty()
        run.refuse_moved("--out")
        self._conclude(steps)
        if self.settings.on is not None and lacking and all(lacking) and not done:
            raise ValueError(
                f"Expected --on to name reward, outcome or a reward of {self.log.source}, found it in no step: "
                f"{lacking[0]}. Name one of these, or leave --on out. The other readings are in {self.folder}."
            )

    def _load_state(self) -> None:
        """Take up what an interrupted audit knew."""
        state = self.record.state
        try:
            if self.judge is not None and "zscores" in state:
                self.judge.load_state(state)
            if "alarms" in state:
                self.alarms.load_state(state["alarms"])
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"Expected in `state` of {self.folder / RECORD} or {PROGRESS} what the audit knew, found damaged "
                f"values ({type(error).__name__}: {error}). Give another --out to begin again."
            ) from error

    def _done(self) -> set[int]:
        if not self.record.lines:
            return set()
        done = {line.step for line in read_metrics(RunFolder(self.folder).metrics)}
        self.watch.note(f"Going on with {self.folder}: {len(done)} steps are measured.")
        return done

    def _episodes(self) -> Iterator[LoggedEpisode]:
        columns = self.log.reader.columns
        for file in self.log.files.files:
            try:
                rows = rows_of(file, self.faults, self._advance, columns)
            except OSError as error:
                found = f"{type(error).__name__}: {error.strerror}"
                self.faults.add(Location(file, 0), "the file that was there when the audit began", found)
                continue
            yield from self.log.reader.episodes(rows, self.faults)

    def _advance(self, more: int) -> None:
        self.position += more

    def _noticed(self, steps: Iterable[LoggedStep]) -> Iterator[LoggedStep]:
        for step in steps:
            self._notice(step)
            yield step

    def _notice(self, step: LoggedStep) -> None:
        record, tally = self.record, self.tally
        record.steps += 1
        record.groups += len(step.groups)
        record.episodes += step.episodes
        tally.repeated += self.log.foreign and step.fingerprint == tally.last_fingerprint
        tally.last_fingerprint = step.fingerprint
        if step.number < tally.highest and not tally.disorder:
            tally.disorder = (
                f"Steps are out of order: step {step.number} comes after step {tally.highest}. From there on no alarm "
                "is judged. Sort the log by step."
            )
            self.watch.note(tally.disorder)
        tally.highest = max(tally.highest, step.number)
        tally.single = tally.single and all(len(group.trajectories) < 2 for group in step.groups)
        tally.tags_seen = tally.tags_seen or any(
            turn.reply.closed for group in step.groups for member in group.trajectories for turn in member.turns
        )

    def _measure(self, place: int, step: LoggedStep) -> list[Metric]:
        unknown = spread_unknown(step, self.log.on, self.log.unknown)
        if not self.tally.tags_seen and self.log.foreign:
            unknown["format/closed_rate"] = (
                f"no reply so far holds {self.log.tags.close}: never asked for, or lost in decoding (--tags)"
            )
        due = place % self.settings.every == 0
        if not due:
            return unavailable(step_metrics(step, self.log.on), unknown)
        rng = np.random.default_rng(derive(self.log.seed, "text", step.number))
        texts = judged(step.groups, self.log.tags, self.settings.prompts if self.log.foreign else None, rng)
        texts.append(input_to_action(step.groups))
        if self.judge is None:
            return [*unavailable(step_metrics(step, self.log.on), unknown), *texts]
        return [*self._scored(step, unknown), *texts]

    def _scored(self, step: LoggedStep, unknown: dict[str, str]) -> list[Metric]:
        """With a model: the lengths of its tokens, too, where the log has none."""
        assert self.judge is not None
        lengths = {name: why for name, why in unknown.items() if name.startswith("length/") and name.endswith("tokens")}
        metrics = unavailable(step_metrics(step, self.log.on), unknown)
        rng = None if self.log.own else stream(self.log.seed, "audit", step.number)
        groups = sampled_groups(step.groups, self.settings.prompts, self.settings.thoughts, rng)
        groups = self.judge.with_ids(groups, step.messages)
        if lengths and self.log.foreign:
            read = LoggedStep(step.number, tuple(groups), None, {}, "")
            found = {metric.name: metric for metric in step_metrics(read, self.log.on)}
            metrics = [found[metric.name] if metric.name in lengths else metric for metric in metrics]
        scored = self.judge.measure(step.number, groups, self._sampled_by_the_model(step))
        scored.store_scores(RunFolder(self.folder).scores(step.number))
        return [*metrics, *scored.metrics]

    def _sampled_by_the_model(self, step: LoggedStep) -> bool:
        own, model = self.log.own, self.settings.model
        # Text alone may be read otherwise than it was sampled.
        version = own.version_of(model) if own and model and self.log.reader.knowledge.own else None
        return version is not None and all(
            member.policy_version == version for group in step.groups for member in group.trajectories
        )

    def _save_step(self) -> None:
        self.record.lines += 1
        self.record.state = {**(self.judge.state() if self.judge is not None else {}), "alarms": self.alarms.state()}
        self.record.save_step(self.folder)

    def _conclude(self, steps: StepStream) -> None:
        """Say what only the whole log shows, and write the sentences that head the page."""
        record, tally = self.record, self.tally
        record.found.append(
            f"{record.format}: {counted(len(self.log.files.files), 'file')}, {counted(record.steps, 'step')}, "
            f"{counted(record.episodes, 'episode')} in {counted(record.groups, 'group')}."
        )
        if self.settings.join > 1:
            record.found.append(
                f"Up to {self.settings.join} steps were read as one, under the number of the first (--join)."
            )
        if steps.interleaved:
            record.found.append(f"Steps are interleaved: {steps.interleaved} episodes came after another step's.")
        if tally.disorder:
            record.found.append(tally.disorder)
        if tally.repeated:
            record.found.append(
                f"{counted(tally.repeated, 'step')} {'repeats' if tally.repeated == 1 else 'repeat'} the texts of the "
                "step before: the trainer logged a batch again, and these readings are no new evidence."
            )
        if tally.single:
            record.assumed.append("No two episodes share a group, so nothing can be said of spread within groups.")
        if not tally.tags_seen and self.log.foreign:
            record.assumed.append(
                f"No reply holds {self.log.tags.close}: the whole reply was taken as the thought. If thoughts end "
                "otherwise, say so with --tags."
            )
        record.found += [f"{counted(count, 'row')} {what} left out." for what, count in self.faults.aside.items()]
        if self.judge is not None:
            record.assumed += _of_the_model(self.judge)
            warned = self.judge.warnings()
            record.found[:0] = warned
            for sentence in warned:
                self.watch.note(sentence)
        repeated = self.prints.repeated()
        if repeated:
            record.found.append(
                f"Files hold the same bytes: {names(repeated)}. If they are copies, their rows are no new evidence, "
                "and the judge of words knows their thoughts: audit the log without them."
            )
        changed = self.prints.changed()
        if changed:
            record.found.append(
                f"The log changed while it was read: {names(changed)}. These numbers are of no whole log. Audit it "
                "again with another --out when its trainer has ended."
            )
        record.complete = not changed
        record.count(self.faults)
        record.save(self.folder)
        _write_verdict(RunFolder(self.folder), record)

    def _refuse_empty(self) -> None:
        for name in ("metrics.jsonl", RECORD, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty: it was there before
            self.folder.rmdir()
        first = "; ".join(map(str, self.faults.kept[:3]))
        raise ValueError(
            f"Expected episodes in {self.log.source} ({self.log.format}), found none that could be read: "
            f"{self.faults.count} lines do not fit ({first})."
        )


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


def _of_the_model(judge: ModelJudge) -> Iterable[str]:
    if judge.retokenised:
        yield (
            f"Prompts and thoughts were tokenised from text by {judge.name}; a thought without its closing tag is "
            "scored without an end, since text does not show the end-of-turn token."
        )


def _write_verdict(run: RunFolder, record: AuditRecord) -> None:
    read = [*record.found]
    if record.left_out["count"]:
        read.append(f"{counted(record.left_out['count'], 'line')} did not fit and were left out; see audit.json.")
    read += [f"Assumed: {sentence}" for sentence in record.assumed]
    tree = {"sentences": conclusion(read_metrics(run.metrics)), "read": read, "regime": "", "figures": {}}
    write_whole(run.verdict, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
