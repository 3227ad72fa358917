"""The reward of a purchase, term by term, as WebShop publishes it.

    r = type * (attributes + options + price) / (asked attributes + asked options + 1)

- attributes: asked ones that are like an attribute of the product, or occur in its title, bullets or description.
- options: asked values that are like a chosen value, whatever the option's name, colours reduced to a listed word.
- price: 1 if it is at most the limit.
- type: 1 if the query is the same, two parts of the category path are, or more than a fifth of the wanted nouns are in
  the title; else 0.5. It is 0.1 if fewer than a tenth of the nouns are there, and 0 if none is.

The quirks are kept, since published numbers have them: `x-large` counts as `large`, `dark red` as `dark green`, and the
right kind of product earns nothing if its title shares no noun. Two texts are alike by the ratio of thefuzz 0.19 on
difflib. It is rounded to a whole number before it is compared with the threshold, so another library or an unrounded
ratio decides some pairs differently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from heedful_envs.shop.products import Asked, Goal, Product

_NO_NOUNS = 0.2
"""The share of nouns if the wanted title has none."""

_MOST_TRIED = 2000
"""Steps of a search for options that meet a goal."""


ALIKE = 85
"""Two texts match if their ratio is above this."""

_COLOURS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey "
    "heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight "
    "mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow "
    "red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal "
    "tiger turquoise violet walnut wheat white wine yellow"
)
COLOURS = tuple(_COLOURS.split())
"""WebShop's list, in its order, which decides: `dark red` becomes `dark`."""

_LATIN: dict[int, None] = dict.fromkeys(range(128, 256))
_NO_WORD = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one purchase."""

    kind: float
    """The factor for the type: 1, 0.5, 0.1 or 0."""
    attributes: tuple[str, ...]
    """The asked attributes that the product has."""
    options: tuple[Asked, ...]
    """The asked options that were chosen."""
    in_limit: bool
    asked_attributes: int
    asked_options: int

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
    parts, others = ({part.strip() for part in path.split("›")} for path in (bought.category, goal.category))
    same = bought.query == goal.query or len(parts & others) >= 2
    # Nouns in both titles, each once, divided by the wanted title's nouns with their repeats.
    shared = len({*bought.nouns} & {*goal.nouns}) / len(goal.nouns) if goal.nouns else _NO_NOUNS
    kind = 1.0 if same or shared > 0.2 else 0.5
    return Terms(
        kind=0.0 if shared == 0.0 else 0.1 if shared < 0.1 else kind,
        attributes=tuple(asked for asked in goal.attributes if _has(bought, asked)),
        options=tuple(asked for asked in goal.options if is_chosen(asked, chosen)),
        in_limit=bought.price <= goal.limit,
        asked_attributes=len(goal.attributes),
        asked_options=len(goal.options),
    )


def _has(product: Product, asked: str) -> bool:
    if any(alike(attribute, asked) for attribute in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(asked in text.lower() for text in texts)


def is_chosen(asked: Asked, chosen: Collection[str]) -> bool:
    """Whether a chosen value counts as the asked one.

    Of an asked pair, only a part that is a listed colour itself is reduced. Otherwise it is compared as Python writes
    it: marks do not count.
    """
    wanted = colour(asked) if isinstance(asked, str) else next((each for each in COLOURS if each in asked), str(asked))
    return any(alike(colour(value), wanted) for value in chosen)


def colour(text: str) -> str:
    """The first listed colour that occurs anywhere in `text`, else `text`: `titanium` becomes `tan`."""
    return next((each for each in COLOURS if each in text), text)


@lru_cache(maxsize=65536)
def token_set_ratio(one: str, other: str) -> int:
    """The best ratio, 0 to 100, among the common words and the common words with the rest of either text.

    So a text whose words are a subset of the other's has 100: `large` and `x-large`. Without any word it is 0.
    """
    words, others = set(_plain(one).split()), set(_plain(other).split())
    if not words or not others:
        return 0
    common = " ".join(sorted(words & others))
    first = f"{common} {' '.join(sorted(words - others))}".strip()
    second = f"{common} {' '.join(sorted(others - words))}".strip()
    return max(_ratio(common, first), _ratio(common, second), _ratio(first, second))


def alike(one: str, other: str) -> bool:
    """Whether WebShop counts two texts as the same."""
    return token_set_ratio(one, other) > ALIKE


def _plain(text: str) -> str:
    return _NO_WORD.sub(" ", text.translate(_LATIN)).lower().strip()


def _ratio(one: str, other: str) -> int:
    return 100 if one == other else round(100 * SequenceMatcher(None, one, other).ratio())


# Whether a goal can be met by the product that it was written for


def choices(product: Product, asked: Sequence[Asked]) -> dict[str, str] | None:
    """Name of an option -> the value to choose, so that every asked option is met. `None` if there is no such choice.

    The value that is asked for word by word comes first. After `_MOST_TRIED` steps the search ends without a choice.
    """
    left = [_MOST_TRIED]

    def extend(place: int, chosen: dict[str, str]) -> dict[str, str] | None:
        left[0] -= 1
        if place == len(asked) or left[0] < 0:
            return chosen if place == len(asked) else None
        wanted = asked[place]
        if is_chosen(wanted, list(chosen.values())):
            return extend(place + 1, chosen)
        pairs = [(name, value) for name, values in product.options for value in values if is_chosen(wanted, [value])]
        exact = wanted if isinstance(wanted, str) else wanted[1]
        for name, value in sorted(pairs, key=lambda pair: pair[1] != exact):
            if name not in chosen and (found := extend(place + 1, chosen | {name: value})) is not None:
                return found
        return None

    return extend(0, {})


def can_meet(product: Product, goal: Goal) -> bool:
    """Whether some purchase of the product earns 1."""
    chosen = choices(product, goal.options)
    return chosen is not None and terms(product, goal, list(chosen.values())).reward == 1.0


def meetable(product: Product) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """The options with the values that meet themselves in a synthetic goal. `None` if an option has none.

    A value such as `titanium` is reduced to the colour inside it, while the pair that asks for it is not.
    """
    kept = tuple(
        (name, tuple(value for value in values if is_chosen((name, value), [value])))
        for name, values in product.options
    )
    return kept if all(values for _, values in kept) else None
