"""The audit folder: `audit.json` says what was read and assumed. What was measured, the lines of `metrics.jsonl` say.

Promise: an audit goes on only with the settings that it began with, over the same log. That may have grown.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
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
STATES = "audit-states.json"
"""What the next measurement by a model needs of those before it."""
_FREE = frozenset({"device", "threads", "max_tokens", "api_key_env", "connections", "keep_rollouts"})
"""Settings that change no number, and may differ when an audit goes on."""


@dataclass(slots=True)
class AuditRecord:
    """The content of `audit.json`, kept up to date step by step."""

    source: str
    """As the user named it."""
    name: str
    """Name of the file or folder."""
    format: str
    files: list[dict[str, Any]]
    """Name of each, how many of its bytes were read, and their SHA-256."""
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
    rewritten: list[int] = field(default_factory=list)
    """Steps whose rows were written over after they were measured. Their lines stay."""
    version: int = 1

    @classmethod
    def of(cls, log: RecognisedLog, settings: AuditSettings) -> Self:
        """The record of an audit that begins."""
        knowledge = log.reader.knowledge
        assumed = list(knowledge.assumed)
        if settings.scores and not knowledge.temperature:
            given = "as --temperature says" if settings.temperature else "the log does not hold it"
            assumed.append(f"Temperature of sampling: {settings.temperature or 1:g} ({given}).")
        if settings.scores:
            assumed.append("Sampling was not truncated (top-p 1, no top-k): no log says so.")
        if log.first and log.files.scalars:
            assumed.append(
                "Scalars of the trainer's step 1 were joined to generation batch 0, and so on: where a batch has not "
                "exactly one update, they do not belong together."
            )
        resolved = {"tags": [log.tags.open, log.tags.close], "on": log.on, "seed": log.seed}
        return cls(
            str(log.source),
            log.source.resolve().name,
            log.format,
            [],
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
        write_whole(folder / RECORD, json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n")


@dataclass(slots=True)
class Prints:
    """SHA-256 of the bytes of each file that were read. A file that grows is hashed on from there."""

    held: dict[Path, tuple[int, Any]] = field(default_factory=dict)
    """How many bytes are hashed, and the hash that takes more of them."""

    def take(self, file: Path, size: int) -> None:
        """Hash the bytes of a file up to `size`."""
        done, state = self.held.get(file, (0, None))
        state = hashlib.sha256() if state is None or size < done else state
        with open_file(file) as stream:
            stream.seek(done if size >= done else 0)
            while piece := stream.read(min(1 << 20, size - stream.tell())):
                state.update(piece)
            self.held[file] = stream.tell(), state

    def hold(self, file: Path) -> bool:
        """Whether the bytes that were read are still at the beginning of the file."""
        size, state = self.held[file]
        return beginning(file, size) == state.hexdigest()

    def changed(self) -> list[str]:
        """A phrase for each file that has another size than the bytes that were read, or is gone."""
        phrases = []
        for file, (size, _) in self.held.items():
            there = file.stat().st_size if file.exists() else -1
            if there != size:
                now = "gone" if there < 0 else f"{size:,} bytes were read, {there:,} are there"
                phrases.append(f"{name_of(file)} ({now})")
        return phrases

    @property
    def listed(self) -> list[dict[str, Any]]:
        """For `audit.json`."""
        return [
            {"name": name_of(file), "size": size, "sha256": state.hexdigest()}
            for file, (size, state) in self.held.items()
        ]


def new_folder(root: Path, source: Path) -> Path:
    """A new folder `<root>/<name>-<n>` with the first free n from 1."""
    resolved = source.resolve()
    name = resolved.stem if source.is_file() else resolved.name
    return claim_folder(root / f"{name}-{number}" for number in count(1))


def resume(folder: Path, fresh: AuditRecord, log: LogFiles | None = None) -> AuditRecord:
    """The record to go on with: `fresh` in a new folder, or with what the stored one of the same log knows.

    `log`: its files have to begin with the bytes that were read then. Without it, what has changed is measured again.

    Raises:
        ValueError: the folder holds something else, another log, or an audit with other settings.
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
    stored = read_json(path)
    settings = stored["settings"]
    if log is not None:
        held = {one["name"]: one for one in stored["files"]}
        here = {name_of(file): file for file in log.files}
        other = [
            name
            for name, one in held.items()
            if name not in here or beginning(here[name], one["size"]) != one["sha256"]
        ]
        if other:
            raise ValueError(
                f"Expected the log that the audit in {folder} began with, found others under {listed(other)}. Numbers "
                "of two logs do not belong on one page: give another --out."
            )
    changed = [
        f"--{name}: {settings.get(name)} then, {value} now"
        for name, value in fresh.settings.items()
        if name not in _FREE and settings.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"Expected the settings that the audit in {folder} began with, found others ({'; '.join(changed)}). Repeat "
            "them, or give another --out."
        )
    fresh.rewritten = stored.get("rewritten", [])
    return fresh


def beginning(file: Path, size: int) -> str:
    """SHA-256 of the first bytes of a file."""
    prints = Prints()
    prints.take(file, size)
    return prints.held[file][1].hexdigest()
