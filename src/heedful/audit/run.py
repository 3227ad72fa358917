"""An audit from end to end: find the log, recognise it, measure step by step, write what was found.

Promise: every step is on disk before the next one is read; what could not be read is counted, and a log of which
nothing could be read is an error, not an empty page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from heedful.audit.files import LogFiles, find_files, rows_of
from heedful.audit.measure import judged, sampled_groups, step_metrics
from heedful.audit.readers import FORMATS, Hints, Reader, recognise
from heedful.audit.record import RECORD, AuditRecord, claim_folder, fingerprints, resume
from heedful.audit.records import Faults, LoggedEpisode, Place, Row
from heedful.audit.scoring import ModelJudge
from heedful.audit.settings import AuditSettings, OwnRun
from heedful.audit.steps import LoggedStep, StepStream
from heedful.configuration import to_json
from heedful.diagnostics.alarms import Alarms
from heedful.diagnostics.strategies import input_to_action
from heedful.diagnostics.thoughts import ThoughtTags
from heedful.diagnostics.unknown import withheld
from heedful.report import write_report
from heedful.seeds import derive, stream
from heedful.storage import RunFolder, read_metrics, write_scores, write_whole
from heedful.trackers import JsonlTracker
from heedful.types import Metric

SAMPLE = 64
"""Rows from which a log's format and columns are understood."""


