"""An audit from end to end: measure a log step by step and write the results.

Promise: every step is on disk before the next one is read. What could not be read is counted. A log of which nothing
could be read is an error, not an empty page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.auditing.pipeline import Pipeline
from heedful.auditing.reading import Reading
from heedful.auditing.recognised import RecognisedLog, open_log
from heedful.auditing.record import RECORD, AuditRecord, new_folder, resume
from heedful.auditing.scalars import History, mapped
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import StartOver
from heedful.boundary import listed, trusting
from heedful.console import SafeConsole
from heedful.report.record import stored_sentences
from heedful.storage import RunFolder, StepMetrics, advising, held, read_metrics
from heedful.watching.sinks import Sink
from heedful.watching.terminal import Terminal

if TYPE_CHECKING:
    from heedful.auditing.scoring import ModelJudge


def measure_log(
    log: RecognisedLog, settings: AuditSettings, out: Path | None, sinks: Sequence[Sink] = (), take_over: bool = False
) -> Path:
    """Measure a log and write `metrics.jsonl`, `audit.json`, `verdict.json` and `report.html`. Returns their folder.

    `out` is a new folder, or that of the same audit to go on with; `None` claims `audits/<name>-<n>`. With `take_over`
    the lock of a process on another host is taken over.

    Raises:
        ValueError: nothing could be read, `out` holds another audit, or another process is at work there.
    """
    history = History.of(log.files.scalars, mapped(settings.map), log.first)
    # Loaded first: a name that leads nowhere should cost neither time nor a folder.
    with judging(log, settings) as judge:
        folder = new_folder(Path("audits"), log.source) if out is None else out
        resume_from = AuditRecord.of(log, settings)
        if folder.exists() and not folder.is_dir():
            resume(folder, resume_from)  # refuses a file

        def note(sentence: str) -> None:
            for sink in sinks:
                sink.note(sentence)

        advice = advising(f"heedful audit {log.source} --out {folder}, same settings")
        with held(folder, note, take_over), advice:
            there = (folder / RECORD).exists()
            record = resume(folder, resume_from, log.files)
            for sink in sinks:
                sink.begin(folder)
            goes_on = f"Going on with {folder}: steps that are measured are read alone."
            note(goes_on if there else f"Writing to {folder}.")
            while True:
                record.scalars = history.read
                record.save(folder)
                pipeline = Pipeline(log, settings, folder, record, sinks, judge)
                reading = Reading(pipeline, history, log.files.files)
                try:
                    reading.run()
                    break
                except StartOver:
                    record = resume(folder, AuditRecord.of(log, settings))
                finally:
                    pipeline.close()
            if not pipeline.noticed.steps and not history.steps:
                for name in ("metrics.jsonl", RECORD):
                    (folder / name).unlink(missing_ok=True)
                with suppress(OSError):  # not empty: it was there before
                    folder.rmdir()
                raise ValueError(
                    f"Expected episodes in {log.source} ({log.format}), found none that could be read: "
                    f"{reading.faults.count} lines do not fit ({'; '.join(map(str, reading.faults.kept[:3]))})."
                )
            conclude(reading, there)
    return folder


def judging(log: RecognisedLog, settings: AuditSettings) -> AbstractContextManager[ModelJudge | None]:
    """The model that the settings name, if they name one."""
    if not settings.scores:
        return nullcontext()
    from heedful.auditing.scoring import judge_of

    return judge_of(settings, log.tags, log.seed, log.own)


def conclude(reading: Reading, there: bool = False, why: str = "") -> None:
    """Write what the whole log shows, the verdict and the page.

    `there`: steps were measured before. Raises ValueError where --on names what is in no step.
    """
    pipeline, settings = reading.pipeline, reading.pipeline.settings
    record, folder, source = pipeline.record, pipeline.folder, pipeline.log.source
    record.files = reading.prints.listed
    found, changed = reading.found(), reading.prints.changed()
    if changed:
        found.append(
            f"The log changed while it was read: {listed(changed)}. The same command with --out {folder} goes on."
        )
    pipeline.end(why, found, reading.faults, complete=not changed)
    absent = pipeline.absent
    if settings.on is not None and absent and all(absent) and not there:
        raise ValueError(
            f"Expected --on to name reward, outcome or a reward of {source}, found it in no step: "
            f"{absent[0]}. Name one of these, or leave --on out. The other readings are in {folder}."
        )


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
    with trusting(trust):
        opened = open_log(Path(log), chosen, [*map(Path, scalars)])
        terminal = Terminal(SafeConsole(soft_wrap=True, quiet=not show), opened.files.size)
        with closing(terminal):
            return Audit(measure_log(opened, chosen, None if out is None else Path(out), [terminal], take_over))
