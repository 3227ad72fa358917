"""How WebShop compares two texts: colours reduced to a listed word, then the ratio of their sets of words.

The ratio is that of thefuzz 0.19 on difflib. It is rounded to a whole number before it is compared with the threshold,
so another library or an unrounded ratio decides some pairs differently.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache

ALIKE = 85
"""Two texts match if their ratio is above this."""

COLOURS = (
    *("alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush"),
    *("bordeaux", "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne", "charcoal", "cheetah"),
    *("chestnut", "chocolate", "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream", "crystal"),
    *("dark", "denim", "eggplant", "elephant", "espresso", "fuchsia", "gold", "granite", "grape", "graphite"),
    *("grass", "gray", "green", "grey", "heather", "indigo", "ivory", "ivy", "khaki", "lavender", "lemon"),
    *("leopard", "light", "lilac", "lime", "magenta", "maroon", "mauve", "merlot", "midnight", "mint", "mocha"),
    *("multicolor", "mushroom", "mustard", "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink"),
    *("plum", "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell", "silver", "skull"),
    *("slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger", "turquoise", "violet"),
    *("walnut", "wheat", "white", "wine", "yellow"),
)
"""WebShop's list, in its order, which decides: `dark red` becomes `dark`."""

_LATIN: dict[int, None] = dict.fromkeys(range(128, 256))
_NO_WORD = re.compile(r"\W")


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
