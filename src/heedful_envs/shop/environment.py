"""Shop: search a catalogue, compare products, choose options and buy what the instruction asks for.

The paper's environment is WebShop. Its engine needs Java, Flask and spaCy at play time, its goals change from run to
run, and it does not tell an agent what it clicked in vain. Deviations: docs/shop.md lists them, and which of them
`published` takes back. The reward is the published one, term by term.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from heedful.boundary import Natural, Share
from heedful.envs.common import (
    BaseEpisode,
    Played,
    ToolEnvironment,
    Turns,
    answer_fault_line,
    check_range,
    free_text_rules,
    harmless,
    played_through,
    task_of,
    text_tool,
)
from heedful.types import Ending, Task, Tool
from heedful_envs.replies import read_action
from heedful_envs.shop.drawn import ATTRIBUTES, SHADES, SIZES, TYPES, DrawnShop, draw
from heedful_envs.shop.pages import BACK, BUY, NEXT, PREV, in_brief, in_english
from heedful_envs.shop.prepared import GoalKind, PreparedShop, open_shop
from heedful_envs.shop.products import Catalogue, Goal
from heedful_envs.shop.solver import FiledSolver, Solver
from heedful_envs.shop.visit import Done, Visit

_LONGEST_ACTION = 1000
"""Characters of an action."""

_BLIND_SEARCHES, _BLIND_ITEMS, _BLIND_VALUES = 8, 32, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop(ToolEnvironment):
    """Buy what an instruction asks for.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 9 moves 1
    want kite modern thin under 30 white medium
    page search
    ```
    ```
    <think>find kite</think><answer>search[kite]</answer>
    ```

    Every task has a shop of its own, unless `catalogue` names a prepared one. Reward components: `purchase` (WebShop's
    reward of what was bought, in [0, 1]) and `format`. Outcome: the same number, so 1 means that everything fits.
    There is no noise.
    """

    name: ClassVar[str] = "shop"
    declared: ClassVar[tuple[Tool, ...]] = (
        text_tool("search", "Search for products, on the search page.", "words", "Words to search for.", "search[{}]"),
        text_tool("click", "Press a button of the page.", "button", "The button, as the page writes it.", "click[{}]"),
    )

    turns: Turns = 9
    """Actions of a visit."""
    catalogue: str = ""
    """A folder that `heedful prepare-shop` made, in place of drawn shops."""
    goals: Literal["auto", "human", "synthetic"] = "auto"
    """Prepared catalogues: instructions that people wrote, or synthetic ones. `auto`: human ones if there are any."""
    every_goal: bool = False
    """Prepared catalogues: also play goals that their own product cannot meet, so that no purchase earns 1."""
    products: Annotated[int, Interval(ge=1, le=100)] = 9
    """Drawn shops: products."""
    rivals: int = 5
    """Drawn shops: products of the wanted type that miss by one attribute or by the price."""
    types: Annotated[int, Interval(ge=2, le=len(TYPES))] = 8
    """Drawn shops: types of products."""
    attributes: Annotated[int, Interval(ge=3, le=len(ATTRIBUTES))] = 10
    """Drawn shops: words for what a product is like."""
    colours: Annotated[int, Interval(ge=0, le=len(SHADES))] = 4
    """Drawn shops: values of the option color. 0 = there is no such option."""
    sizes: Annotated[int, Interval(ge=0, le=len(SIZES))] = 3
    """Drawn shops: values of the option size. 0 = there is no such option."""
    asked: int = 2
    """Drawn shops: attributes that the instruction asks for."""
    slots: bool = False
    """Drawn shops: each asked place has words of its own, and titles hold one word of each, in the instruction's order.
    A thought then writes the asked word next to each word of a title."""
    per_page: Annotated[int, Interval(ge=1, le=50)] = 10
    """Results on a page."""
    characters: Natural = 1000
    """Most characters of a description, and of all features. 0 = all."""
    published: bool = False
    """Do what WebShop's engine does: do not tell what is chosen or clicked in vain, offer a next page after the last,
    search from any page, cut no description, and let one of two options with the same value win."""
    imperfect: Share = 0.0
    """Demonstrations: share of items and options that are chosen at random. The thought says that they fit."""

    def check(self) -> None:
        if self.catalogue:
            self._kind(open_shop(self.catalogue))
            return
        check_range(self.name, "asked", self.asked, 1, self.attributes - 2)
        if self.slots and self.attributes < 2 * self.asked:
            raise ValueError(
                f"shop: with slots each of the {self.asked} asked attributes needs two words, so attributes must be at "
                f"least {2 * self.asked}, but is {self.attributes}."
            )
        check_range(self.name, "rivals", self.rivals, 0, self.per_page - 1)
        check_range(self.name, "products", self.products, self.rivals + 1)
        needed = 3 + bool(self.colours) + bool(self.sizes)  # a search, an item, a choice for each option, the purchase
        if self.turns < needed:
            raise ValueError(f"shop: a visit with these knobs can take {needed} turns, but turns is {self.turns}.")

    def _kind(self, shop: PreparedShop) -> GoalKind:
        """The kind of goals that is played. Raises ValueError if the catalogue has none."""
        kinds: tuple[GoalKind, ...] = ("human", "synthetic") if self.goals == "auto" else (self.goals,)
        found = next((kind for kind in kinds if shop.goals(kind, self.every_goal)), None)
        if found is None:
            unmet = sum(shop.goals(kind, True) for kind in kinds)
            hint = f" {unmet} goals cannot be met by their own product: --env.every-goal true" if unmet else ""
            raise ValueError(
                f"shop: the catalogue {self.catalogue} has no {' or '.join(kinds)} goals that can be met.{hint}"
            )
        return found

    @property
    def summary(self) -> str:
        if self.catalogue:
            shop = open_shop(self.catalogue)
            rule = " Nouns by a rule, not by spaCy." if shop.summary.get("nouns") == "words" else ""
            return f"Find, compare and buy one of {len(shop):,} products in {self.turns} turns.{rule}"
        return f"Find, compare and buy one of {self.products:,} products in {self.turns} turns."

    def shop(self, seed: int) -> DrawnShop:
        """The drawn shop of a seed. Not for prepared catalogues."""
        return draw(self, seed)

    def goal(self, seed: int) -> Goal:
        """What the customer of a seed wants."""
        return _filed_goal(self, seed) if self.catalogue else self.shop(seed).goal

    def stock(self, seed: int) -> Catalogue:
        """The products of a seed's shop. Raises ValueError if the catalogue cannot be read."""
        return open_shop(self.catalogue) if self.catalogue else self.shop(seed)

    def visit(self, seed: int) -> Visit:
        """A visit that begins."""
        goal = self.goal(seed)
        instruction = self.shop(seed).brief_goal if self.brief and not self.catalogue else goal.text
        return Visit(self.stock(seed), goal, harmless(instruction), self)

    def task(self, seed: int) -> Task:
        """Of a prepared catalogue, the split follows the product, so its goals are never in two splits."""
        if not self.catalogue:
            return task_of(self.name, self.shop(seed).lines, seed)
        goal = self.goal(seed)
        return task_of(self.name, f"{goal.product}\n{goal.text}", seed, kin=goal.product)

    def episode(self) -> ShopEpisode:
        return ShopEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A search for the goal's query, or a click on some item, option or button."""
        goal, stock = self.goal(task.seed), self.stock(task.seed)
        words = harmless(goal.query) or "product"
        if rng.random() < 0.25:
            return f"search[{words}]"
        values = [harmless(value) for _, values in stock.product(goal.product).options for value in values]
        found = [harmless(id) for id in stock.search(words, self.per_page)]
        return f"click[{rng.choice([*found, *filter(None, values), BACK.lower(), PREV, BUY.lower()])}]"

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest searches, clicks on what they find first and on the commonest values, and a purchase."""
        goals = [(self.goal(task.seed), self.stock(task.seed)) for task in tasks]
        queries = Counter(harmless(goal.query) for goal, _ in goals if harmless(goal.query))
        ids = Counter(harmless(id) for goal, stock in goals for id in stock.search(goal.query, 1))
        asked = [one if isinstance(one, str) else one[1] for goal, _ in goals for one in goal.options]
        values = Counter(harmless(value) for value in asked if harmless(value))
        return [
            *(f"search[{each}]" for each, _ in queries.most_common(_BLIND_SEARCHES)),
            *(f"click[{each}]" for each, _ in ids.most_common(_BLIND_ITEMS)),
            *(f"click[{each}]" for each, _ in values.most_common(_BLIND_VALUES)),
            f"click[{BUY.lower()}]",
        ]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one visit that buys what fits. See `imperfect` and `template`.

        Of a prepared catalogue the wanted product is searched by its title. Raises ValueError for `every_goal`.
        """
        if not self.catalogue:
            solver = Solver(self.shop(task.seed), self, rng)
            return played_through(self.episode(), task, lambda episode: solver.reply(episode.visit))
        if self.every_goal:
            raise ValueError("shop: goals that cannot be met are not demonstrated: leave out --env.every-goal.")
        filed = FiledSolver(self.goal(task.seed), self, rng)
        return played_through(self.episode(), task, lambda episode: filed.reply(episode.visit, episode.turns_left))

    def full_rules(self) -> str:
        search, click = ("search", "click") if self.tools else ("search[words]", "click[button]")
        told = (
            "You are in a shop. Find the product that the instruction asks for, choose its options, and buy it. You "
            "are paid for each asked attribute and option that fits, and for a price within the limit. A product of "
            f"another kind earns less.\n{search} works on the search page. {click} presses a button: "
            f"{BACK}, {PREV}, {NEXT}, a product's id, an option's value, Description, Features, Reviews, {BUY}. "
            f"{BUY} ends the visit."
        )
        form = "One call presses one button or searches once." if self.tools else "The answer is one action."
        return f"{told}\n{free_text_rules(form, 'search[red shoes]', self.turns, self.tools)}"


class ShopEpisode(BaseEpisode[Shop]):
    """One episode of `Shop`."""

    __slots__ = ("visit",)

    visit: Visit

    def begin(self, task: Task, member: int) -> str:
        self.visit = self.env.visit(task.seed)
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        action = read_action(response, ("search", "click"), _LONGEST_ACTION, env.tools)
        done = Done("")
        if action.verb:
            done = (self.visit.search if action.verb == "search" else self.visit.click)(action.text)
        note = answer_fault_line(action.read, env.brief)
        if done.refused and not env.published:
            note += "refused\n" if env.brief else f"Nothing happened: {done.refused}.\n"
        paid = 0.0 if done.terms is None else done.terms.reward
        bought, ending = done.terms is not None, None
        if bought or not self.turns_left:
            ending = Ending.SOLVED if paid == 1.0 else Ending.FAILED if bought else Ending.OUT_OF_TURNS
        return Played(
            fault=action.read.fault,
            rewards={"purchase": paid} if bought else {},
            ending=ending,
            outcome=paid,
            progress=paid,
            actions=(action.read.text,) if action.verb else (),
            note=note,
            shown="" if ending else self._show(),
            effect=action.read.fault or done.effect,
            state=self.visit.state(),
        )

    def _show(self) -> str:
        return f"{self.limits()}\n{(in_brief if self.env.brief else in_english)(self.visit)}"


@lru_cache(maxsize=4096)
def _filed_goal(env: Shop, seed: int) -> Goal:
    shop = open_shop(env.catalogue)
    return shop.goal(env._kind(shop), env.every_goal, random.Random(f"shop:{seed}"))
