"""Comparison of folders that runs, studies and audits wrote: every byte counts, times aside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

CLOCKS = re.compile(r"^(time(/.*)?|seconds|starts)$")
"""Fields that hold a time or a duration, and the list of starts of a study, of which a resumed one has more."""

DURATION = "A step took "
"""The beginning of a sentence of a verdict that holds durations."""

PAGES = {"report.html", "study.html", "environment.json"}
"""Made of the other files, and of the times in them. The last one names the machine and the commit."""

LOGS = {".log", ".count"}
"""What a process printed: a resumed one says so."""


def differences(one: Path, other: Path) -> list[str]:
    """The files that differ, with what is wrong. Empty where the folders are the same, times aside."""
    names = [
        {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - PAGES
        for folder in (one, other)
    ]
    found = [f"{name} is in one folder only" for name in sorted(names[0] ^ names[1]) if Path(name).suffix not in LOGS]
    for name in sorted(names[0] & names[1]):
        if not _same(one / name, other / name, (str(one), str(other))):
            found.append(f"{name} differs")
    return found


def _same(one: Path, other: Path, places: tuple[str, str]) -> bool:
    if one.suffix in LOGS or one.name in PAGES:
        return True
    if one.suffix in (".json", ".jsonl"):
        return _tree(one, places[0]) == _tree(other, places[1])
    if one.suffix == ".pt":
        return _equal(*(torch.load(file, weights_only=True) for file in (one, other)))
    return one.read_bytes() == other.read_bytes()


def _tree(file: Path, place: str) -> Any:
    text = file.read_text(encoding="utf-8").replace(place, "FOLDER")
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    return [_without_clocks(json.loads(line)) for line in lines]


def _without_clocks(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _without_clocks(value) for name, value in tree.items() if not CLOCKS.match(name)}
    if isinstance(tree, list):
        return [_without_clocks(value) for value in tree if not str(value).startswith(DURATION)]
    return tree


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
