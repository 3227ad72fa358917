"""Add up prices that have to be looked up: an environment with two tools and a reward of its own."""

import random
from dataclasses import dataclass
from typing import ClassVar

from heedful.envs.common import BaseEnvironment, BaseEpisode, Played, free_text_rules, read_answer, task_of, text_tool
from heedful.types import Ending, Task, Tool

PRICES = {"apple": 3, "fig": 7, "kiwi": 4, "lemon": 2, "mango": 9, "pear": 5, "plum": 6, "quince": 8}


@dataclass(frozen=True, kw_only=True)
class Market(BaseEnvironment):
    """Its knobs: `fee`, and those of every environment on the base, such as `turns` and `format_penalty`."""

    name = "market"
    tools: ClassVar[tuple[Tool, ...]] = (
        text_tool("price", "Look up the price of a fruit.", "fruit", "Its name, such as fig.", "price[{}]"),
        text_tool("finish", "Give the answer.", "answer", "The sum as a number.", "finish[{}]"),
    )
    turns: int = 4
    fee: float = 0.05

    def order(self, seed: int) -> tuple[int, str, int, str]:
        rng = random.Random(f"{self.name}:{seed}")
        first, second = rng.sample(sorted(PRICES), 2)
        return rng.randint(1, 9), first, rng.randint(1, 9), second

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(self.order(seed)), seed)

    def episode(self) -> "Visit":
        return Visit(self)

    def full_rules(self) -> str:
        form = free_text_rules("An answer is price[fruit] or finish[sum].", "price[fig]", self.turns, self.tools)
        return f"Say what an order costs. Prices can be looked up.\n{form}"


class Visit(BaseEpisode[Market]):
    def begin(self, task: Task, member: int) -> str:
        self.order = self.env.order(task.seed)
        return self.show()

    def show(self) -> str:
        first, one, second, other = self.order
        return f"{self.limits()}\nWhat do {first} of {one} and {second} of {other} cost together?"

    def play(self, response: str) -> Played:
        read = read_answer(response, longest=40, tools=self.env.tools)
        tool, _, rest = read.text.partition("[")
        argument = rest.removesuffix("]").strip()
        looked_up, finished = tool == "price", tool == "finish"
        first, one, second, other = self.order
        solved = finished and argument == str(first * PRICES[one] + second * PRICES[other])
        fault = read.fault or ("" if looked_up or finished else "neither a price nor a finish")
        found = f"{argument} costs {PRICES[argument]}" if argument in PRICES else "there is no such fruit"
        return Played(
            fault=fault,
            rewards={"solved": float(solved), "fee": -self.env.fee if looked_up else 0.0},
            ending=Ending.SOLVED if solved else Ending.FAILED if finished or not self.turns_left else None,
            actions=() if fault else (f"{tool} {argument}",),
            note=f"{fault or found}\n" if fault or looked_up else "",
            shown=self.show(),
        )
