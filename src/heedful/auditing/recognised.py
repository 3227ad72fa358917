"""The kind of a log: its files, its format, the run that it belongs to.

Nothing is measured here. A log that cannot be recognised ends in a sentence that says what was found instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from heedful.auditing.logs.files import LogFiles, find_files, is_parquet, rows_of
from heedful.auditing.logs.records import Faults, Knowledge, Row, is_evaluation, is_missing, scalar_of
from heedful.auditing.readers import FORMATS, Hints, RowReader, recognise
from heedful.auditing.scalars import scalar_files, scalar_kind
from heedful.auditing.settings import AuditSettings, OwnRun, refuse_unreadable_runs
from heedful.boundary import listed
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.names import SPREAD_METRICS, SUCCESS_METRICS

SAMPLE = 64
"""The first rows of a log, from which its format is recognised."""
MOST_KINDS = 448
"""Later rows that are kept because they hold a column, or a kind of value in it, that no earlier row holds."""

_OF_OURS = {
    "evaluation.json": "an evaluation without finished episodes. Go on with the same command of heedful eval",
    "audit.json": "an audit. Name the log that it measured",
    "metrics.jsonl": "a run without stored episodes: it kept none, or has not finished a step. Train with "
    "--keep-rollouts all to audit a run",
}
"""A file of a folder that heedful wrote and that holds no episodes -> what the folder is."""


@dataclass(slots=True)
class Decision:
    """What shows how a log is to be read: its first rows, and later ones that hold something new.

    An audit decides by all rows before it measures, since what a column means may show late. A watch decides by the
    rows that are there, and again at each later row that shows something new. Where that changes the reading, the log
    is read again from its start. So both read a log alike in the end.
    """

    sample: list[Row] = field(default_factory=list)
    kinds: set[object] = field(default_factory=set)
    rows: Counter[Path] = field(default_factory=Counter)
    """How many rows of each file were looked at."""

    def add(self, file: Path, row: Row) -> bool:
        """Look at the next row of a file. Returns whether it shows something new."""
        self.rows[file] += 1
        new = {*_kinds(row)} - self.kinds
        first = next(iter(self.rows)) == file and self.rows[file] <= SAMPLE
        if not first and not (new and len(self.sample) < SAMPLE + MOST_KINDS):
            return False
        self.sample.append(row)
        self.kinds |= new
        return True


@dataclass(frozen=True, slots=True)
class RecognisedLog:
    """A log whose format is known, with the reader for it."""

    source: Path
    files: LogFiles
    format: str
    reader: RowReader
    own: OwnRun | None
    on: str
    tags: ThoughtTags
    seed: int
    unknown: Mapping[str, str]
    """The metrics that the log cannot give, each with the reason."""
    decision: Decision = field(default_factory=Decision, compare=False)

    def reads_as(self, other: RecognisedLog) -> bool:
        """Whether both give the same lines. What is told of the log may differ."""
        one, two = (
            replace(log, reader=replace(log.reader, knowledge=replace(log.reader.knowledge, found=(), assumed=())))
            for log in (self, other)
        )
        return one == two

    @property
    def overwritten(self) -> bool:
        """An evaluation may be written over the training rows of the last step."""
        return self.format == "TRL completions" and all(file.suffix == ".parquet" for file in self.files.files)

    @property
    def foreign(self) -> bool:
        """The rows are another trainer's alone."""
        return not (self.reader.knowledge.own or self.reader.knowledge.numbered)

    @property
    def first(self) -> int:
        """The trainer's step that is step 0 here. Beside another trainer heedful counts generation batches from 0, and
        the trainer counts updates from 1."""
        return int(self.reader.knowledge.numbered or (self.own is not None and "trainer" in self.own.config))


