"""Which options meet a goal, and whether a goal can be met by the product that it was written for at all."""

from __future__ import annotations

from collections.abc import Sequence

from heedful_envs.shop.catalogue.products import Goal, Product
from heedful_envs.shop.reward import is_chosen, terms

_MOST_TRIED = 2000


def choices(product: Product, asked: Sequence[str | tuple[str, str]]) -> dict[str, str] | None:
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
        for name, value in _meeting(product, wanted):
            if name not in chosen and (found := extend(place + 1, chosen | {name: value})) is not None:
                return found
        return None

    return extend(0, {})


def _meeting(product: Product, wanted: str | tuple[str, str]) -> list[tuple[str, str]]:
    pairs = [(name, value) for name, values in product.options for value in values if is_chosen(wanted, [value])]
    exact = wanted if isinstance(wanted, str) else wanted[1]
    return sorted(pairs, key=lambda pair: pair[1] != exact)


def why_unmet(product: Product, goal: Goal) -> str:
    """Why the product itself cannot earn 1, as a clause. Empty if it can."""
    chosen = choices(product, goal.options)
    if chosen is None:
        return "no values of its options meet the asked ones"
    paid = terms(product, goal, list(chosen.values()))
    if paid.reward == 1.0:
        return ""
    if len(paid.attributes) < paid.asked_attributes:
        return "it lacks an asked attribute"
    return "its own type or price does not count in full"


def meetable(product: Product) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """The options with the values that meet themselves in a synthetic goal. `None` if an option has none.

    A value such as `titanium` is reduced to the colour inside it, while the pair that asks for it is not.
    """
    kept = tuple(
        (name, tuple(value for value in values if is_chosen((name, value), [value])))
        for name, values in product.options
    )
    return kept if all(values for _, values in kept) else None
