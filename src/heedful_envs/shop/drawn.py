"""Drawn shops: a catalogue and a goal for every task, so that nothing about them can be learned by heart.

One product fits. The rivals are of the wanted type and miss by one attribute or by the price. The others are of other
types. Words have four to six letters, and no word is part of another, so each counts for itself in the reward.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product as pairs
from typing import TYPE_CHECKING

from heedful_envs.shop.products import Goal, Product, drawn_limit, words_of

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

TYPES = (
    *("drum", "lamp", "vase", "tent", "bowl", "kite", "chair", "clock", "sofa", "spoon", "mirror", "ladder"),
    *("basket", "kettle", "pillow", "hammer", "towel", "candle", "wallet", "helmet"),
)
ATTRIBUTES = (
    *("soft", "thin", "warm", "quiet", "round", "heavy", "smooth", "strong", "modern", "plain", "glossy", "rapid"),
    *("hollow", "folded", "simple", "double", "sturdy", "bright", "sealed", "woven"),
)
SHADES = ("white", "blue", "black", "green", "purple", "yellow", "silver", "brown")
SIZES = ("small", "large", "medium", "giant", "tiny")

CHEAPEST, DEAREST, TOO_DEAR = 11, 49, 99
"""Whole prices. A fitting product costs at most `DEAREST`, a rival that misses by the price at most `TOO_DEAR`."""

Options = tuple[tuple[str, tuple[str, ...]], ...]


class DrawnShop:
    """The shop of one task: a catalogue with a goal."""

    def __init__(self, products: Sequence[Product], goal: Goal) -> None:
        self.products = {product.id: product for product in sorted(products, key=lambda product: product.id)}
        self.goal = goal

    def search(self, words: str, most: int) -> list[str]:
        """The ids of the products of the named types, those of rarer types first, then by id."""
        asked = set(words_of(words))
        found = [one for one in self.products.values() if one.query in asked]
        of_type = Counter(one.query for one in found)
        return [one.id for one in sorted(found, key=lambda one: of_type[one.query])][:most]

    def product(self, id: str) -> Product:
        return self.products[id]

    @property
    def wanted(self) -> str:
        """The word for the wanted type."""
        return self.goal.query

    @property
    def options(self) -> dict[str, str]:
        """The asked options: name -> value."""
        return dict(self.goal.options)  # type: ignore[arg-type]  # of a drawn goal they are pairs

    @property
    def brief_goal(self) -> str:
        """`want drum soft thin under 60 white small`."""
        values = " ".join(self.options.values())
        return f"want {self.wanted} {' '.join(self.goal.attributes)} under {self.goal.limit:.0f} {values}".rstrip()

    @property
    def lines(self) -> str:
        """Everything that makes this shop another one than the next."""
        held = [f"{one.id} {one.title} {one.price_text} {one.bullets} {one.options}" for one in self.products.values()]
        return "\n".join([self.brief_goal, *sorted(held)])


@lru_cache(maxsize=4096)
def draw(rules: Shop, seed: int) -> DrawnShop:
    """The shop that a seed draws."""
    rng = random.Random(f"shop:{seed}")
    types, words = TYPES[: rules.types], ATTRIBUTES[: rules.attributes]
    options = tuple(
        (name, tuple(rng.sample(values, len(values))))
        for name, values in (("color", SHADES[: rules.colours]), ("size", SIZES[: rules.sizes]))
        if values
    )
    wanted = rng.choice(types)
    classes = [words[place :: rules.asked] for place in range(rules.asked)] if rules.slots else []
    asked = [rng.choice(each) for each in classes] or rng.sample(words, rules.asked)
    price = _price(rng, CHEAPEST, DEAREST)
    limit = drawn_limit(price, f"drawn:{seed}")
    names = ["".join(letters) for letters in pairs(string.ascii_lowercase, repeat=1 + (rules.products > 26))]
    ids = rng.sample(names[: rules.products], rules.products)
    spare = [word for word in words if word not in asked]
    rivals = [_rival(asked, spare, classes, int(limit), rng) for _ in range(rules.rivals)]
    more = [] if rules.slots else [rng.choice(spare)]
    made = [(wanted, [*asked, *more], price), *((wanted, *rival) for rival in rivals)]
    others = [each for each in types if each != wanted]
    while len(made) < rules.products:
        kind = rng.choice(others)
        attributes = [rng.choice(each) for each in classes] or rng.sample(words, rules.asked + 1)
        made.append((kind, attributes, _price(rng, CHEAPEST, TOO_DEAR)))
    products = [_product(id, *one, options, rules, rng) for id, one in zip(ids, made, strict=True)]
    chosen = tuple((name, rng.choice(values)) for name, values in options)
    end = f", with {' and '.join(f'{name} {value}' for name, value in chosen)}" if chosen else ""
    goal = Goal(
        product=ids[0],
        text=f"Find a {wanted} that is {' and '.join(asked)}{end}, for less than {limit:.0f} dollars.",
        query=wanted,
        category=products[0].category,
        nouns=(wanted,),
        attributes=tuple(asked),
        options=chosen,
        limit=limit,
    )
    return DrawnShop(products, goal)


def _rival(
    asked: list[str], spare: list[str], classes: list[tuple[str, ...]], limit: int, rng: random.Random
) -> tuple[list[str], int]:
    """Attributes and price of a product that misses by one thing.

    `classes`: the words of each place, where titles have slots. Else a title has one more word.
    """
    missed = rng.randrange(len(asked) + 1)
    if missed == len(asked):
        more = [] if classes else [rng.choice(spare)]
        return [*asked, *more], _price(rng, limit + 1, TOO_DEAR)
    if classes:
        other, more = rng.choice([word for word in classes[missed] if word != asked[missed]]), []
    else:
        other, *more = rng.sample(spare, 2)
    return [*asked[:missed], other, *asked[missed + 1 :], *more], _price(rng, CHEAPEST, limit - 1)


def _price(rng: random.Random, least: int, most: int) -> int:
    """A whole price that is no multiple of ten, so that no price equals a limit."""
    return rng.choice([price for price in range(least, most + 1) if price % 10])


def _product(
    id: str, kind: str, attributes: list[str], price: int, options: Options, rules: Shop, rng: random.Random
) -> Product:
    shown = list(attributes)
    if not rules.slots:
        rng.shuffle(shown)
    rng.randint(1, price - 1)  # once a part of the price: without this draw, every shop would be another one
    return Product(
        id=id,
        title=" ".join([kind, *shown]),
        price=float(price),
        price_text=f"${price}",
        query=kind,
        category=f"Shop › {kind}",
        attributes=tuple(attributes),
        options=options,
        nouns=(kind,),
    )
