"""The texts and buttons of the shop's pages, and two ways to write a page.

In English there is a line for each part, and everything that can be clicked is in square brackets. The brief form is
for models of a million parameters. All texts are clean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from heedful.envs.common import harmless
from heedful_envs.shop.products import Product

if TYPE_CHECKING:
    from heedful_envs.shop.visit import Visit

BACK, PREV, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")
"""Buttons of an item's page. Each leads to the page of its name in lower case."""


def in_english(visit: Visit) -> str:
    """The open page as lines of English."""
    lines = [f"Instruction: {visit.instruction}"]
    if visit.page == "search":
        return "\n".join([*lines, "You are on the search page. Use search[words]."])
    buttons = visit.buttons()
    above = [button for button in buttons if button in (BACK, PREV, NEXT)]
    lines.append(_bracketed(above))
    if visit.page == "results":
        lines.append(f"Page {visit.number} of {visit.pages}, results in all: {len(visit.found)}")
        lines += [f"[{harmless(one.id)}] {harmless(one.title)}, {harmless(one.price_text)}" for one in visit.listed()]
        return "\n".join(lines)
    assert visit.product is not None
    lines.append(harmless(visit.product.title))
    if visit.page != "item":
        body = visit.body()
        return "\n".join([*lines, f"{visit.page.capitalize()}:{'' if body else ' none'}", *body])
    lines.append(f"Price: {harmless(visit.product.price_text)}")
    options = visit.options()
    lines += [f"{option.name}: {_bracketed(option.values)}" for option in options]
    if options and not visit.floor.published:
        chosen = [f"{option.name} {option.chosen}" for option in options if option.chosen]
        lines.append(f"Chosen: {', '.join(chosen) or 'nothing'}")
    return "\n".join([*lines, _bracketed(button for button in buttons if button not in above)])


def _bracketed(texts: Iterable[str]) -> str:
    return " ".join(f"[{text}]" for text in texts)


def in_brief(visit: Visit) -> str:
    """The open page in as few words as can be."""
    lines = [visit.instruction]
    if visit.page == "search":
        lines.append("page search")
    elif visit.page == "results":
        lines += [f"page {visit.number} of {visit.pages}", *map(brief_line, visit.listed())]
    elif visit.page != "item":
        lines.append(" ".join([visit.page, *visit.body()]))
    else:
        assert visit.product is not None
        options = visit.options()
        lines.append(f"item {brief_line(visit.product)}")
        lines += [" ".join([option.name, *option.values]) for option in options]
        if not visit.floor.published:
            lines.append(" ".join(["chosen", *(option.chosen for option in options if option.chosen)]))
    return "\n".join(lines)


def brief_line(product: Product) -> str:
    """`c drum soft thin warm 41`."""
    return f"{harmless(product.id)} {harmless(product.title)} {brief_price(harmless(product.price_text))}"


def brief_price(price: str) -> str:
    """`41` of `$41`."""
    return price.replace("$", "")
