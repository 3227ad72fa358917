"""A prepared catalogue: products, goals and the index of a folder, read from SQLite when they are needed."""

from __future__ import annotations

import math
import random
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from heedful.boundary import in_home, parse_json, read_json
from heedful_envs.shop.catalogue.postings import SCHEMA, Lengths, best
from heedful_envs.shop.catalogue.prices import drawn_limit
from heedful_envs.shop.catalogue.products import NO_LIMIT, Goal, Product
from heedful_envs.shop.catalogue.webshop import Wish

FILE, SUMMARY = "catalogue.sqlite", "catalogue.json"

VERSION = 1
"""Of the tables. Another one has to be prepared again."""

TABLES = f"""
CREATE TABLE products (place INTEGER PRIMARY KEY, id TEXT UNIQUE, body TEXT);
CREATE TABLE goals (
    number INTEGER PRIMARY KEY, kind TEXT, product INTEGER, body TEXT, options TEXT, in_all INTEGER, in_met INTEGER);
{SCHEMA}
"""
INDEXES = ("CREATE INDEX by_all ON goals (kind, in_all)", "CREATE INDEX by_met ON goals (kind, in_met)")

GoalKind = Literal["human", "synthetic"]


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a catalogue."""
    return (folder / FILE).is_file() and (folder / SUMMARY).is_file()


def goal_of(product: Product, wish: Wish, options: tuple[tuple[str, str], ...]) -> Goal:
    """The goal of a wish. `options`: those that a synthetic one asks for.

    The price limit comes from a generator that is named by the asin and the goal, so it is the same in every run.
    """
    asked: tuple[str, ...] | tuple[tuple[str, str], ...] = wish.options if wish.kind == "human" else options
    told = ", and ".join(f"{name}: {value}" for name, value in options) if wish.kind == "synthetic" else ""
    text = f"{wish.instruction}{f' with {told}' if told else ''}"
    limit = drawn_limit(product.price, f"{product.id}:{text}")
    return Goal(
        product=product.id,
        text=text if limit == NO_LIMIT else f"{text}, and price lower than {limit:.2f} dollars",
        query=product.query,
        category=product.category,
        nouns=product.nouns,
        attributes=wish.attributes,
        options=asked,
        limit=limit,
    )


class PreparedShop:
    """The catalogue of a folder. Each thread has a connection of its own."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError where the folder is no catalogue, or one of another version."""
        check_folder(folder)
        self._folder = folder
        self._threads = threading.local()
        self.summary = _summary(folder)
        if self.summary["version"] != VERSION:
            raise ValueError(f"shop: the catalogue in {folder} was prepared by another version: prepare it again.")
        if self.summary.get("nouns") == "words":
            warnings.warn(
                f"shop: the catalogue in {folder} was prepared without spaCy. The reward's nouns are all words of a "
                "title but stop words, and some purchases are paid otherwise than published (docs/shop.md).",
                stacklevel=2,
            )
        with _whole(folder):
            _check_finished(folder)
            _check_tables(self._tables)
            self._lengths = Lengths(self._tables)
        self._product = lru_cache(maxsize=512)(self._read)

    @property
    def _tables(self) -> sqlite3.Connection:
        tables = getattr(self._threads, "tables", None)
        if tables is None:
            where = (self._folder / FILE).resolve().as_uri()
            tables = self._threads.tables = sqlite3.connect(f"{where}?mode=ro&immutable=1", uri=True)
            tables.execute("PRAGMA cache_size = -8192")
        found: sqlite3.Connection = tables
        return found

    def __len__(self) -> int:
        return self._lengths.count

    def search(self, words: str, most: int) -> list[str]:
        asked = "SELECT id FROM products WHERE place = ?"
        with _whole(self._folder):
            places = best(self._tables, self._lengths, words, most)
            return [self._tables.execute(asked, (place,)).fetchone()[0] for place in places]

    def product(self, id: str) -> Product:
        return self._product(id)

    def _read(self, id: str) -> Product:
        with _whole(self._folder):
            (body,) = self._tables.execute("SELECT body FROM products WHERE id = ?", (id,)).fetchone()
            return product_of(parse_json(body))

    def goals(self, kind: GoalKind, every: bool) -> int:
        """How many goals there are: all, or those that their own product can meet. Synthetic ones by product."""
        return int(self.summary["goals" if every else "met"].get(kind, 0))

    def goal(self, kind: GoalKind, every: bool, rng: random.Random) -> Goal:
        """A goal, drawn uniformly. Of a synthetic one the options are drawn, too."""
        number = rng.randrange(self.goals(kind, every))
        column = "in_all" if every else "in_met"
        asked = f"SELECT product, body, options FROM goals WHERE kind = ? AND {column} = ?"
        with _whole(self._folder):
            place, body, kept = self._tables.execute(asked, (kind, number)).fetchone()
            (id,) = self._tables.execute("SELECT id FROM products WHERE place = ?", (place,)).fetchone()
            product, read = self.product(id), parse_json(body)
            wish = Wish(read["kind"], _text(read["instruction"]), _texts(read["attributes"]), _texts(read["options"]))
            offered = product.options if every else [(name, values) for name, values in parse_json(kept)]
            options = tuple((name, rng.choice(values)) for name, values in sorted(offered))
            return goal_of(product, wish, options if kind == "synthetic" else ())