class Watcher(Protocol):
    """Shows an audit to a person while it goes on."""

    def begin(self, size: int) -> None:
        """Reading begins; `size` bytes in all."""
        ...

    def step(self, step: LoggedStep, metrics: Sequence[Metric]) -> None:
        """A step was measured; `step.read` says how far into the log it is."""
        ...

    def note(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RecognisedLog:
    """A log whose format is known, with the reader for it."""

    source: Path
    files: LogFiles
    format: str
    reader: Reader
    own: OwnRun | None
    on: str
    tags: ThoughtTags
    seed: int


@dataclass(slots=True)
class _Tally:
    """What is noticed on the way."""

    tags_seen: bool = False
    last_fingerprint: str = ""
    repeated: int = 0
    single: bool = True
    """No group has had two episodes."""


def open_log(source: Path, settings: AuditSettings) -> RecognisedLog:
    """Recognise a log by its first rows.

    Raises:
        ValueError: nothing there, nothing readable, an unknown format, or files of several formats.
    """
    files = find_files(source)
    own = OwnRun.of(source)
    tags = ThoughtTags(*settings.tags) if settings.tags else own.tags if own else ThoughtTags()
    name, sample, files = _one_format(source, files)
    hints = Hints(tags, settings.temperature or 1.0, settings.rewards, settings.success)
    reader = FORMATS[name].begin(sample, hints)
    own = own if reader.knowledge.own else None
    scored = "success/rate" not in reader.knowledge.unknown and reader.knowledge.own
    on = settings.on or (own.on if own else "outcome" if scored else "reward")
    seed = settings.seed if settings.seed is not None else own.seed if own else 0
    return RecognisedLog(source, files, name, reader, own, on, tags, seed)


def audit(log: RecognisedLog, settings: AuditSettings, out: Path | None, watch: Watcher) -> Path:
    """Measure a log and write `metrics.jsonl`, `audit.json`, `verdict.json` and `report.html`; returns their folder.

    `out` is a new folder, or that of the same audit to go on with; `None` claims `audits/<name>-<n>`.

    Raises:
        ValueError: nothing could be read, or `out` holds another audit.
    """
    # Loaded first: a name that leads nowhere should cost neither time nor a folder.
    judge = None
    if settings.model is not None:
        judge = ModelJudge.load(settings.model, settings, log.tags, log.seed)
    fresh = _fresh_record(log, settings)
    folder = claim_folder(Path("audits"), log.source) if out is None else out
    record = resume(folder, fresh)
    watch.note(f"Writing to {folder}.")
    measuring = _Audit(log, settings, folder, record, judge, watch)
    measuring.run()
    write_report(folder)
    return folder


@dataclass(slots=True)
class _Audit:
    """One audit in progress."""

    log: RecognisedLog
    settings: AuditSettings
    folder: Path
    record: AuditRecord
    judge: ModelJudge | None
    watch: Watcher
    faults: Faults = field(default_factory=Faults)
    tally: _Tally = field(default_factory=_Tally)
    alarms: Alarms = field(default_factory=Alarms)
    position: int = 0
    """Bytes read so far."""

    def run(self) -> None:
        run, done = RunFolder(self.folder), self._done()
        if self.judge is not None:
            self.judge.load_state(self.record.state)
        if "alarms" in self.record.state:  # an audit that goes on
            self.alarms.load_state(self.record.state["alarms"])
        self.record.save(self.folder)
        self.watch.begin(self.log.files.size)
        for file, sentence in self.log.files.refused:
            self.faults.add(Place(file, 0), "a file that can be read", sentence)
        steps = StepStream(self._episodes(), self.faults, lambda: self.position)
        tracker = JsonlTracker(run.metrics)
        try:
            for place, step in enumerate(steps):
                self._notice(step)
                if step.number in done:
                    continue
                metrics = self._measure(place, step)
                seen = self.alarms.observe(step.number, metrics)
                metrics += seen.metrics
                tracker.write(step.number, metrics)
                self._save(complete=False)
                self.watch.step(step, metrics)
                for alarm in seen.raised:
                    self.watch.note(alarm.sentence())
        finally:
            tracker.close()
        if not self.record.steps:
            self._refuse_empty()
        self._conclude(steps)

    def _done(self) -> set[int]:
        if not self.record.lines:
            return set()
        done = {line.step for line in read_metrics(RunFolder(self.folder).metrics)}
        self.watch.note(f"Going on with {self.folder}: {len(done)} steps are measured.")
        return done

    def _episodes(self) -> Iterator[LoggedEpisode]:
        for file in self.log.files.files:
            yield from self.log.reader.episodes(rows_of(file, self.faults, self._advance), self.faults)

    def _advance(self, more: int) -> None:
        self.position += more

    def _notice(self, step: LoggedStep) -> None:
        record, tally = self.record, self.tally
        record.steps += 1
        record.groups += len(step.groups)
        record.episodes += step.episodes
        tally.repeated += step.fingerprint == tally.last_fingerprint
        tally.last_fingerprint = step.fingerprint
        tally.single = tally.single and all(len(group.trajectories) < 2 for group in step.groups)
        tally.tags_seen = tally.tags_seen or any(
            turn.reply.closed for group in step.groups for member in group.trajectories for turn in member.turns
        )

    def _measure(self, place: int, step: LoggedStep) -> list[Metric]:
        unknown = dict(self.log.reader.knowledge.unknown)
        if not self.tally.tags_seen and not self.log.reader.knowledge.own:
            unknown["format/closed_rate"] = (
                f"no reply so far holds {self.log.tags.close}: never asked for, or lost in decoding (--tags)"
            )
        due = place % self.settings.every == 0
        if not due:
            return withheld(step_metrics(step, self.log.on), unknown)
        rng = np.random.default_rng(derive(self.log.seed, "text", step.number))
        texts = judged(step.groups, self.log.tags, self.settings.prompts, rng)
        # Named as in training, so that a run's own numbers come out again.
        rng = np.random.default_rng(derive(self.log.seed, "actions", step.number, ""))
        texts += input_to_action(step.groups, rng)
        if self.judge is None:
            return [*withheld(step_metrics(step, self.log.on), unknown), *texts]
        return [*self._scored(step, unknown), *texts]

    def _scored(self, step: LoggedStep, unknown: dict[str, str]) -> list[Metric]:
        """With a model: the lengths of its tokens, too, where the log has none."""
        assert self.judge is not None
        lengths = {name: why for name, why in unknown.items() if name.startswith("length/") and name.endswith("tokens")}
        metrics = withheld(step_metrics(step, self.log.on), unknown)
        rng = None if self.log.own else stream(self.log.seed, "audit", step.number)
        groups = sampled_groups(step.groups, self.settings.prompts, self.settings.thoughts, rng)
        groups = self.judge.with_ids(groups, step.messages)
        if lengths:
            read = LoggedStep(step.number, tuple(groups), None, {}, "")
            found = {metric.name: metric for metric in step_metrics(read, self.log.on)}
            metrics = [found[metric.name] if metric.name in lengths else metric for metric in metrics]
        scored = self.judge.measure(step.number, groups, self._sampled_by_the_model(step))
        if scored.scores is not None and scored.thoughts is not None:
            texts = scored.thoughts.thought_texts_M, scored.thoughts.prompt_texts_N
            write_scores(RunFolder(self.folder).scores(step.number), scored.scores, *texts)
        return [*metrics, *scored.metrics]

    def _sampled_by_the_model(self, step: LoggedStep) -> bool:
        own, model = self.log.own, self.settings.model
        version = own.version_of(model) if own and model else None
        return version is not None and all(
            member.policy_version == version for group in step.groups for member in group.trajectories
        )

    def _save(self, complete: bool) -> None:
        record = self.record
        record.lines += not complete
        record.complete = complete
        record.state = {**(self.judge.state() if self.judge is not None else {}), "alarms": self.alarms.state()}
        record.count(self.faults)
        record.save(self.folder)

    def _conclude(self, steps: StepStream) -> None:
        """Say what only the whole log shows, and write the sentences that head the page."""
        record, tally = self.record, self.tally
        record.found.append(
            f"{record.format}: {_counted(len(self.log.files.files), 'file')}, {_counted(record.steps, 'step')}, "
            f"{_counted(record.episodes, 'episode')} in {_counted(record.groups, 'group')}."
        )
        if steps.interleaved:
            record.found.append(f"Steps are interleaved: {steps.interleaved} episodes came after another step's.")
        if tally.repeated:
            record.found.append(
                f"{_counted(tally.repeated, 'step')} repeat the texts of the step before: the trainer logged a batch "
                "again, and these readings are no new evidence."
            )
        if tally.single:
            record.assumed.append("No two episodes share a group, so nothing can be said of spread within groups.")
        if not tally.tags_seen:
            record.assumed.append(
                f"No reply holds {self.log.tags.close}: the whole reply was taken as the thought. If thoughts end "
                "otherwise, say so with --tags."
            )
        if self.judge is not None:
            record.assumed += _of_the_model(self.judge)
        self._save(complete=True)
        _write_verdict(RunFolder(self.folder), record)

    def _refuse_empty(self) -> None:
        for name in ("metrics.jsonl", RECORD):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty: it was there before
            self.folder.rmdir()
        first = "; ".join(map(str, self.faults.kept[:3]))
        raise ValueError(
            f"Expected episodes in {self.log.source} ({self.log.format}), found none that could be read: "
            f"{self.faults.count} lines do not fit ({first})."
        )


def _one_format(source: Path, files: LogFiles) -> tuple[str, list[Row], LogFiles]:
    """The format that all files share, the first rows of the first of them, and the files without strangers."""
    formats: dict[str, list[Path]] = {}
    sample: list[Row] = []
    faults, strangers = Faults(), []
    for file in files.files:
        rows = [row for _, row in islice(rows_of(file, faults, _nobody), SAMPLE)]
        name = recognise(rows)
        if name is None:
            strangers += [(file, rows)]
            continue
        formats.setdefault(name, []).append(file)
        sample = sample or rows
    if len(formats) > 1:
        shown = " and ".join(f"{name} ({_counted(len(of), 'file')}: {of[0].name})" for name, of in formats.items())
        raise ValueError(f"Expected one log in {source}, found {shown}. Name one file, or a folder that holds one log.")
    if not formats:
        file, rows = strangers[0]
        found = f"columns {', '.join(rows[0])}" if rows else "; ".join(map(str, faults.kept[:2])) or "no rows"
        raise ValueError(
            f"Expected a log that heedful can read ({', '.join(FORMATS)}), found in {file}: {found}. docs/audit.md "
            "says which columns each format needs, and how to write your own."
        )
    ((name, known),) = formats.items()
    aside = (*files.aside, *(file.name for file, _ in strangers))
    return name, sample, replace(files, files=tuple(known), aside=aside)


def _fresh_record(log: RecognisedLog, settings: AuditSettings) -> AuditRecord:
    knowledge = log.reader.knowledge
    assumed = list(knowledge.assumed)
    if settings.model and not knowledge.temperature:
        given = "as --temperature says" if settings.temperature else "the log does not hold it"
        assumed.append(f"Temperature of sampling: {settings.temperature or 1:g} ({given}).")
    if settings.model:
        assumed.append("Sampling was not truncated (top-p 1, no top-k): no log says so.")
    resolved = {"tags": [log.tags.open, log.tags.close], "on": log.on, "seed": log.seed}
    return AuditRecord(
        source=str(log.source),
        name=log.source.resolve().name,
        format=log.format,
        files=fingerprints(log.files),
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
    sentences = [*record.found]
    if record.left_out["count"]:
        sentences.append(f"{_counted(record.left_out['count'], 'line')} did not fit and were left out; see audit.json.")
    sentences += [f"Assumed: {sentence}" for sentence in record.assumed]
    tree = {"sentences": sentences, "regime": "", "figures": {}}
    write_whole(run.verdict, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _nobody(more: int) -> None:
    """Nobody is told how much of a file its recognition reads."""
