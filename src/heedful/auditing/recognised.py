"""The kind of a log: its files, its format, the run that it belongs to.

Nothing is measured here. A log that cannot be recognised ends in a sentence that says what was found instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from heedful.auditing.logs.files import LogFiles, find_files, rows_of
from heedful.auditing.logs.records import Faults, Row
from heedful.auditing.readers import FORMATS, Hints, Reader, recognise
from heedful.auditing.settings import AuditSettings, OwnRun, refuse_unreadable_runs
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.names import SPREAD_METRICS, SUCCESS_METRICS

SAMPLE = 64
"""Rows from which a log's format and columns are understood."""

_OF_OURS = {
    "evaluation.json": "an evaluation without finished episodes. Go on with the same command of heedful eval",
    "audit.json": "an audit. Name the log that it measured",
    "metrics.jsonl": "a run without stored episodes: it kept none, or has not finished a step. Train with "
    "--keep-rollouts all to audit a run",
}
"""A file of a folder that heedful wrote and that holds no episodes -> what the folder is."""


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
    spread_of = "outcome" if by_outcome and "success/rate" not in knowledge.unknown else "reward"
    on = settings.on or (own.on if own else spread_of)
    seed = settings.seed if settings.seed is not None else own.seed if own else 0
    unknown = dict(knowledge.unknown)
    if own is not None:  # what the run itself could not know
        named = SUCCESS_METRICS if settings.success is not None else ()
        unknown |= {name: why for name, why in own.unknown.items() if name not in named}
    if knowledge.numbered and on not in ("outcome", "reward", *knowledge.components):
        why = f"the filter looked at {on}, which is not in TRL's log; heedful's own record of the run holds it"
        unknown |= dict.fromkeys(SPREAD_METRICS, why)
    return RecognisedLog(source, files, name, reader, own, on, tags, seed, unknown)


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
        rows = [row for _, row in islice(rows_of(file, faults, lambda read: None), SAMPLE)]
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
        for kind, told in _OF_OURS.items():
            if (source / kind).is_file():
                raise ValueError(f"Expected a log in {source}, found {told}.")
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


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
