"""One customer's visit: which page is open, what can be clicked on it, and what a click does.

The pages and buttons are WebShop's. `published` brings back what its engine does otherwise: see docs/shop.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heedful.envs.common import cut_at_word, harmless
from heedful_envs.shop.catalogue.products import MOST_FOUND, Catalogue, Goal, Product
from heedful_envs.shop.pages import BACK, BUY, DETAILS, NEXT, PREV, Listed, Option, Page, PageName
from heedful_envs.shop.reward import Terms, terms

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

FeaturesAt = Literal["page", "item"]

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


class Visit:
    """A visit to a shop. It starts on the search page and ends with a purchase. `floor`: how pages are shown."""

    def __init__(self, catalogue: Catalogue, goal: Goal, instruction: str, floor: Shop) -> None:
        self.catalogue, self.goal, self.instruction, self.floor = catalogue, goal, instruction, floor
        self.page: PageName = "search"
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
        if wanted in (button.lower() for button in self._buttons()):
            return self._press(wanted)
        if self.page == "results":
            found = next((id for id in self._listed() if harmless(id).lower() == wanted), None)
            if found is not None:
                self.page, self.product, self.chosen = "item", self.catalogue.product(found), {}
                return Done(f"opened {harmless(found)}")
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
        if button == NEXT.lower():
            self._list(self.number + 1)
            return Done(f"page {self.number}")
        if button == PREV.lower():
            if self.page in DETAILS.values():
                self.page = "item"
                return Done("back to the item")
            self._list(self.number - (self.page == "results"))
            return Done(f"page {self.number}")
        if button == BUY.lower():
            return self._buy()
        self.page = next(page for name, page in DETAILS.items() if name.lower() == button)
        return Done(f"read {self.page}")

    def _list(self, number: int) -> None:
        self.page, self.number, self.product, self.chosen = "results", number, None, {}

    def _buy(self) -> Done:
        assert self.product is not None
        paid = terms(self.product, self.goal, list(self.chosen.values()))
        return Done(f"bought {harmless(self.product.id)}: {paid}", terms=paid)

    def _pages(self) -> int:
        return max(1, -(-len(self.found) // self.floor.per_page))

    def _listed(self) -> list[str]:
        first = (self.number - 1) * self.floor.per_page
        return self.found[first : first + self.floor.per_page]

    def _buttons(self) -> list[str]:
        if self.page == "search":
            return []
        if self.page == "results":
            on = self.number < self._pages() or self.floor.published
            return [BACK, *([PREV] if self.number > 1 else []), *([NEXT] if on else [])]
        return [BACK, PREV, *((*DETAILS, BUY) if self.page == "item" else ())]

    def clickable(self) -> list[str]:
        """The texts of everything that can be clicked."""
        return [
            *self._buttons(),
            *(harmless(id) for id in (self._listed() if self.page == "results" else ())),
            *(self.values() if self.page == "item" else ()),
        ]

    def shown(self) -> Page:
        """The open page."""
        listed = [self._line(self.catalogue.product(id)) for id in self._listed()] if self.page == "results" else []
        return Page(
            name=self.page,
            instruction=self.instruction,
            buttons=tuple(self._buttons()),
            number=self.number,
            pages=self._pages(),
            found=len(self.found),
            listed=tuple(listed),
            item=self._line(self.product) if self.product else None,
            options=self._options() if self.page == "item" else (),
            body=self._body(),
            tells_chosen=not self.floor.published,
        )

    def _line(self, product: Product) -> Listed:
        return Listed(harmless(product.id), harmless(product.title), harmless(product.price_text))

    def _options(self) -> tuple[Option, ...]:
        buttons: dict[str, list[str]] = {name: [] for name, _ in (self.product.options if self.product else ())}
        chosen: dict[str, str] = {}
        for text, (name, value) in self.values().items():
            buttons[name].append(text)
            if self.chosen.get(name) == value:
                chosen[name] = text
        return tuple(Option(harmless(name), tuple(texts), chosen.get(name, "")) for name, texts in buttons.items())

    def _body(self) -> tuple[str, ...]:
        product, page = self.product, self.page
        if product is None or page == "reviews" or (page == "item" and self.floor.features == "page"):
            return ()
        parts = [product.description] if page == "description" else list(product.bullets)
        most = self.floor.characters if not self.floor.published and self.floor.characters else None
        clean: list[str] = []
        for part in filter(None, map(harmless, parts)):
            left = len(part) if most is None else most - sum(map(len, clean))
            if left <= 0:
                break
            clean.append(cut_at_word(part, left))
        return tuple(clean)

    def state(self) -> str:
        """Page, item and chosen options on one line."""
        item = f" {harmless(self.product.id)}" if self.product else ""
        chosen = ", ".join(f"{harmless(name)} {harmless(value)}" for name, value in sorted(self.chosen.items()))
        return (
            f"{self.page}{item}{f' {self.number}' if self.page == 'results' else ''}{f': {chosen}' if chosen else ''}"
        )


_OWN = {each.lower() for each in (BACK, PREV, NEXT, BUY, *DETAILS)}
