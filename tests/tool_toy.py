"""A toy with two tools, for tests: look one word up, and hand in the word that was found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from heedful.envs.common.actions import format_reply
from heedful.envs.common.answers import answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import BaseEpisode, Played
from heedful.envs.common.demonstrations import played_through
from heedful.envs.common.tasks import task_of
from heedful.envs.common.tools import ToolEnvironment, text_tool
from heedful.types import Ending, Task, Tool

TOOLS = (
    text_tool("search", "Look a word up.", "query", "The word.", "search[{}]"),
    text_tool("finish", "Give the answer.", "answer", "The answer.", "finish[{}]"),
)
WORDS = ("oak", "elm", "ash", "fir", "yew", "bay", "fig", "gum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary(ToolEnvironment):
    """A toy with two tools: look one word up, and hand in the word that was found."""

    name: ClassVar[str] = "dictionary"
    declared: ClassVar[tuple[Tool, ...]] = TOOLS

    turns: int = 3
    """Replies."""

    def pair(self, seed: int) -> tuple[str, str]:
        rng = random.Random(f"dictionary:{seed}")
        return f"{rng.choice(WORDS)}{rng.randrange(100)}", f"{rng.choice(WORDS)}{rng.randrange(10)}"

    def task(self, seed: int) -> Task:
        return task_of(self.name, " ".join(self.pair(seed)), seed)

    def episode(self) -> DictionaryEpisode:
        return DictionaryEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        return f"{rng.choice(('search', 'finish'))}[{rng.choice(WORDS)}{rng.randrange(10)}]"

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        return [f"finish[{word}1]" for word in WORDS]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        key, value = self.pair(task.seed)

        def reply(episode: DictionaryEpisode) -> str:
            return format_reply([f"search[{key}]" if not episode.turn else f"finish[{value}]"], "hm")

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        return free_text_rules("Translate the word.", "search[oak]", self.turns, self.tools)


class DictionaryEpisode(BaseEpisode[Dictionary]):
    """One episode of `Dictionary`."""

    __slots__ = ("key", "value")

    def begin(self, task: Task, member: int) -> str:
        self.key, self.value = self.env.pair(task.seed)
        return f"{self.limits()}\nTranslate {self.key}"

    def play(self, response: str) -> Played:
        read = read_answer(response, 80, self.env.tools)
        verb, _, rest = read.text.partition("[")
        text = rest.removesuffix("]")
        fault = read.fault or ("" if verb.lower() in ("search", "finish") else "neither search nor finish")
        solved = not fault and verb.lower() == "finish" and text == self.value
        over = solved or not self.turns_left or (not fault and verb.lower() == "finish")
        found = self.value if verb.lower() == "search" and text == self.key else "nothing"
        return Played(
            fault=fault,
            rewards={"solved": 1.0} if solved else {},
            ending=(Ending.SOLVED if solved else Ending.FAILED if self.turns_left else Ending.OUT_OF_TURNS)
            if over
            else None,
            progress=float(solved),
            actions=(verb.lower(),) if not fault else (),
            note=answer_fault_line(read, self.env.brief),
            shown=f"{self.limits()}\nTranslate {self.key}\nfound {found}",
            state=f"{self.turn} {verb.lower() if not fault else ''}",
            effect=fault,
        )
