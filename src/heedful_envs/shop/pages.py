"""What a page of the shop shows, as data, and three ways to write it.

`lines` is for models that read English: a line for each part, and everything that can be clicked in square brackets.
`text` has the strings of WebShop's text mode. The brief form is for models of a million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PageName = Literal["search", "results", "item", "description", "features", "reviews"]
Form = Literal["lines", "text", "brief"]

BACK, PREV, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
DETAILS: dict[str, PageName] = {"Description": "description", "Features": "features", "Reviews": "reviews"}
"""Button of an item's page -> the page it leads to."""

JOINT = " [SEP] "


@dataclass(frozen=True, slots=True)
class Listed:
    """A product in a list of results."""

    id: str
    title: str
    price: str


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a product."""

    name: str
    values: tuple[str, ...]
    """The texts of its buttons."""
    chosen: str = ""
    """The text of the chosen one. Empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. Its texts are clean."""

    name: PageName
    instruction: str
    buttons: tuple[str, ...] = ()
    number: int = 1
    """Which page of the results."""
    pages: int = 1
    found: int = 0
    listed: tuple[Listed, ...] = ()
    item: Listed | None = None
    options: tuple[Option, ...] = ()
    body: tuple[str, ...] = ()
    """Paragraphs of a description, features, or nothing."""
    tells_chosen: bool = True
    """Whether the page shows which options are chosen."""

    @property
    def chosen(self) -> tuple[Option, ...]:
        """The options of which a value is chosen."""
        return tuple(option for option in self.options if option.chosen and self.tells_chosen)


def written(page: Page, form: Form) -> str:
    """A page as text."""
    return _WRITERS[form](page)


def _lines(page: Page) -> str:
    lines = [f"Instruction: {page.instruction}"]
    if page.name == "search":
        return "\n".join([*lines, "You are on the search page. Use search[words]."])
    above = [button for button in page.buttons if button in (BACK, PREV, NEXT)]
    lines.append(_bracketed(above))
    if page.name == "results":
        lines.append(f"Page {page.number} of {page.pages}, results in all: {page.found}")
        return "\n".join([*lines, *(f"[{each.id}] {each.title}, {each.price}" for each in page.listed)])
    if page.item is not None:
        lines.append(page.item.title)
    if page.name != "item":
        lines.append(f"{page.name.capitalize()}:{'' if page.body else ' none'}")
        return "\n".join([*lines, *page.body])
    lines.append(f"Price: {page.item.price if page.item else ''}")
    lines += [f"{option.name}: {_bracketed(option.values)}" for option in page.options]
    if page.options and page.tells_chosen:
        lines.append(f"Chosen: {', '.join(f'{one.name} {one.chosen}' for one in page.chosen) or 'nothing'}")
    lines += [f"Feature: {each}" for each in page.body]
    return "\n".join([*lines, _bracketed([button for button in page.buttons if button not in above])])


def _bracketed(texts: tuple[str, ...] | list[str]) -> str:
    return " ".join(f"[{text}]" for text in texts)


def _text(page: Page) -> str:
    strings = ["Instruction:", page.instruction]
    if page.name == "search":
        return JOINT.join(["WebShop", *strings, "Search"])
    above = [button for button in page.buttons if button in (BACK, PREV, NEXT)]
    strings += above[:1]
    if page.name == "results":
        strings += [f"Page {page.number} (Total results: {page.found})", *above[1:]]
        strings += [part for each in page.listed for part in (each.id, each.title, each.price)]
        return JOINT.join(strings)
    strings += [*above[1:]]
    if page.name != "item" or page.item is None:
        return JOINT.join([*strings, *page.body])
    for option in page.options:
        strings += [option.name, *option.values]
    strings += [f"Chosen: {option.name} {option.chosen}" for option in page.chosen]
    strings += [page.item.title, f"Price: {page.item.price}", "Rating: N.A.", *page.body]
    return JOINT.join([*strings, *(button for button in page.buttons if button not in above)])


def _brief(page: Page) -> str:
    lines = [page.instruction]
    if page.name == "search":
        return "\n".join([*lines, "page search"])
    if page.name == "results":
        lines.append(f"page {page.number} of {page.pages}")
        return "\n".join([*lines, *map(brief_line, page.listed)])
    if page.name != "item":
        return "\n".join([*lines, " ".join([page.name, *page.body])])
    lines.append(f"item {brief_line(page.item)}" if page.item else "item")
    lines += [f"features {' '.join(page.body)}"] if page.body else []
    lines += [" ".join([option.name, *option.values]) for option in page.options]
    lines += [" ".join(["chosen", *(option.chosen for option in page.chosen)])] if page.tells_chosen else []
    return "\n".join(lines)


def brief_line(listed: Listed) -> str:
    """A product in a line: `c drum soft thin warm 41`."""
    return f"{listed.id} {listed.title} {brief_price(listed.price)}"


def brief_price(price: str) -> str:
    """`12+29` of `$12 + $29`."""
    return price.replace("$", "").replace(" + ", "+")


_WRITERS = {"lines": _lines, "text": _text, "brief": _brief}
