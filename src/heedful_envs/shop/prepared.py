"""A prepared catalogue: products, goals and the index of a folder, read when they are needed."""

from __future__ import annotations

import random
import warnings
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heedful.boundary import in_home, read_json
from heedful_envs.bm25 import Formula, open_index
from heedful_envs.row_files import RowFile, mapped_array
from heedful_envs.shop.products import NO_LIMIT, Asked, Goal, Product, drawn_limit, words_of
from heedful_envs.shop.webshop import Wish

SUMMARY = "catalogue.json"

VERSION = 3
"""Of the files. Another one has to be prepared again."""

FORMULA = Formula(k1=0.9, b=0.4)
"""The values of the published index."""

GoalKind = Literal["human", "synthetic"]


def goal_of(product: Product, wish: Wish, options: tuple[tuple[str, str], ...]) -> Goal:
    """The goal of a wish. `options`: those that a synthetic one asks for.

    The price limit comes from a generator that is named by the asin and the goal, so it is the same in every run.
    """
    asked: tuple[Asked, ...] = wish.options if wish.kind == "human" else options
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
    """The catalogue of a folder. Safe for several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError where the folder is a catalogue of another version."""
        self.summary = read_json(folder / SUMMARY)
        if self.summary.get("version") != VERSION:
            raise ValueError(f"shop: the catalogue in {folder} was prepared by another version: prepare it again.")
        if self.summary["nouns"] == "words":
            warnings.warn(
                f"shop: the catalogue in {folder} was prepared without spaCy. The reward's nouns are all words of a "
                "title but stop words, and some purchases are paid otherwise than published (docs/shop.md).",
                stacklevel=2,
            )
        self._products, self._goals = RowFile(folder / "products"), RowFile(folder / "goals")
        arrays = [mapped_array(folder / f"{name}.npy") for name in ("ids", "places", "human", "met")]
        self._ids, self._places, human, met = arrays
        self._numbers = {
            (kind, every): np.flatnonzero((human == (kind == "human")) & (met | every))
            for kind in ("human", "synthetic")
            for every in (True, False)
        }
        self._index = open_index(folder / "words", len(self._products))
        self._product = lru_cache(maxsize=512)(lambda place: product_of(self._products[place]))

    def __len__(self) -> int:
        return len(self._products)

    def search(self, words: str, most: int) -> list[str]:
        """The ids of the products that fit the words best, best first."""
        return [self._product(place).id for place, _ in self._index.best(sorted(set(words_of(words))), most)]

    def product(self, id: str) -> Product:
        """The product of an id."""
        return self._product(int(self._places[np.searchsorted(self._ids, id)]))

    def goals(self, kind: GoalKind, every: bool) -> int:
        """How many goals there are: all, or those that their own product can meet. Synthetic ones by product."""
        return len(self._numbers[kind, every])

    def goal(self, kind: GoalKind, every: bool, rng: random.Random) -> Goal:
        """A goal, drawn uniformly. Of a synthetic one the options are drawn, too."""
        numbers = self._numbers[kind, every]
        row = self._goals[int(numbers[rng.randrange(len(numbers))])]
        product = self._product(row["place"])
        wish = Wish(kind, row["instruction"], tuple(row["attributes"]), tuple(row["options"]))
        offered = product.options if every else row["met"]
        options = tuple((name, rng.choice(values)) for name, values in sorted(offered))
        return goal_of(product, wish, options if kind == "synthetic" else ())


def product_of(row: dict[str, Any]) -> Product:
    """A product as it was stored."""
    lists = {each.name for each in fields(Product) if str(each.type).startswith("tuple")}
    row = {name: tuple(value) if name in lists else value for name, value in row.items()}
    return Product(**row | {"options": tuple((name, tuple(values)) for name, values in row["options"])})


def open_shop(path: str) -> PreparedShop:
    """The catalogue of a folder, opened once in a process for as long as it stays as it is. Raises ValueError."""
    folder = in_home(path)
    if (folder / SUMMARY).is_file():
        return _opened(folder, (folder / SUMMARY).stat().st_mtime_ns)
    if folder.is_file() or (folder.is_dir() and any(folder.glob("items_*.json"))):
        download = folder.parent if folder.is_file() else folder
        raise ValueError(
            f"shop: {folder} is WebShop's download, which is prepared once: heedful prepare-shop {download} --out DIR. "
            "Then play it with --env.catalogue DIR."
        )
    raise ValueError(f"shop: expected a folder that heedful prepare-shop made, found none at {folder}.")


@lru_cache(maxsize=4)
def _opened(folder: Path, stamp: int) -> PreparedShop:
    return PreparedShop(folder)
