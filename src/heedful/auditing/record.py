"""The audit folder: `audit.json` says what was read and assumed, and how far an interrupted audit got.

Promise: an audit goes on only over the same bytes and with the same settings that it began with. After a kill at any
moment `metrics.jsonl` holds whole steps, and nothing is measured twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from heedful.auditing.logs.files import LogFiles
from heedful.auditing.logs.records import Faults, name_of
from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.settings import AuditSettings
from heedful.boundary import listed, open_file, read_json, to_json
from heedful.storage import LOCK, claim_folder, write_whole

RECORD = "audit.json"
PROGRESS = "audit-progress.json"
"""How far an audit is, while it goes on."""
_FREE = frozenset({"device", "threads", "max_tokens", "api_key_env", "connections"})
"""Settings that change speed and memory, and may differ when an audit goes on."""


@dataclass(slots=True)
class AuditRecord:
    """The content of `audit.json`, kept up to date step by step."""

    source: str
    """As the user named it."""
    name: str
    """Name of the file or folder."""
    format: str
    files: list[dict[str, Any]]
    """Name, size in bytes and SHA-256 of each."""
    settings: dict[str, Any]
    scalars: list[dict[str, Any]] = field(default_factory=list)
    """Of each file of scalars: its kind, the key of each name, and the keys that were not read."""
    aside: list[str] = field(default_factory=list)
    """What else the folder held."""
    found: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    groups: int = 0
    left_out: dict[str, Any] = field(default_factory=lambda: {"count": 0, "first": []})
    """Lines that did not fit: how many, and the first of them with file, line, expected, found."""
    complete: bool = False
    lines: int = 0
    """Lines of metrics.jsonl that this record knows of."""
    state: dict[str, Any] = field(default_factory=dict)
    """What later measurements need of earlier ones."""
    version: int = 1

    @classmethod
    def of(cls, log: RecognisedLog, settings: AuditSettings, prints: Fingerprints) -> Self:
        """The record of an audit that begins."""
        knowledge = log.reader.knowledge
        assumed = list(knowledge.assumed)
        if settings.scores and not knowledge.temperature:
            given = "as --temperature says" if settings.temperature else "the log does not hold it"
            assumed.append(f"Temperature of sampling: {settings.temperature or 1:g} ({given}).")
        if settings.scores:
            assumed.append("Sampling was not truncated (top-p 1, no top-k): no log says so.")
        resolved = {"tags": [log.tags.open, log.tags.close], "on": log.on, "seed": log.seed}
        return cls(
            str(log.source),
            log.source.resolve().name,
            log.format,
            prints.listed,
            {**to_json(settings), **resolved},
            [],
            list(log.files.aside),
            list(knowledge.found),
            assumed,
        )

    def count(self, faults: Faults) -> None:
        first = [
            {
                "file": name_of(fault.place.file),
                "line": fault.place.line,
                "expected": fault.expected,
                "found": fault.found,
            }
            for fault in faults.kept
        ]
        self.left_out = {"count": faults.count, "first": first}

    def save(self, folder: Path) -> None:
        """Write all of `audit.json`, at the beginning and at the end. What a step adds is in a small file beside it."""
        write_whole(folder / RECORD, json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n")
        (folder / PROGRESS).unlink(missing_ok=True)

    def save_step(self, folder: Path) -> None:
        """Write how far the audit is. Its cost depends neither on the number of files nor on that of steps."""
        write_whole(folder / PROGRESS, json.dumps({"lines": self.lines, "state": self.state}) + "\n")


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The files of a log as they were when the audit began."""

    listed: list[dict[str, Any]]
    """Name, size in bytes and SHA-256 of each."""
    seen: Mapping[Path, tuple[int, int]]
    """Size and time of the last change, in nanoseconds."""

    @classmethod
    def of(cls, log: LogFiles) -> Self:
        listed, seen = [], {}
        for file in (*log.files, *log.failures, *log.scalars):
            with open_file(file) as stream:
                found = os.fstat(stream.fileno())
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            seen[file] = found.st_size, found.st_mtime_ns
            listed.append({"name": name_of(file), "size": found.st_size, "sha256": digest})
        return cls(listed, seen)

    def changed(self) -> list[str]:
        """A phrase for each file that has changed since."""
        phrases = []
        for file, (size, time) in self.seen.items():
            try:
                found = file.stat()
            except OSError:
                phrases.append(f"{name_of(file)} (gone)")
                continue
            if (found.st_size, found.st_mtime_ns) != (size, time):
                phrases.append(f"{name_of(file)} ({size:,} bytes at the start, {found.st_size:,} at the end)")
        return phrases


def new_folder(root: Path, source: Path) -> Path:
    """A new folder `<root>/<name>-<n>` with the first free n from 1."""
    resolved = source.resolve()
    name = resolved.stem if source.is_file() else resolved.name
    return claim_folder(root / f"{name}-{number}" for number in count(1))


def resume(folder: Path, fresh: AuditRecord) -> AuditRecord:
    """The record to go on with: `fresh` in a new folder, the stored one where the same audit was interrupted.

    Lines of `metrics.jsonl` that the stored record does not know of are cut off: they were written just before a kill.

    Raises:
        ValueError: the folder holds something else, another log, a changed log, or an audit with other settings.
    """
    path = folder / RECORD
    if not path.exists():
        there = sorted(entry.name for entry in folder.iterdir() if entry.name != LOCK) if folder.is_dir() else []
        if there or (folder.exists() and not folder.is_dir()):
            raise ValueError(
                f"Expected a new folder, or that of an audit to go on with, at {folder}, found "
                f"{', '.join(there[:3]) or 'a file'}. Give another --out."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return fresh
    stored = AuditRecord(**read_json(path))
    if (folder / PROGRESS).exists():  # what was measured since; an audit that is complete has no such file
        stored = replace(stored, **read_json(folder / PROGRESS))
    _refuse_another(stored, fresh, folder)
    _cut(folder / "metrics.jsonl", stored.lines)
    fresh.lines, fresh.state = stored.lines, stored.state
    return fresh


def _refuse_another(stored: AuditRecord, fresh: AuditRecord, folder: Path) -> None:
    """Raise ValueError where the log or the settings are not those that the audit began with."""
    if stored.files != fresh.files:
        before, now = ({str(file["name"]): file for file in record.files} for record in (stored, fresh))
        other = [name for name in before | now if before.get(name) != now.get(name)]
        raise ValueError(
            f"Expected the log that the audit in {folder} began with, found others under {listed(other)}. Numbers of "
            "two logs do not belong on one page: give another --out."
        )
    changed = [
        f"--{name}: {stored.settings.get(name)} then, {value} now"
        for name, value in fresh.settings.items()
        if name not in _FREE and stored.settings.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"Expected the settings that the audit in {folder} began with, found others ({'; '.join(changed)}). Repeat "
            "them, or give another --out."
        )


def _cut(path: Path, lines: int) -> None:
    """Keep the first `lines` whole lines."""
    content = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if len(content) > lines:
        write_whole(path, b"".join(content[:lines]))
