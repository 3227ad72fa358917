"""Preparing a catalogue once: from WebShop's files into a folder of products, goals and their index.

The file of products is streamed, and instructions are held in memory. A bad row is left out, with its file and line.
The folder appears whole or not at all. The same files give the same catalogue again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from heedful_envs.bm25 import write_index
from heedful_envs.filed import Faulty
from heedful_envs.row_files import RowWriter
from heedful_envs.shop.catalogue.nouns import Way, check_spacy, nouns_of
from heedful_envs.shop.catalogue.prepared import SUMMARY, VERSION, goal_of
from heedful_envs.shop.catalogue.products import FORMULA, Product, searched_text, words_of
from heedful_envs.shop.catalogue.stream import listed, named
from heedful_envs.shop.catalogue.webshop import Wish, read_human, read_product, read_synthetic
from heedful_envs.shop.wishes import meetable, why_unmet

_ROWS_NAMED = 5
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files of a WebShop download."""

    items: Path
    attributes: Path | None = None
    """`items_ins_v2*.json`: attributes and synthetic instructions."""
    human: Path | None = None
    """`items_human_ins.json`: instructions that people wrote."""


@dataclass(slots=True)
class Count:
    """What was read and what was left out."""

    products: int = 0
    goals: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """Goals that their own product can meet."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Why, for rows and for goals that cannot be met."""
    named: list[str] = field(default_factory=list)
    """The first bad rows of each file, with file and line."""

    def bad(self, path: Path, line: int, why: str) -> None:
        """Count a bad row."""
        of_file = f"bad rows of {path.name}"
        self.left_out[of_file] += 1
        if self.left_out[of_file] <= _ROWS_NAMED:
            self.named.append(f"{path.name}:{line}: {why}")


def find_sources(folder: Path) -> Sources:
    """The files of a folder by their names. Raises ValueError unless there is one of items, and one at most of each."""
    found = {
        kind: sorted(path for path in folder.glob(pattern) if fits(path.name))
        for kind, pattern, fits in (
            ("items", "items_*.json", lambda name: "_ins" not in name),
            ("attributes", "items_ins*.json", lambda name: True),
            ("human", "items_human_ins*.json", lambda name: True),
        )
    }
    if not found["items"]:
        raise ValueError(f"Expected a file of products such as items_shuffle.json in {folder}, found none.")
    several = [kind for kind, paths in found.items() if len(paths) > 1]
    if several:
        names = ", ".join(path.name for path in found[several[0]])
        raise ValueError(f"Expected one file of {several[0]} in {folder}, found {names}; name one with --{several[0]}.")
    return Sources(**{kind: paths[0] for kind, paths in found.items() if paths})


Instructions = dict[str, list[tuple[str, int, Any]]]
"""Asin -> (kind, line, row) of what is said about it."""


