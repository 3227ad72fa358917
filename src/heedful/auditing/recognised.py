"""The kind of a log: its files, its format, the run that it belongs to.

Nothing is measured here. A log that cannot be recognised ends in a sentence that says what was found instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from heedful.auditing.logs.files import LogFiles, find_files, rows_of
from heedful.auditing.logs.records import Faults, Knowledge, Row
from heedful.auditing.readers import FORMATS, Hints, Reader, recognise
from heedful.auditing.settings import AuditSettings, OwnRun, refuse_unreadable_runs
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.names import SPREAD_METRICS, SUCCESS_METRICS
from heedful.storage import is_run

SAMPLE = 64
"""Rows from which a log's format and columns are understood."""


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
    unknown: Mapping[str, str]
    """The metrics that the log cannot give, each with the reason."""

    @property
    def foreign(self) -> bool:
        """The rows are another trainer's alone."""
        return not (self.reader.knowledge.own or self.reader.knowledge.numbered)


def open_log(source: Path, settings: AuditSettings) -> RecognisedLog:
    """Recognise a log by its first rows.

    Raises:
        ValueError: nothing there, nothing readable, an unknown format, or files of several formats.
    """
    files = find_files(source)
    own = OwnRun.of(source)
    tags = ThoughtTags(*settings.tags) if settings.tags else own.tags if own else ThoughtTags()
    name, sample, files = _one_format(source, files)
    if settings.rewards and not FORMATS[name].SUMS:
        raise ValueError(
            f"Expected no --rewards for {name}, whose reward is that of the log, found {listed(settings.rewards)} for "
            f"{source}. Leave it out."
        )
    weights = own.reward_weights if own else {}
    hints = Hints(tags, settings.temperature or 1.0, settings.rewards, settings.success, weights)
    reader = FORMATS[name].begin(sample, hints)
    knowledge = reader.knowledge
    ours = knowledge.own or knowledge.numbered
    if ours and own is None:
        refuse_unreadable_runs(source)
    own = own if ours else None
    by_outcome = knowledge.own or ("reward/mean" in knowledge.unknown and not knowledge.rewarded)
    on = settings.on or (own.on if own else _values(knowledge.unknown, by_outcome))
    seed = settings.seed if settings.seed is not None else own.seed if own else 0
    unknown = _unknown(knowledge, own, on, named=settings.success is not None)
    return RecognisedLog(source, files, name, reader, own, on, tags, seed, unknown)


def _values(unknown: Mapping[str, str], by_outcome: bool) -> str:
    """The values whose spread is described where nobody says so."""
    return "outcome" if by_outcome and "success/rate" not in unknown else "reward"


def _unknown(knowledge: Knowledge, own: OwnRun | None, on: str, named: bool) -> dict[str, str]:
    """What the log lacks, and what the run itself could not know; `named`: the user said what success is."""
    missing = dict(knowledge.unknown)
    if own is not None:
        missing |= {name: why for name, why in own.unknown.items() if not (named and name in SUCCESS_METRICS)}
    if knowledge.numbered and on not in ("outcome", "reward", *knowledge.components):
        why = f"the filter looked at {on}, which is not in TRL's log; heedful's own record of the run holds it"
        missing |= dict.fromkeys(SPREAD_METRICS, why)
    return missing


def _one_format(source: Path, files: LogFiles) -> tuple[str, list[Row], LogFiles]:
    """The format that all files share, its first rows, and the files without strangers.

    The rows are those of the first file. Columns of later files are named in them, without values: a trainer may get
    another reward when it goes on.
    """
    formats: dict[str, list[Path]] = {}
    sample: list[Row] = []
    columns: dict[str, None] = {}
    faults, strangers = Faults(), []
    for file in files.files:
        rows = [row for _, row in islice(rows_of(file, faults, _nobody), SAMPLE)]
        name = recognise(rows)
        if name is None:
            strangers += [(file, rows)]
            continue
        formats.setdefault(name, []).append(file)
        sample = sample or rows
        columns |= {column: None for row in rows for column in row}
    if len(formats) > 1:
        shown = " and ".join(f"{name} ({counted(len(of), 'file')}: {of[0].name})" for name, of in formats.items())
        raise ValueError(f"Expected one log in {source}, found {shown}. Name one file, or a folder that holds one log.")
    if not formats:
        _refuse_ours(source)
        file, rows = strangers[0]
        found = f"columns {listed(rows[0])}" if rows else "; ".join(map(str, faults.kept[:2])) or "no rows"
        raise ValueError(
            f"Expected a log that heedful can read ({', '.join(FORMATS)}), found in {file}: {found}. For a "
            "log of your own, write JSON lines with the columns `prompt` and `completion` and, where you have them, "
            "`step`, `reward` and `success`. docs/audit.md has the columns of each format."
        )
    ((name, known),) = formats.items()
    aside = (*files.aside, *(file.name for file, _ in strangers))
    sample[0] = sample[0] | {column: None for column in columns if not any(column in row for row in sample)}
    return name, sample, replace(files, files=tuple(known), aside=aside)


def _refuse_ours(source: Path) -> None:
    """Raise ValueError for a folder that heedful wrote and that holds no episodes."""
    if not source.is_dir():
        return
    if is_run(source):
        raise ValueError(
            f"Expected stored episodes in the run {source}, found none. It kept none, or has not "
            "finished a step. Train with --keep-rollouts all to audit a run."
        )
    for name, told in (
        ("evaluation.json", "an evaluation without finished episodes. Go on with the same command of heedful eval"),
        ("audit.json", "an audit. Name the log that it measured"),
    ):
        if (source / name).is_file():
            raise ValueError(f"Expected a log in {source}, found {told}.")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _nobody(more: int) -> None:
    """Ignores how much of a file recognition reads."""
