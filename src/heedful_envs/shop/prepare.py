"""Preparing a catalogue once: from WebShop's files into a folder of products, goals and their index.

The file of products is streamed, and instructions are held in memory. A bad row is left out, with its file and line.
The folder appears whole or not at all. The same files give the same catalogue again.

WebShop's reward compares nouns that spaCy's model en_core_web_sm finds, and depends on the version of that model. The
rule takes every word but stop words. It agrees on the type of 94% of pairs of real products.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heedful.envs.common import Faulty
from heedful_envs.bm25 import write_index
from heedful_envs.row_files import RowWriter, whole_folder
from heedful_envs.shop.prepared import FORMULA, SUMMARY, VERSION, goal_of
from heedful_envs.shop.products import Product, words_of
from heedful_envs.shop.reward import can_meet, meetable
from heedful_envs.shop.webshop import Wish, items_of, read_human, read_product, read_synthetic

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
        "items": [path for path in folder.glob("items_*.json") if "_ins" not in path.name],
        "attributes": list(folder.glob("items_ins*.json")),
        "human": list(folder.glob("items_human_ins*.json")),
    }
    if not found["items"]:
        raise ValueError(f"Expected a file of products such as items_shuffle.json in {folder}, found none.")
    for kind, paths in found.items():
        if len(paths) > 1:
            names = ", ".join(sorted(path.name for path in paths))
            raise ValueError(f"Expected one file of {kind} in {folder}, found {names}; name one with --{kind}.")
    return Sources(**{kind: paths[0] for kind, paths in found.items() if paths})


def prepare(
    sources: Sources, out: Path, nouns: Way, most: int = 0, progress: Callable[[int], None] = lambda products: None
) -> Count:
    """Prepare WebShop's files. `most`: the first products only, 0 = all. Raises ValueError for other files."""
    if nouns == "spacy":
        check_spacy()
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"Expected a new folder for the catalogue, but {out} is not empty: name another one.")
    count = Count()
    told: Instructions = defaultdict(list)
    for kind, path in (("human", sources.human), ("synthetic", sources.attributes)):
        if path is not None:
            for line, id, row in items_of(path, "{"):
                told[id].append((kind, line, row))
    with whole_folder(out) as part:
        (part / "words").mkdir()
        rows = islice(items_of(sources.items, "["), most or None)
        with RowWriter(part / "products") as products, RowWriter(part / "goals") as goals:
            shelf = _Shelf(products, goals, count)
            words = _shelved(_products(sources, rows, told, count), shelf, nouns, progress)
            write_index(part / "words", words, FORMULA)
        if not count.products:
            named = f": {'; '.join(count.named)}" if count.named else ""
            raise ValueError(f"Expected products, found none that can be used{named}.")
        count.left_out["instructions of products that are not there"] = len(told.keys() - set(shelf.ids))
        count.left_out = +count.left_out
        order = np.argsort(np.array(shelf.ids, str))
        arrays = {"ids": np.array(shelf.ids, str)[order], "places": order}
        for name, array in (arrays | {"human": np.array(shelf.human, bool), "met": np.array(shelf.met, bool)}).items():
            np.save(part / f"{name}.npy", array)
        summary = {"version": VERSION, "items": sources.items.name, "nouns": nouns, "products": count.products}
        summary |= {"goals": dict(count.goals), "met": dict(count.met), "left_out": dict(count.left_out)}
        (part / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return count


class _Shelf:
    """Products and goals while they are written."""

    def __init__(self, products: RowWriter, goals: RowWriter, count: Count) -> None:
        self._products, self._goals, self._count = products, goals, count
        self.ids: list[str] = []
        self.human: list[bool] = []
        """Of each goal: whether people wrote it."""
        self.met: list[bool] = []
        """Of each goal: whether its own product meets it."""

    def add(self, product: Product, wishes: list[Wish]) -> None:
        place = len(self.ids)
        self.ids.append(product.id)
        self._products.add(asdict(product))
        self._count.products += 1
        for wish in wishes:
            kept = meetable(product) if wish.kind == "synthetic" else ()
            goal = goal_of(product, wish, tuple((name, values[0]) for name, values in kept or ()))
            met = kept is not None and can_meet(product, goal)
            self.human.append(wish.kind == "human")
            self.met.append(met)
            self._count.goals[wish.kind] += 1
            self._count.met[wish.kind] += met
            self._goals.add({"place": place, **asdict(wish), "met": kept or ()})


def _shelved(
    rows: Iterator[tuple[Product, list[Wish]]], shelf: _Shelf, nouns: Way, progress: Callable[[int], None]
) -> Iterator[tuple[list[str]]]:
    """Write products with their nouns and goals, and hand on the words to index."""
    while batch := list(islice(rows, _AT_ONCE)):
        found = nouns_of((product.title for product, _ in batch), nouns)
        for (product, wishes), each in zip(batch, found, strict=True):
            shelf.add(replace(product, nouns=each), wishes)
            options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
            first = product.bullets[0] if product.bullets else ""
            yield (words_of(" ".join((product.title, product.description, first, options))),)
        progress(len(shelf.ids))


Instructions = dict[str, list[tuple[str, int, Any]]]
"""Asin -> (kind, line, row) of what is said about it."""


def _products(
    sources: Sources, rows: Iterator[tuple[int, str, Any]], told: Instructions, count: Count
) -> Iterator[tuple[Product, list[Wish]]]:
    seen: set[str] = set()
    for line, _, row in rows:
        id = str(row.get("asin")) if isinstance(row, dict) else ""
        attributes, wishes = _wishes(sources, told.get(id, []), count)
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


Way = Literal["spacy", "words"]

MODEL = "en_core_web_sm"

_STOP_WORDS = (
    "a about above after all also am an and any are as at be been before below between both but by can did do does "
    "down during each few for from further get had has have he her here him his how i if in into is it its just me "
    "more most my no nor not of off on once only or other our out over own per same set she so some such than that "
    "the their them then there these they this those through to too under until up us very was we were what when "
    "where which while who why will with without you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


def check_spacy() -> None:
    """Raise ModuleNotFoundError with a sentence where spaCy or its model is not installed."""
    if not all(map(importlib.util.find_spec, ("spacy", MODEL))):
        raise ModuleNotFoundError(
            f"Nouns as in WebShop take spaCy and its model {MODEL}, which are not both installed: pip install "
            f'"heedful[webshop]", then python -m spacy download {MODEL}. Or prepare with --nouns words.'
        )


def nouns_of(titles: Iterable[str], way: Way) -> Iterator[tuple[str, ...]]:
    """The nouns of each title in lower case, with repeats."""
    if way == "words":
        for title in titles:
            yield tuple(word for word in words_of(title) if word not in STOP_WORDS)
        return
    for parsed in _model().pipe(titles, batch_size=256):
        yield tuple(token.text.lower() for token in parsed if token.pos_ in ("NOUN", "PROPN"))


@lru_cache(maxsize=1)
def _model() -> Any:
    check_spacy()
    import spacy

    return spacy.load(MODEL, disable=["ner", "parser", "lemmatizer"])
