"""Who demonstrates in a shop.

In a drawn shop: searches, compares the list line by line, chooses the options and buys. A thought restates each line
before its verdict: `a drum soft warm 41 no thin , b drum thin soft 72 over`. Where titles have slots, the asked word is
next to each word of a title: `a soft soft warm thin no , b soft soft thin thin 72 50 no`. Then each token follows from
a few others at known places, and a small model can learn the comparison.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.envs.common import format_reply, harmless, template_thought
from heedful_envs.shop.drawn import DrawnShop
from heedful_envs.shop.pages import BUY, NEXT, brief_line, brief_price
from heedful_envs.shop.products import Goal, Product
from heedful_envs.shop.reward import choices, terms
from heedful_envs.shop.visit import Visit

if TYPE_CHECKING:
    from heedful_envs.shop.environment import Shop

_LONGEST_TITLE = 500
"""Characters of a title that is searched for."""


class Solver:
    """One demonstrated visit to a drawn shop."""

    def __init__(self, shop: DrawnShop, rules: Shop, rng: random.Random) -> None:
        self._shop, self._rules, self._rng = shop, rules, rng

    def reply(self, visit: Visit) -> str:
        """The next reply, thought included."""
        thought, action = self._next(visit)
        if self._rng.random() < self._rules.template:
            thought = template_thought(self._rng)
        return format_reply([action], thought)

    def _next(self, visit: Visit) -> tuple[str, str]:
        if visit.page == "search":
            return f"find {self._shop.wanted}", f"search[{self._shop.wanted}]"
        if visit.page == "results":
            return self._compare(visit.listed())
        return self._choose(visit)

    def _compare(self, products: Sequence[Product]) -> tuple[str, str]:
        """Go through the list to the first line that fits. Or to a random one."""
        verdicts = list(map(self._verdict, products))
        end = verdicts.index("fits") if "fits" in verdicts else None
        if products and self._rng.random() < self._rules.imperfect:
            end = self._rng.randrange(len(products))
            wrong = "no" if self._rules.slots else "over"
            verdicts = [*(wrong if each == "fits" else each for each in verdicts[:end]), "fits"]
        upto = len(products) if end is None else end + 1
        line = self._paired if self._rules.slots else brief_line
        told = " , ".join(f"{line(one)} {said}" for one, said in zip(products[:upto], verdicts, strict=False))
        return told or "nothing", f"click[{NEXT if end is None else products[end].id}]"

    def _paired(self, product: Product) -> str:
        """Each word of a title with the asked one next to it, up to the first pair that differs. Then the price."""
        parts = [product.id]
        goal = self._shop.goal
        for word, asked in zip(product.title.split()[1:], goal.attributes, strict=False):
            parts += [word, asked]
            if word != asked:
                return " ".join(parts)
        return " ".join([*parts, brief_price(product.price_text), f"{goal.limit:.0f}"])

    def _verdict(self, product: Product) -> str:
        """Why a product does not fit."""
        goal = self._shop.goal
        if product.query != goal.query:
            return f"no {goal.query}"
        missing = next((word for word in goal.attributes if word not in product.title.split()), None)
        if missing is not None:
            return "no" if self._rules.slots else f"no {missing}"
        if product.price > goal.limit:
            return "no" if self._rules.slots else "over"
        return "fits"

    def _choose(self, visit: Visit) -> tuple[str, str]:
        wanted, options = self._shop.options, visit.options()
        have = " ".join(option.chosen for option in options if option.chosen and not self._rules.published)
        thought = f"want {' '.join(wanted.values())} have {have or 'none'} so"
        for option in options:
            if not option.chosen and option.name in wanted:
                random_one = self._rng.random() < self._rules.imperfect
                value = self._rng.choice(option.values) if random_one else wanted[option.name]
                return f"{thought} {value}", f"click[{value}]"
        return f"{thought} buy", f"click[{BUY.lower()}]"


class FiledSolver:
    """A demonstrated visit to a prepared catalogue: search the title, open what fits, choose, buy.

    The title is known to the solver only, so its searches show the form and no skill.
    """

    def __init__(self, goal: Goal, rules: Shop, rng: random.Random) -> None:
        self._goal, self._rules, self._rng = goal, rules, rng

    def reply(self, visit: Visit, turns_left: int) -> str:
        """The next reply. Raises ValueError where the visit cannot be ended well in the turns that are left."""
        thought, action = self._next(visit)
        if turns_left < 1 + (action != f"click[{BUY.lower()}]"):
            raise ValueError("shop: this goal takes more turns than a visit has: raise --env.turns.")
        if self._rng.random() < self._rules.template:
            thought = template_thought(self._rng)
        return format_reply([action], thought)

    def _next(self, visit: Visit) -> tuple[str, str]:
        if visit.page == "search":
            title = harmless(visit.catalogue.product(self._goal.product).title)
            return f"search for {title}", f"search[{title[:_LONGEST_TITLE]}]"
        if visit.page == "results":
            return self._open(visit)
        assert visit.product is not None
        values = {pair: text for text, pair in visit.values().items()}
        for name, value in (choices(visit.product, self._goal.options) or {}).items():
            if name not in visit.chosen:
                text = values[name, value]
                if self._rng.random() < self._rules.imperfect:
                    text = self._rng.choice([each for (other, _), each in values.items() if other == name])
                return f"{harmless(name)} should be {text}", f"click[{text}]"
        return "all is chosen so buy", f"click[{BUY.lower()}]"

    def _open(self, visit: Visit) -> tuple[str, str]:
        listed = visit.listed()
        if listed and self._rng.random() < self._rules.imperfect:
            taken = harmless(self._rng.choice(listed).id)
            return f"{taken} fits", f"click[{taken}]"
        for product in listed:
            chosen = choices(product, self._goal.options)
            if chosen is not None and terms(product, self._goal, list(chosen.values())).reward == 1.0:
                return f"{harmless(product.id)} fits", f"click[{harmless(product.id)}]"
        if NEXT not in visit.buttons():
            raise ValueError(f"shop: a search for the title of {self._goal.product} does not find it.")
        return "none fits here", f"click[{NEXT}]"
