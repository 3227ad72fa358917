"""Drawn shops: a catalogue and a goal for every task, so that nothing about them can be learned by heart.

One product fits. The rivals are of the wanted type and miss by one attribute or by the price. The others are of other
types. Words have four to six letters, and no word is part of another, so each counts for itself in the reward.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from functools import lru_cache
from itertools import product as pairs
from typing import TYPE_CHECKING, Literal

from heedful_envs.bm25 import Index, index_of
from heedful_envs.shop.catalogue.products import FORMULA, Goal, Product, drawn_limit, searched_text, words_of

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

Searched = Literal["type", "text"]

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

LARGEST = 10_000
"""Products of a drawn shop."""


class DrawnShop:
    """The shop of one task: a catalogue with a goal."""

    def __init__(self, products: Sequence[Product], goal: Goal, wanted: str, searched: Searched) -> None:
        """`wanted`: the word for the wanted type."""
        self.products = {product.id: product for product in sorted(products, key=lambda product: product.id)}
        self.goal, self.wanted = goal, wanted
        self._searched = searched
        self._index: Index | None = None

    def search(self, words: str, most: int) -> list[str]:
        """The ids of the products that fit the words best, best first, equal ones by id."""
        if self._index is None:
            texts = (searched_text(one) if self._searched == "text" else one.query for one in self.products.values())
            self._index = index_of(([words_of(text)] for text in texts), FORMULA)
        ids = list(self.products)
        return [ids[place] for place, _ in self._index.best(sorted(set(words_of(words))), most)]

    def product(self, id: str) -> Product:
        return self.products[id]

    @property
    def brief_goal(self) -> str:
        """`want drum soft thin under 60 white small`."""
        values = " ".join(value for _, value in self.named_options)
        return f"want {self.wanted} {' '.join(self.goal.attributes)} under {self.goal.limit:.0f} {values}".rstrip()

    @property
    def named_options(self) -> list[tuple[str, str]]:
        """The asked options as (name, value)."""
        return [pair for pair in self.goal.options if not isinstance(pair, str)]

    @property
    def lines(self) -> str:
        """Everything that makes this shop another one than the next."""
        held = [f"{one.id} {one.title} {one.price_text} {one.bullets} {one.options}" for one in self.products.values()]
        return "\n".join([self.brief_goal, *sorted(held)])


def draw(rules: Shop, seed: int) -> DrawnShop:
    """The shop that a seed draws."""
    return _few(rules, seed) if rules.products <= 50 else _many(rules, seed)


def drawn(rules: Shop, seed: int) -> DrawnShop:
    """The same, drawn anew."""
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
    ids = rng.sample(_names(rules.products), rules.products)
    spare = [word for word in words if word not in asked]
    if rules.slots:
        rivals = [_slotted_rival(asked, classes, int(limit), rng) for _ in range(rules.rivals)]
        more = []
    else:
        rivals = [_rival(rules, asked, spare, int(limit), rng) for _ in range(rules.rivals)]
        more = [rng.choice(spare)]
    made = [(wanted, [*asked, *more], price), *((wanted, *rival) for rival in rivals)]
    others = [each for each in types if each != wanted]
    while len(made) < rules.products:
        made.append((rng.choice(others), _any(rules, words, classes, rng), _price(rng, CHEAPEST, TOO_DEAR)))
    products = [_product(id, *one, options, rules, rng) for id, one in zip(ids, made, strict=True)]
    chosen = tuple((name, rng.choice(values)) for name, values in options)
    goal = Goal(
        product=ids[0],
        text=_sentence(wanted, asked, chosen, limit),
        query=wanted,
        category=products[0].category,
        nouns=(wanted,),
        attributes=tuple(asked),
        options=chosen,
        limit=limit,
    )
    return DrawnShop(products, goal, wanted, rules.searched)


def _rival(rules: Shop, asked: list[str], spare: list[str], limit: int, rng: random.Random) -> tuple[list[str], int]:
    """Attributes and price of a product that misses by one thing."""
    missed = rng.randrange(rules.asked + 1)
    if missed == rules.asked:
        return [*asked, rng.choice(spare)], _price(rng, limit + 1, TOO_DEAR)
    other, more = rng.sample(spare, 2)
    return [*asked[:missed], other, *asked[missed + 1 :], more], _price(rng, CHEAPEST, limit - 1)


def _slotted_rival(
    asked: list[str], classes: list[tuple[str, ...]], limit: int, rng: random.Random
) -> tuple[list[str], int]:
    """The same, where every place has words of its own."""
    missed = rng.randrange(len(asked) + 1)
    if missed == len(asked):
        return asked, _price(rng, limit + 1, TOO_DEAR)
    other = rng.choice([word for word in classes[missed] if word != asked[missed]])
    return [*asked[:missed], other, *asked[missed + 1 :]], _price(rng, CHEAPEST, limit - 1)


def _any(rules: Shop, words: tuple[str, ...], classes: list[tuple[str, ...]], rng: random.Random) -> list[str]:
    """The attributes of a product of another type."""
    return [rng.choice(each) for each in classes] or rng.sample(words, rules.asked + 1)


def _price(rng: random.Random, least: int, most: int) -> int:
    """A whole price that is no multiple of ten, so that no price equals a limit."""
    return rng.choice([price for price in range(least, most + 1) if price % 10])


def _product(
    id: str,
    kind: str,
    attributes: list[str],
    price: int,
    options: tuple[tuple[str, tuple[str, ...]], ...],
    rules: Shop,
    rng: random.Random,
) -> Product:
    """The attributes at the last `hidden` asked places are told among the features only."""
    first = rules.asked - rules.hidden
    hidden = attributes[first : rules.asked]
    shown = attributes[:first] + attributes[rules.asked :]
    if not rules.slots:
        rng.shuffle(shown)
    part = rng.randint(1, price - 1)
    return Product(
        id=id,
        title=" ".join([kind, *shown]),
        price=float(price),
        price_text=f"${part} + ${price - part}" if rules.sums else f"${price}",
        query=kind,
        category=f"Shop › {kind}",
        attributes=tuple(attributes),
        options=options,
        bullets=("", *hidden) if hidden else (),
        nouns=(kind,),
    )


def _sentence(wanted: str, asked: list[str], chosen: tuple[tuple[str, str], ...], limit: float) -> str:
    options = " and ".join(f"{name} {value}" for name, value in chosen)
    end = f", with {options}" if options else ""
    return f"Find a {wanted} that is {' and '.join(asked)}{end}, for less than {limit:.0f} dollars."


@lru_cache(maxsize=8)
def _names(count: int) -> list[str]:
    """As many ids as there are products, all of one length: `a`, `b`, ..., or `aa`, `ab`, ..."""
    length = 1
    while 26**length < count:
        length += 1
    return ["".join(letters) for letters in pairs(string.ascii_lowercase, repeat=length)][:count]


_few = lru_cache(maxsize=4096)(drawn)
_many = lru_cache(maxsize=4)(drawn)
