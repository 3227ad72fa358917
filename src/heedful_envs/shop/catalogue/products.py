"""What a shop holds: products and goals. What a catalogue is: a search, and products by their id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NO_LIMIT = 1_000_000.0
"""The price limit of a goal that states none."""


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
        """The product of an id that `search` gave. Raises ValueError if it cannot be read."""
        ...


def searched_text(product: Product) -> str:
    """What a search looks at: title, description, first bullet and options, in lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()
