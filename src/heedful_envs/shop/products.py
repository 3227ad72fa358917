"""What a shop holds: products and goals. What a catalogue is: a search, and products by their id."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Protocol

NO_LIMIT = 1_000_000.0
"""The price limit of a goal that states none."""

MOST_FOUND = 50
"""Results of a search."""

_WORD = re.compile(r"\w+")

Asked = str | tuple[str, str]
"""An asked option: its value (goals that people wrote), or a pair of name and value (synthetic goals)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product as the shop knows it. Texts are as they were found, and are cleaned before anybody is shown them."""

    id: str
    title: str
    price: float
    """What the product costs. Of a range, the amount drawn from it."""
    price_text: str
    """As pages show it: `$9.99`, `$5.0 to $9.99`."""
    query: str = ""
    """The query that the product was found with, in lower case."""
    category: str = ""
    """A path such as `Beauty › Hair › Combs`."""
    attributes: tuple[str, ...] = ()
    """What the product is said to be. No page shows them as a list."""
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, values) in the order of the page."""
    description: str = ""
    bullets: tuple[str, ...] = ()
    nouns: tuple[str, ...] = ()
    """The nouns of the title in lower case, with repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a customer wants."""

    product: str
    """The id of the product that the goal was written for."""
    text: str
    """The instruction that the agent reads."""
    query: str
    category: str
    nouns: tuple[str, ...]
    """Those of the wanted product's title."""
    attributes: tuple[str, ...]
    options: tuple[Asked, ...]
    limit: float = NO_LIMIT
    """The price may not be above this."""


class Catalogue(Protocol):
    """The products of a shop."""

    def search(self, words: str, most: int) -> list[str]:
        """The ids of the products that fit the words best, best first, equal ones by id."""
        ...

    def product(self, id: str) -> Product:
        """The product of an id that `search` gave."""
        ...


def words_of(text: str) -> list[str]:
    """The words of a text, as searches and indexes see them."""
    return _WORD.findall(text.lower())


def drawn_limit(price: float, name: str) -> float:
    """The larger of two of the next four multiples of 10 above `price`, up to 990. `NO_LIMIT` if fewer than two.

    WebShop draws limits from a global generator before it is seeded. Here the generator is named by the goal.
    """
    above = [step for step in (10.0 * number for number in range(1, 100)) if step > price][:4]
    if len(above) < 2:
        return NO_LIMIT
    return max(random.Random(f"shop limit:{name}").sample(above, 2))
