"""reasoning-gym: a question, an answer in free text, and the library's own scorer above its floor.

A task is a function of its seed. The agent sees the question and the fault of the last reply, never a score. Only an
answer with the full score is a success.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heedful.boundary import Count, Share
from heedful.envs.common import (
    BaseEpisode,
    Instructions,
    Played,
    SolvableEnvironment,
    Turns,
    answer_fault_line,
    format_reply,
    free_text_rules,
    played_through,
    read_answer,
    remarks,
    task_of,
    template_thought,
)
from heedful.seeds import derive
from heedful.types import Ending, Task
from heedful_envs.adapters.library import read_options, write_options
from heedful_envs.adapters.reasoning_gym.scoring import REFUSED, entry_of, number_of, right_answer, score

LONGEST_STATED = 60
"""Characters of a right answer that a demonstrated thought repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGym(SolvableEnvironment):
    """A question of a dataset of reasoning-gym, to be answered in one turn or in several attempts.

    Reward components: `solved` (1 for a right answer at the first attempt, `later` times as much at each further one),
    `partial` (if asked for, the best score above the scorer's floor, for an episode that ends unsolved) and `format`.
    Outcome: 1 if an answer was right, else that best score with `partial`, else 0. A dataset is refused if its scorer
    pays in full for replies that answer nothing.
    """

    name: ClassVar[str] = "reasoning_gym"
    package: ClassVar[str] = "reasoning_gym"
    """The package that is played."""

    dataset: str = "chain_sum"
    """Which dataset. An unknown name lists all."""
    config: str = ""
    """Settings of the dataset as name=value with spaces between, or as JSON; empty: the library's defaults."""
    turns: Turns = 1
    """Attempts: most turns of an episode."""
    later: Share = 0.5
    """What a right answer is worth at the next attempt, as a share of what it was worth before."""
    partial: bool = False
    """Partial credit: what the scorer pays above its floor, the most it pays for replies that answer nothing."""
    longest: Count = 4_096
    """Most characters of an answer."""
    instructions: Instructions = "full"
    """`full`: the form of an answer in plain English in the first observation. `brief`: the limits alone."""
    imperfect: Share = 0.0
    """Demonstrations: share of turns whose answer is another question's. The thought states it."""

    def check(self) -> None:
        read_options(self.name, "config", self.config)

    @property
    def summary(self) -> str:
        return f"{self.dataset} of the library reasoning-gym: a question and an answer in free text."

    def entry(self, seed: int) -> dict[str, Any]:
        """The library's entry that a seed draws: `question`, `answer` and `metadata`.

        Raises ValueError, with the reason, for a dataset that cannot be played honestly.
        """
        if self.dataset in REFUSED:
            raise ValueError(
                f"reasoning_gym: the dataset {self.dataset} is not played, because {REFUSED[self.dataset]}."
            )
        return entry_of(self.dataset, self.config, number_of(self.dataset, self.config, derive(seed, self.name)))

    def task(self, seed: int) -> Task:
        settings = write_options(read_options(self.name, "config", self.config))
        return task_of(self.name, f"{self.dataset} {settings}\n{self.entry(seed)['question']}", seed)

    def episode(self) -> ReasoningGymEpisode:
        return ReasoningGymEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A right answer of another question."""
        return right_answer(self.dataset, self.entry(rng.getrandbits(40)))

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        """The commonest right answers. Of those that occur once, the first one alone."""
        counts = Counter(right_answer(self.dataset, self.entry(task.seed)) for task in tasks).most_common()
        return [answer for place, (answer, count) in enumerate(counts) if count > 1 or place == 0]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Answer rightly. See `imperfect` and `template`. A wrong answer is followed by another attempt, if any."""
        entry = self.entry(task.seed)

        def reply(episode: ReasoningGymEpisode) -> str:
            if self.dataset == "chain_sum":
                thought, answer = _running_sum(entry["metadata"]["expression"], self.imperfect, rng)
            else:
                wrong = rng.random() < self.imperfect
                answer = self.random_answer(task, rng) if wrong else right_answer(self.dataset, entry)
                thought = f"the answer is {' '.join(answer.split())[:LONGEST_STATED]}"
            if rng.random() < self.template:
                thought = template_thought(rng)
            return format_reply([answer], thought)

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        worth = ""
        if self.turns > 1:
            worth = (
                f"After a wrong answer there is another turn, and a right one is worth {self.later:g} times as much.\n"
            )
        form = f"An answer has at most {self.longest} characters and holds nothing but what the question asks for."
        return f"{free_text_rules(form, 'your answer', self.turns)}{worth}\n"


class ReasoningGymEpisode(BaseEpisode[ReasoningGym]):
    """One episode of `ReasoningGym`."""

    __slots__ = ("_best", "_entry", "_worth")

    _entry: dict[str, Any]

    def begin(self, task: Task, member: int) -> str:
        self._entry = self.env.entry(task.seed)
        self._worth, self._best = 1.0, 0.0
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        read = read_answer(response, env.longest)
        said = read.fault
        solved = False
        if not read.fault:
            judged = score(env.dataset, env.config, self._entry, read.text, env.partial)
            solved = judged.value == 1.0
            self._best = max(self._best, judged.value * self._worth)
            said = remarks("right" if solved else "not right", judged.remark)
        over = solved or not self.turns_left
        rewards: dict[str, float] = {}
        if solved:
            rewards["solved"] = self._worth
        elif over and self._best:
            rewards["partial"] = self._best
        self._worth *= env.later
        wrong = "wrong answer\n" if env.brief else "Your last answer was not right.\n"
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            outcome=1.0 if solved else self._best,
            actions=(" ".join(read.text.split()),) if read.text else (),
            note=answer_fault_line(read, env.brief) or wrong,
            shown=self._show(),
            effect=said,
            state=f"attempt {self.turn}, {'solved' if solved else 'open'}",
        )

    def _show(self) -> str:
        return f"{self.limits()}\n{self._entry['question']}"


def _running_sum(expression: str, imperfect: float, rng: random.Random) -> tuple[str, str]:
    """A chain of sums worked out term by term, and where it ends. Each step may go wrong by a few, if so asked."""
    first, *rest = re.findall(r"-?\d+|[-+](?=\s)", expression)
    total, thought = int(first), first
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        total += int(term) if sign == "+" else -int(term)
        if rng.random() < imperfect:
            total += rng.choice((-10, -2, -1, 1, 2, 10))
        thought += f" {sign} {term} = {total}"
    return thought, str(total)
