"""One customer's visit: which page is open, what can be clicked on it, and what a click does.

The pages and buttons are WebShop's. `published` brings back what its engine does otherwise: see docs/shop.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.envs.common import cut_at_word, harmless
from heedful_envs.shop.pages import BACK, BUY, DETAILS, NEXT, PREV
from heedful_envs.shop.products import MOST_FOUND, Catalogue, Goal, Product
from heedful_envs.shop.reward import Terms, terms

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

NO_BUTTON = "there is no such button on this page"
NO_SEARCH = "searching is for the search page, so go back to it first"


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did."""

    effect: str
    """One line for readers of rollouts."""
    refused: str = ""
    """Why nothing happened, as a clause. Empty if something did."""
    terms: Terms | None = None
    """Of a purchase."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the open item. Its texts are clean."""

    name: str
    values: tuple[str, ...]
    """The texts of its buttons."""
    chosen: str
    """The text of the chosen one. Empty if there is none."""


class Visit:
    """A visit to a shop. It starts on the search page and ends with a purchase. `floor`: how pages are shown."""

    def __init__(self, catalogue: Catalogue, goal: Goal, instruction: str, floor: Shop) -> None:
        self.catalogue, self.goal, self.instruction, self.floor = catalogue, goal, instruction, floor
        self.page = "search"
        """`search`, `results`, `item`, or a detail of an item: `description`, `features`, `reviews`."""
        self.found: list[str] = []
        self.number = 1
        self.product: Product | None = None
        self.chosen: dict[str, str] = {}
        """Name of an option -> the chosen value, as the catalogue has it."""

    def search(self, words: str) -> Done:
        """Search for `words`. Only on the search page, unless as published."""
        if self.page != "search" and not self.floor.published:
            return Done("search refused", NO_SEARCH)
        self.found = self.catalogue.search(words, MOST_FOUND)
        self._list(1)
        return Done(f"{len(self.found)} results")

    def click(self, text: str) -> Done:
        """Click the button of that text, without regard to case."""
        wanted = harmless(text).lower() if text.lower() not in _OWN else text.lower()
        if wanted in (button.lower() for button in self.buttons()):
            return self._press(wanted)
        for product in self.listed():
            if harmless(product.id).lower() == wanted:
                self.page, self.product, self.chosen = "item", product, {}
                return Done(f"opened {harmless(product.id)}")
        if self.page == "item" and wanted in (values := self.values()):
            name, value = values[wanted]
            self.chosen[name] = value
            return Done(f"chose {harmless(name)}: {harmless(value)}")
        return Done("click refused", NO_BUTTON)

    def values(self) -> dict[str, tuple[str, str]]:
        """The buttons of an item's options, in lower case -> (name, value).

        A text that two options share, or that another button has, is written with the option's name before it. As
        published the later one wins.
        """
        offered = self.product.options if self.product else ()
        texts = [harmless(value).lower() for _, values in offered for value in dict.fromkeys(values)]
        shared = {text for text, times in Counter(texts).items() if times > 1} | _OWN
        found: dict[str, tuple[str, str]] = {}
        for name, values in offered:
            for value in values:
                text = harmless(value).lower()
                if text in shared and not self.floor.published:
                    text = f"{harmless(name).lower()}: {text}"
                found[text] = (name, value)
        return found

    def _press(self, button: str) -> Done:
        if button == BACK.lower():
            self.page, self.found, self.number, self.product, self.chosen = "search", [], 1, None, {}
            return Done("back to search")
        if button == BUY.lower():
            assert self.product is not None
            paid = terms(self.product, self.goal, list(self.chosen.values()))
            return Done(f"bought {harmless(self.product.id)}: {paid}", terms=paid)
        if button == PREV.lower() and self.page not in ("item", "results"):
            self.page = "item"
            return Done("back to the item")
        if button in (PREV.lower(), NEXT.lower()):
            self._list(self.number + (1 if button == NEXT.lower() else -(self.page == "results")))
            return Done(f"page {self.number}")
        self.page = button
        return Done(f"read {button}")

    def _list(self, number: int) -> None:
        self.page, self.number, self.product, self.chosen = "results", number, None, {}

    @property
    def pages(self) -> int:
        """How many pages of results there are."""
        return max(1, -(-len(self.found) // self.floor.per_page))

    def listed(self) -> list[Product]:
        """The products of the open page of results. None on another page."""
        first = (self.number - 1) * self.floor.per_page if self.page == "results" else len(self.found)
        return [self.catalogue.product(id) for id in self.found[first : first + self.floor.per_page]]

    def buttons(self) -> list[str]:
        """The texts of the buttons of the open page, without those of products and options."""
        if self.page == "search":
            return []
        if self.page == "results":
            on = self.number < self.pages or self.floor.published
            return [BACK, *([PREV] if self.number > 1 else []), *([NEXT] if on else [])]
        return [BACK, PREV, *((*DETAILS, BUY) if self.page == "item" else ())]

    def options(self) -> list[Option]:
        """The options of the open item."""
        buttons: dict[str, list[str]] = {name: [] for name, _ in (self.product.options if self.product else ())}
        chosen: dict[str, str] = {}
        for text, (name, value) in self.values().items():
            buttons[name].append(text)
            if self.chosen.get(name) == value:
                chosen[name] = text
        return [Option(harmless(name), tuple(texts), chosen.get(name, "")) for name, texts in buttons.items()]

    def body(self) -> list[str]:
        """The paragraphs of a page of details, cut at the floor's `characters`."""
        if self.product is None or self.page not in ("description", "features"):
            return []
        parts = [self.product.description] if self.page == "description" else self.product.bullets
        clean: list[str] = []
        most = self.floor.characters if not self.floor.published else 0
        for part in filter(None, map(harmless, parts)):
            left = most - sum(map(len, clean)) if most else len(part)
            if left <= 0:
                break
            clean.append(cut_at_word(part, left))
        return clean

    def state(self) -> str:
        """Page, item and chosen options on one line."""
        item = f" {harmless(self.product.id)}" if self.product else ""
        number = f" {self.number}" if self.page == "results" else ""
        chosen = ", ".join(f"{harmless(name)} {harmless(value)}" for name, value in sorted(self.chosen.items()))
        return f"{self.page}{item}{number}{f': {chosen}' if chosen else ''}"


_OWN = {each.lower() for each in (BACK, PREV, NEXT, BUY, *DETAILS)}