class DamagedCatalogue(ValueError):
    """A catalogue that is not as it was prepared. It says what was found."""


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Turn what goes wrong with damaged tables into a sentence. Somebody else may have written them."""
    try:
        yield
    except DamagedCatalogue:
        raise
    except (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        found = " ".join(str(error).split())[:200]
        raise DamagedCatalogue(
            f"shop: expected a whole catalogue in {folder}, found {type(error).__name__}: {found}. Prepare it again."
        ) from error


def _check_tables(tables: sqlite3.Connection) -> None:
    """Raise ValueError for other tables than ours: a view or a computed column can take any time and memory."""
    found = tables.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if {sql for (sql,) in found} != _our_tables():
        raise ValueError("other tables than heedful prepare-shop makes")


@lru_cache(maxsize=1)
def _our_tables() -> frozenset[str]:
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(";".join([TABLES, *INDEXES]))
        return frozenset(sql for (sql,) in made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))


def _summary(folder: Path) -> dict[str, Any]:
    """What `catalogue.json` says. Raises ValueError where it is not of our form."""
    with _whole(folder):
        told = read_json(folder / SUMMARY)
        for column in ("goals", "met"):
            if any(type(count) is not int or count < 0 for count in told[column].values()):
                raise ValueError(f"{column} in {SUMMARY} that are no counts")
        return {"version": None, **told}


def product_of(tree: dict[str, Any]) -> Product:
    """A product as it was stored. Raises ValueError, TypeError or KeyError where it is none."""
    options = tuple((_text(name), _texts(values)) for name, values in tree["options"])
    lists = {name: _texts(tree[name]) for name in ("attributes", "bullets", "nouns")}
    product = Product(**(tree | lists | {"options": options}))
    for value in (product.id, product.title, product.price_text, product.query, product.category, product.description):
        _text(value)
    if type(product.price) not in (int, float) or not math.isfinite(product.price):
        raise ValueError(f"the price {str(product.price)[:40]!r} of a product")
    return product


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} in the place of a text")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{str(values)[:40]!r} in the place of a list of texts")
    return tuple(map(_text, values))


def _check_finished(folder: Path) -> None:
    """Raise ValueError for changes beside the file, which a connection that takes it for unchangeable leaves out."""
    for beside in (folder / f"{FILE}-wal", folder / f"{FILE}-journal"):
        if beside.exists() and beside.stat().st_size:
            raise ValueError(f"changes that were not finished are in {beside.name}")


def check_folder(folder: Path) -> None:
    """Raise ValueError for what is no prepared catalogue, with the command that makes one."""
    if is_prepared(folder):
        return
    if folder.is_file() or (folder.is_dir() and any(folder.glob("items_*.json"))):
        download = folder.parent if folder.is_file() else folder
        raise ValueError(
            f"shop: {folder} is WebShop's download, which is prepared once: heedful prepare-shop {download} --out DIR. "
            "Then play it with --env.catalogue DIR."
        )
    raise ValueError(f"shop: expected a folder that heedful prepare-shop made, found none at {folder}.")


def open_shop(path: str) -> PreparedShop:
    """The catalogue of a folder, opened once in a process for as long as it stays as it is."""
    folder = in_home(path)
    check_folder(folder)
    told = (folder / FILE).stat()
    return _opened(folder, (told.st_mtime_ns, told.st_size))


@lru_cache(maxsize=4)
def _opened(folder: Path, stamp: tuple[int, int]) -> PreparedShop:
    return PreparedShop(folder)