def prepare(
    sources: Sources, out: Path, nouns: Way, most: int = 0, progress: Callable[[int], None] = lambda products: None
) -> Count:
    """Prepare WebShop's files. `most`: the first products only, 0 = all. Raises ValueError for other files."""
    if nouns == "spacy":
        check_spacy()
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"Expected a new folder for the catalogue, but {out} is not empty: name another one.")
    count = Count()
    instructions = _instructions(sources)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        (part / "words").mkdir()
        with _Shelf(part, count) as shelf:
            rows = _products(sources, instructions, most, count)
            write_index(part / "words", _shelved(rows, shelf, nouns, progress), FORMULA)
        count.left_out["instructions of products that are not there"] = len(instructions.keys() - set(shelf.ids))
        count.left_out = +count.left_out
        if not count.products:
            named_rows = "; ".join(count.named)
            raise ValueError(
                f"Expected products, found none that can be used{f': {named_rows}' if named_rows else ''}."
            )
        summary = {"version": VERSION, "items": sources.items.name, "nouns": nouns, "products": count.products}
        summary |= {"goals": dict(count.goals), "met": dict(count.met), "left_out": dict(count.left_out)}
        (part / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
        part.chmod(0o755)
        if out.exists():
            out.rmdir()
        os.replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return count


class _Shelf:
    """The files of products and goals while they are written. Use it as a context."""

    def __init__(self, folder: Path, count: Count) -> None:
        self.ids: list[str] = []
        self._folder, self._count = folder, count
        self._products, self._goals = RowWriter(folder / "products"), RowWriter(folder / "goals")
        self._numbers: dict[str, list[int]] = defaultdict(list)
        """Kind, and whether all goals or those that can be met -> numbers of goals."""

    def add(self, product: Product, wishes: list[Wish]) -> None:
        place = len(self.ids)
        self.ids.append(product.id)
        self._products.add(asdict(product))
        self._count.products += 1
        for wish in wishes:
            kept = meetable(product) if wish.kind == "synthetic" else None
            if wish.kind == "synthetic" and kept is None:
                why = "an option has no value that meets itself"
            else:
                why = why_unmet(
                    product, goal_of(product, wish, tuple((name, values[0]) for name, values in kept or ()))
                )
            self._numbers[f"{wish.kind}_all"].append(len(self._goals))
            self._count.goals[wish.kind] += 1
            if why:
                self._count.left_out[f"{wish.kind} goals: {why}"] += 1
            else:
                self._numbers[f"{wish.kind}_met"].append(len(self._goals))
                self._count.met[wish.kind] += 1
            self._goals.add({"place": place, **asdict(wish), "met": kept or ()})

    def __enter__(self) -> _Shelf:
        return self

    def __exit__(self, *error: object) -> None:
        self._products.__exit__()
        self._goals.__exit__()
        ids = np.array(self.ids, str)
        order = np.argsort(ids)
        arrays = {"ids": ids[order], "places": order}
        for name in ("human_all", "human_met", "synthetic_all", "synthetic_met"):
            arrays[name] = np.array(self._numbers[name], np.int64)
        for name, array in arrays.items():
            np.save(self._folder / f"{name}.npy", array)


def _shelved(
    rows: Iterator[tuple[Product, list[Wish]]], shelf: _Shelf, nouns: Way, progress: Callable[[int], None]
) -> Iterator[tuple[list[str]]]:
    """Write products with their nouns and goals, and hand on the words to index."""
    while batch := list(islice(rows, _AT_ONCE)):
        found = nouns_of((product.title for product, _ in batch), nouns)
        for (product, wishes), each in zip(batch, found, strict=True):
            shelf.add(replace(product, nouns=each), wishes)
            yield (words_of(searched_text(product)),)
        progress(len(shelf.ids))


def _instructions(sources: Sources) -> Instructions:
    """The rows of the instruction files by asin."""
    found: Instructions = defaultdict(list)
    for kind, path in (("human", sources.human), ("synthetic", sources.attributes)):
        if path is not None:
            for line, id, row in named(path):
                found[id].append((kind, line, row))
    return found


def _products(
    sources: Sources, instructions: Instructions, most: int, count: Count
) -> Iterator[tuple[Product, list[Wish]]]:
    seen: set[str] = set()
    for number, (line, row) in enumerate(listed(sources.items)):
        if most and number == most:
            return
        id = str(row.get("asin")) if isinstance(row, dict) else ""
        attributes, wishes = _wishes(sources, instructions.get(id, []), count)
        try:
            product = read_product(row, attributes)
        except Faulty as fault:
            count.bad(sources.items, line, str(fault))
            continue
        if product.id in seen:
            count.left_out["products with the asin of an earlier one"] += 1
            continue
        seen.add(product.id)
        yield product, wishes


def _wishes(sources: Sources, told: list[tuple[str, int, Any]], count: Count) -> tuple[tuple[str, ...], list[Wish]]:
    """Attributes and wishes of a product. A bad one is left out and counted, and its product stays."""
    attributes: tuple[str, ...] = ()
    wishes: list[Wish] = []
    for kind, line, rows in told:
        for row in rows if kind == "human" and isinstance(rows, list) else [rows]:
            try:
                if kind == "human":
                    wishes.append(read_human(row))
                else:
                    attributes, wish = read_synthetic(row)
                    wishes += [wish] if wish else []
            except Faulty as fault:
                path = sources.human if kind == "human" else sources.attributes
                count.bad(path or sources.items, line, str(fault))
    return attributes, wishes
