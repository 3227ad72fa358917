"""Prices and price limits as WebShop draws them, from generators that are named by the product and the goal.

WebShop draws both from a global generator before it is seeded, so its goals change from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful_envs.shop.catalogue.products import NO_LIMIT

UNPRICED = 100.0
"""The price of a product without one."""

_STEPS = [10.0 * number for number in range(1, 100)]


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
