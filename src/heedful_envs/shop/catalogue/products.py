"""What a shop holds: products and goals. What a catalogue is: a search, and products by their id."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from heedful_envs.bm25 import Formula

NO_LIMIT = 1_000_000.0
"""The price limit of a goal that states none."""

UNPRICED = 100.0
"""The price of a product without one."""

FORMULA = Formula(k1=0.9, b=0.4)
"""The values of the published index."""

MOST_FOUND = 50
"""Results of a search."""

_WORD = re.compile(r"\w+")
_STEPS = [10.0 * number for number in range(1, 100)]


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
    options: tuple[str, ...] | tuple[tuple[str, str], ...]
    """Values (goals that people wrote), or pairs of name and value (synthetic goals)."""
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


def searched_text(product: Product) -> str:
    """What a search looks at: title, description, first bullet and options, in lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()


def words_of(text: str) -> list[str]:
    """The words of a text, as searches and indexes see them."""
    return _WORD.findall(text.lower())


# WebShop draws prices and limits from a global generator before it is seeded, so its goals change from run to run. Here
# the generators are named by the product and the goal.


def drawn_price(amounts: Sequence[float], product: str) -> float:
    """The price of a product: the only amount, or a uniform draw between the first two."""
    if not amounts:
        return UNPRICED
    if len(amounts) == 1:
        return amounts[0]
    return random.Random(f"shop price:{product}").uniform(*amounts[:2])


def drawn_limit(price: float, name: str) -> float:
    """The larger of two of the next four multiples of 10 above `price`, up to 990. `NO_LIMIT` if fewer than two."""
    above = [step for step in _STEPS if step > price][:4]
    if len(above) < 2:
        return NO_LIMIT
    return max(random.Random(f"shop limit:{name}").sample(above, 2))


def price_tag(amounts: Sequence[float]) -> str:
    """A price as pages show it."""
    if len(amounts) > 1:
        return f"${amounts[0]} to ${amounts[1]}"
    return f"${amounts[0] if amounts else UNPRICED}"