def open_log(source: Path, settings: AuditSettings, scalars: Sequence[Path] = ()) -> RecognisedLog:
    """Recognise a log by its rows. All of them are read once: what a column means may show late.

    `scalars`: files of scalars beside it. The log itself may be one: then there are no episodes.

    Raises:
        ValueError: nothing there, nothing readable, an unknown format, or files of several formats.
    """
    more = tuple(chain.from_iterable(map(scalar_files, scalars)))
    alone = scalar_files(source)
    try:
        files = None if source.is_file() and scalar_kind(source) else find_files(source)
    except ValueError:
        if alone == (source,):
            raise
        files = None
    if files is None:
        files = LogFiles((), scalars=(*alone, *more))
        no_rows = RowReader(Hints(), Knowledge(temperature=True))
        return RecognisedLog(source, files, "scalars", no_rows, None, "reward", ThoughtTags(), 0, {})
    files = replace(files, scalars=more)
    name, decision, files = _one_format(source, files)
    return recognised(source, files, name, decision, settings)


def recognised(source: Path, files: LogFiles, name: str, decision: Decision, settings: AuditSettings) -> RecognisedLog:
    """The log as its rows so far show it. Raises ValueError where a setting names what is not there."""
    own = OwnRun.of(source)
    tags = ThoughtTags(*settings.tags) if settings.tags else own.tags if own else ThoughtTags()
    if settings.rewards and not FORMATS[name].SUMS:
        raise ValueError(
            f"Expected no --rewards for {name}, whose reward is that of the log, found {listed(settings.rewards)} for "
            f"{source}. Leave it out."
        )
    weights = own.reward_weights if own else {}
    hints = Hints(tags, settings.temperature or 1.0, settings.rewards, settings.success, weights)
    reader = FORMATS[name].begin(decision.sample, hints)
    knowledge = reader.knowledge
    if knowledge.own or knowledge.numbered:
        if own is None:
            refuse_unreadable_runs(source)
    else:
        own = None
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
    return RecognisedLog(source, files, name, reader, own, on, tags, seed, unknown, decision)


def _one_format(source: Path, files: LogFiles) -> tuple[str, Decision, LogFiles]:
    """The format that all files share, rows that show every kind of value in its columns, and the files without
    strangers."""
    formats: dict[str, list[Path]] = {}
    decision, faults, strangers = Decision(), Faults(), []
    for file in files.files:
        rows = (row for _, row in rows_of(file, faults, lambda read: None))
        first = list(islice(rows, SAMPLE))
        name = recognise(first)
        if name is None:
            strangers += [(file, first)]
            continue
        formats.setdefault(name, []).append(file)
        # The columns of our own parquet files are known.
        for row in first if name == "heedful rollouts" and is_parquet(file) else chain(first, rows):
            decision.add(file, row)
    if len(formats) > 1:
        shown = " and ".join(f"{name} ({counted(len(of), 'file')}: {of[0].name})" for name, of in formats.items())
        raise ValueError(f"Expected one log in {source}, found {shown}. Name one file, or a folder that holds one log.")
    if not formats:
        for kind, told in _OF_OURS.items():
            if (source / kind).is_file():
                raise ValueError(f"Expected a log in {source}, found {told}.")
        file, first = strangers[0]
        found = f"columns {listed(first[0])}" if first else "; ".join(map(str, faults.kept[:2])) or "no rows"
        raise ValueError(
            f"Expected a log that heedful can read ({', '.join(FORMATS)}), found in {file}: {found}. For a "
            "log of your own, write JSON lines with the columns `prompt` and `completion` and, where you have them, "
            "`step`, `reward` and `success`. Scalars without prompts need a `step`. docs/audit.md has the columns of "
            "each format."
        )
    ((name, known),) = formats.items()
    aside = (*files.aside, *(file.name for file, _ in strangers))
    return name, decision, replace(files, files=tuple(known), aside=aside)


def _kinds(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """The places in a row, and the kind of value at each. A list is known by its first entry."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _kinds(inner, f"{where}.{name}")
    elif isinstance(value, list) and value:
        yield from _kinds(value[0], f"{where}[]")
    else:
        kind = "missing" if is_missing(value) else "evaluation" if is_evaluation(value) else type(value).__name__
        yield where, f"{kind}, 0 or 1" if scalar_of(value) in (0, 1) else kind


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
