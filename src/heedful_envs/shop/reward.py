"""The reward of a purchase, term by term, as WebShop publishes it.

    r = type * (attributes + options + price) / (asked attributes + asked options + 1)

- attributes: asked ones that are like an attribute of the product, or occur in its title, bullets or description.
- options: asked values that are like a chosen value, whatever the option's name, colours reduced to a listed word.
- price: 1 if it is at most the limit.
- type: 1 if the query is the same, two parts of the category path are, or more than a fifth of the wanted nouns are in
  the title; else 0.5. It is 0.1 if fewer than a tenth of the nouns are there, and 0 if none is.

The quirks are kept, since published numbers have them: `x-large` counts as `large`, `dark red` as `dark green`, and the
right kind of product earns nothing if its title shares no noun.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from heedful_envs.shop.catalogue.products import Goal, Product
from heedful_envs.shop.matching import COLOURS, alike, colour

_NO_NOUNS = 0.2
"""The share of nouns if the wanted title has none."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one purchase."""

    kind: float
    """The factor for the type: 1, 0.5, 0.1 or 0."""
    attributes: tuple[str, ...]
    """The asked attributes that the product has."""
    options: tuple[str, ...]
    """The asked options that were chosen."""
    in_limit: bool
    asked_attributes: int
    asked_options: int
    same_query: bool
    same_category: bool
    shared_nouns: float

    @property
    def reward(self) -> float:
        """In [0, 1]. 1 means that everything fits."""
        found = len(self.attributes) + len(self.options) + self.in_limit
        return self.kind * found / (self.asked_attributes + self.asked_options + 1)

    def __str__(self) -> str:
        return (
            f"type {self.kind:g}, attributes {len(self.attributes)}/{self.asked_attributes}, "
            f"options {len(self.options)}/{self.asked_options}, price {int(self.in_limit)}/1"
        )


def terms(bought: Product, goal: Goal, chosen: Collection[str]) -> Terms:
    """What a purchase earns. `chosen`: the values of the chosen options."""
    same_query, same_category, shared = (
        bought.query == goal.query,
        _same_category(bought.category, goal.category),
        _shared_nouns(bought.nouns, goal.nouns),
    )
    return Terms(
        kind=_type_factor(same_query or same_category, shared),
        attributes=tuple(asked for asked in goal.attributes if _has(bought, asked)),
        options=tuple(_named(asked) for asked in goal.options if is_chosen(asked, chosen)),
        in_limit=bought.price <= goal.limit,
        asked_attributes=len(goal.attributes),
        asked_options=len(goal.options),
        same_query=same_query,
        same_category=same_category,
        shared_nouns=shared,
    )


def is_chosen(asked: str | tuple[str, str], chosen: Collection[str]) -> bool:
    """Whether a chosen value counts as the asked one."""
    wanted = _reduced(asked)
    return any(alike(colour(value), wanted) for value in chosen)


def _reduced(asked: str | tuple[str, str]) -> str:
    """The text that an asked option is compared as.

    Of a pair, only a part that is a listed colour itself is reduced. Otherwise it is compared as Python writes it:
    marks do not count.
    """
    if isinstance(asked, str):
        return colour(asked)
    return next((each for each in COLOURS if each in asked), str(asked))


def _named(asked: str | tuple[str, str]) -> str:
    return asked if isinstance(asked, str) else f"{asked[0]}: {asked[1]}"


def _has(product: Product, asked: str) -> bool:
    if any(alike(attribute, asked) for attribute in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(asked in text.lower() for text in texts)


def _same_category(one: str, other: str) -> bool:
    parts, others = ({part.strip() for part in path.split("›")} for path in (one, other))
    return len(parts & others) >= 2


def _shared_nouns(bought: Collection[str], wanted: Collection[str]) -> float:
    """Nouns in both titles, each once, divided by the wanted title's nouns with their repeats."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else _NO_NOUNS


def _type_factor(same: bool, shared: float) -> float:
    if shared == 0.0:
        return 0.0
    if shared < 0.1:
        return 0.1
    return 1.0 if same or shared > 0.2 else 0.5
