"""Who demonstrates in a drawn shop: searches, compares the list line by line, chooses the options and buys.

A thought restates each line before its verdict: `a drum soft warm 41 no thin , b drum thin soft 72 over`. Where titles
have slots, the asked word is next to each word of a title: `a soft soft warm thin no , b soft soft thin thin 72 50 no`.
Then each token follows from a few others at known places, and a small model can learn the comparison.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from heedful.envs.common import format_reply, harmless, template_thought
from heedful_envs.shop.catalogue.drawn import DrawnShop
from heedful_envs.shop.catalogue.products import Goal, Product
from heedful_envs.shop.pages import BUY, NEXT, PREV, Page, brief_price
from heedful_envs.shop.replies import LONGEST_ACTION
from heedful_envs.shop.reward import terms
from heedful_envs.shop.visit import Visit
from heedful_envs.shop.wishes import choices

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

JOINT = " , "


class Solver:
    """One demonstrated visit."""

    def __init__(self, shop: DrawnShop, rules: Shop, rng: random.Random) -> None:
        self._shop, self._rules, self._rng = shop, rules, rng
        self._imperfect, self._template = rules.imperfect, rules.template
        self._rejected: set[str] = set()
        self._read: set[str] = set()
        self._trusted: set[str] = set()
        """Items that a random choice took, fitting or not."""

    def reply(self, visit: Visit) -> str:
        """The next reply, thought included."""
        thought, action = self._next(visit, visit.shown())
        if self._rng.random() < self._template:
            thought = template_thought(self._rng)
        return format_reply([action], thought)

    def _next(self, visit: Visit, page: Page) -> tuple[str, str]:
        if page.name == "search":
            return f"find {self._shop.wanted}", f"search[{self._shop.wanted}]"
        if page.name == "results":
            return self._compare(visit, page)
        product = visit.product
        assert product is not None
        if page.name != "item":
            self._read.add(product.id)
            verdict = self._verdict(product, page.body)
            return f"{' '.join(page.body)} {verdict}", f"click[{PREV}]"
        hidden = bool(self._rules.hidden) and product.id not in self._trusted
        if hidden and product.id not in self._read and not page.body:
            return "see the features", "click[Features]"
        if hidden and (verdict := self._verdict(product, tuple(filter(None, product.bullets)))) != "fits":
            self._rejected.add(product.id)
            return f"{' '.join(page.body)} {verdict}".strip(), f"click[{PREV}]"
        return self._choose(page)

    def _compare(self, visit: Visit, page: Page) -> tuple[str, str]:
        """Go through the list to the first line that fits as far as it tells. Or to a random one."""
        products = [visit.catalogue.product(line.id) for line in page.listed]
        verdicts = ["seen" if one.id in self._rejected else self._verdict(one, None) for one in products]
        fitting = [number for number, verdict in enumerate(verdicts) if verdict == "fits"]
        end = fitting[0] if fitting else None
        if products and self._rng.random() < self._imperfect:
            end = self._rng.randrange(len(products))
            wrong = "no" if self._rules.slots else "over"
            verdicts[:end] = [each if each != "fits" else wrong for each in verdicts[:end]]
            verdicts[end] = "fits"
            self._trusted.add(products[end].id)
        upto = len(products) if end is None else end + 1
        line = self._paired if self._rules.slots else _line
        told = JOINT.join(f"{line(one)} {said}" for one, said in zip(products[:upto], verdicts, strict=False))
        return told or "nothing", f"click[{NEXT if end is None else products[end].id}]"

    def _paired(self, product: Product) -> str:
        """Each word of a title with the asked one next to it, up to the first pair that differs. Then the price."""
        parts = [product.id]
        goal = self._shop.goal
        for word, asked in zip(product.title.split()[1:], goal.attributes, strict=False):
            parts += [word, asked]
            if word != asked:
                return " ".join(parts)
        return " ".join([*parts, _price(product), f"{goal.limit:.0f}"])

    def _verdict(self, product: Product, features: tuple[str, ...] | None) -> str:
        """Why a product does not fit. `features`: those that were read. Without, hidden places are not judged."""
        goal = self._shop.goal
        if product.query != goal.query:
            return f"no {self._shop.wanted}"
        words = {*product.title.split(), *(features or ())}
        first = self._rules.asked - self._rules.hidden
        told = goal.attributes[:first] if features is None else goal.attributes
        missing = next((word for word in told if word not in words), None)
        if missing is not None:
            return "no" if self._rules.slots else f"no {missing}"
        return ("no" if self._rules.slots else "over") if product.price > goal.limit else "fits"

    def _choose(self, page: Page) -> tuple[str, str]:
        wanted = dict(self._shop.named_options)
        have = " ".join(option.chosen for option in page.chosen)
        thought = f"want {' '.join(wanted.values())} have {have or 'none'} so"
        for option in page.options:
            if not option.chosen and option.name in wanted:
                random_one = self._rng.random() < self._imperfect
                value = self._rng.choice(option.values) if random_one else wanted[option.name]
                return f"{thought} {value}", f"click[{value}]"
        return f"{thought} buy", f"click[{BUY.lower()}]"


class FiledSolver:
    """A demonstrated visit to a prepared catalogue: search the title, open what fits, choose, buy.

    The title is known to the solver only, so its searches show the form and no skill.
    """

    def __init__(self, goal: Goal, imperfect: float, template: float, rng: random.Random) -> None:
        self._goal, self._rng, self._imperfect, self._template = goal, rng, imperfect, template

    def reply(self, visit: Visit, turns_left: int) -> str:
        """The next reply. Raises ValueError where the visit cannot be ended well in the turns that are left."""
        thought, action = self._next(visit)
        if turns_left < 1 + (action != f"click[{BUY.lower()}]"):
            raise ValueError("shop: this goal takes more turns than a visit has: raise --env.turns.")
        if self._rng.random() < self._template:
            thought = template_thought(self._rng)
        return format_reply([action], thought)

    def _next(self, visit: Visit) -> tuple[str, str]:
        goal = self._goal
        if visit.page == "search":
            title = harmless(visit.catalogue.product(goal.product).title)
            return f"search for {title}", f"search[{title[: LONGEST_ACTION // 2]}]"
        if visit.page == "results":
            return self._open(visit)
        assert visit.product is not None
        values = {pair: text for text, pair in visit.values().items()}
        for name, value in (choices(visit.product, goal.options) or {}).items():
            if visit.chosen.get(name) != value and name not in visit.chosen:
                text = values[name, value]
                if self._rng.random() < self._imperfect:
                    text = self._rng.choice([each for (other, _), each in values.items() if other == name])
                return f"{harmless(name)} should be {text}", f"click[{text}]"
        return "all is chosen so buy", f"click[{BUY.lower()}]"

    def _open(self, visit: Visit) -> tuple[str, str]:
        listed = [line.id for line in visit.shown().listed]
        if listed and self._rng.random() < self._imperfect:
            taken = self._rng.choice(listed)
            return f"{taken} fits", f"click[{taken}]"
        for id in listed:
            product = visit.catalogue.product(id)
            chosen = choices(product, self._goal.options)
            if chosen is not None and terms(product, self._goal, list(chosen.values())).reward == 1.0:
                return f"{id} fits", f"click[{id}]"
        if NEXT not in visit.clickable():
            raise ValueError(f"shop: a search for the title of {self._goal.product} does not find it.")
        return "none fits here", f"click[{NEXT}]"


def turns_needed(rules: Shop) -> int:
    """The most turns that a demonstration takes."""
    end = 1 + bool(rules.colours) + bool(rules.sizes) + 1
    if not rules.hidden:
        return end + 1
    return end + (2 * rules.rivals + 1 if rules.features == "item" else 4 * rules.rivals + 3)


def _line(product: Product) -> str:
    return f"{product.id} {product.title} {_price(product)}"


def _price(product: Product) -> str:
    """The price, and what a sum of two makes."""
    price = brief_price(product.price_text)
    return f"{price}={product.price:.0f}" if "+" in price else price
