"""Countdown: reach a target from a few numbers by arithmetic.

Every task is drawn together with a solution that keeps its rules. An answer is judged with exact fractions, never with
`eval`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Count, Distinct, Natural, Share
from heedful.envs.common.actions import format_reply
from heedful.envs.common.answers import answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, Turns, check_range
from heedful.envs.common.demonstrations import listed, played_through, template_in, wording
from heedful.envs.common.tasks import task_of
from heedful.envs.countdown.arithmetic import LONGEST, MOST_DIGITS, SIGN, ReadExpression, read_expression
from heedful.envs.countdown.problems import OPERATIONS, Problem, Rules, Term, draw_problem, draw_term
from heedful.types import Ending, Task

MOST_NUMBERS = 8
"""More numbers than this, and a solution may no longer fit into an answer."""

MOST_BLIND = 64
"""Number of answers offered to a player that does not read."""

_TRIES = 100_000
_TRIES_AT_CONSTRUCTION = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown(SolvableEnvironment):
    """Reach a target from a few numbers by + - * /.

    First observation of seed 3 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 1 moves 1
    84 84 98 target 70
    ```
    ```
    <think>84/84=1 98*1=98 70 no 98+84=182 182+84=266 70 no 98-84=14 84-14=70 70 yes</think><answer>84-(98-84)</answer>
    ```

    The thought tries expressions, step by step, sets the target beside each value, and ends when they are the same.

    Reward components: `solved` (+1), `numbers` (+`partial` at the end of an episode that was not solved, if an attempt
    used the right numbers), `format`. Outcome: 1 if solved, else what `numbers` paid. Progress: 1 if solved, one half
    if an attempt used the right numbers, else 0. There is no noise.
    """

    name: ClassVar[str] = "countdown"
    english: ClassVar[bool] = True

    least_numbers: Annotated[int, Interval(ge=2, le=MOST_NUMBERS)] = 3
    """Fewest numbers of a task. The number is drawn uniformly."""
    most_numbers: int = 4
    """Most numbers of a task."""
    smallest: Count = 1
    """Smallest number."""
    largest: int = 99
    """Largest number."""
    operations: Annotated[tuple[str, ...], Distinct(1, OPERATIONS)] = OPERATIONS
    """What an answer may use, out of + - * and /."""
    lowest_target: Count = 10
    """Smallest target."""
    highest_target: int = 99
    """Largest target."""
    largest_step: int = 1000
    """Largest result of a step of the solutions that tasks are drawn with, and of demonstrations. An answer may exceed
    it."""
    turns: Turns = 1
    """Attempts. The answer to a failed attempt is its value."""
    partial: Annotated[float, Interval(ge=0, lt=1)] = 0.1
    """Reward and outcome if the right numbers were used and no attempt reached the target."""
    tries: Natural = 3
    """Demonstrations: most wrong expressions of a thought before the right one. The number is drawn uniformly.
    An English thought tells the last of them at most."""
    imperfect: Share = 0.0
    """Demonstrations: share of turns that end with a wrong expression. The thought states it, and its value."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the numbers. The answer is right,
    but there is no way to it."""

    def check(self) -> None:
        check_range(self.name, "most_numbers", self.most_numbers, self.least_numbers, MOST_NUMBERS)
        check_range(self.name, "largest", self.largest, self.smallest, 10**MOST_DIGITS - 1)
        check_range(self.name, "highest_target", self.highest_target, self.lowest_target, 10**MOST_DIGITS - 1)
        check_range(self.name, "largest_step", self.largest_step, self.lowest_target)
        draw_problem(self.rules, 0, _TRIES_AT_CONSTRUCTION)

    @property
    def summary(self) -> str:
        few, many = self.least_numbers, self.most_numbers
        count = f"{few}" if few == many else f"{few} to {many}"
        again = f", in {self.turns} attempts" if self.turns > 1 else ""
        return (
            f"Reach a target from {self.lowest_target} to {self.highest_target} with {count} numbers and "
            f"{' '.join(self.operations)}{again}."
        )

    @property
    def rules(self) -> Rules:
        """Which problems are drawn."""
        return Rules(**{field.name: getattr(self, field.name) for field in fields(Rules)})

    def problem(self, seed: int) -> Problem:
        """The numbers, the target and the solution that a seed draws."""
        return draw_problem(self.rules, seed, _TRIES)

    def task(self, seed: int) -> Task:
        return task_of(self.name, self.problem(seed).line, seed)

    def episode(self) -> CountdownEpisode:
        return CountdownEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A random expression over the task's numbers that keeps the rules."""
        return self._random_term(self.problem(task.seed), rng).text

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest solutions of `tasks`."""
        counted = Counter(self.problem(task.seed).solution.text for task in tasks)
        return [text for text, _ in counted.most_common(MOST_BLIND)]

    def solver_steps(self, task: Task) -> Sequence[str]:
        """The operations of the solution with their results, such as `98-84=14`."""
        return self.problem(task.seed).solution.steps

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by trying expressions. See `tries`, `imperfect` and `template`."""
        problem = self.problem(task.seed)
        return played_through(self.episode(), task, lambda episode: self._demonstrated(problem, rng))

    def _demonstrated(self, problem: Problem, rng: random.Random) -> str:
        fails = rng.random() < self.imperfect
        if rng.random() < self.template:
            term = self._random_term(problem, rng) if fails else problem.solution
            return format_reply([term.text], template_in(self.thoughts, rng))
        wrong: dict[str, Term] = {}
        for term in (self._random_term(problem, rng) for _ in range(rng.randint(0, self.tries) + fails)):
            if term.value != problem.target:
                wrong.setdefault(term.text, term)
        terms = [*wrong.values(), problem.solution][: len(wrong) if fails and wrong else None]
        if self.thoughts == "english":
            return format_reply([terms[-1].text], english_thought(problem, terms, wording(rng)))
        # Each expression step by step, its value and the target, and whether they are equal.
        target = problem.target
        tried = (f"{' '.join(term.steps)} {target} {'yes' if term.value == target else 'no'}" for term in terms)
        return format_reply([terms[-1].text], " ".join(tried))

    def _random_term(self, problem: Problem, rng: random.Random) -> Term:
        """A random expression over the problem's numbers, whatever its value."""
        return draw_term(problem.numbers, self.rules, rng)

    def full_rules(self) -> str:
        form = (
            f"An answer is one expression in whole numbers, {' '.join(self.operations)} and brackets, without a sign "
            "before a number."
        )
        tell = " After a wrong answer you are told its value, and may try again." if self.turns > 1 else ""
        return (
            "Write an arithmetic expression whose value is the target. Use the given numbers and no others, each of "
            "them exactly once.\n"
            f"{free_text_rules(form, f'(9{self.operations[0]}2){self.operations[-1]}4', self.turns)}"
            f"Steps in between may be fractions or negative; nothing is rounded.{tell}\n"
        )


class CountdownEpisode(BaseEpisode[Countdown]):
    """One episode of `Countdown`."""

    __slots__ = ("_right_numbers", "problem")

    problem: Problem

    def begin(self, task: Task, member: int) -> str:
        self.problem = self.env.problem(task.seed)
        self._right_numbers = False
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        answer = read_answer(response, LONGEST)
        read = self._read(answer.text) if not answer.fault else ReadExpression(fault=answer.fault, kind=answer.kind)
        fits = not read.fault and Counter(read.numbers) == Counter(self.problem.numbers)
        target = self.problem.target
        solved = fits and read.value == target
        self._right_numbers |= fits
        over = solved or not self.turns_left
        partial = env.partial if over and not solved and self._right_numbers else 0.0
        return Played(
            fault=read.fault,
            rewards={"solved": 1.0} if solved else {"numbers": partial} if partial else {},
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            outcome=1.0 if solved else partial,
            progress=1.0 if solved else 0.5 * self._right_numbers,
            actions=() if read.fault else (read.text,),
            note=answer_fault_line(answer, env.brief) if answer.fault else self._remark(read, fits),
            shown="" if over else self._show(),
            effect=f"nothing for {target}; {read.fault}"
            if read.fault
            else f"{read.text} = {read.value} for {target}{'' if fits else '; wrong numbers'}",
            state=f"{self.problem.line}, attempt {self.turn}",
        )

    def _read(self, text: str) -> ReadExpression:
        read = read_expression(text)
        foreign = [one for one in (*OPERATIONS, SIGN) if one in read.operations and one not in self.env.operations]
        if foreign and not read.fault:
            which = "a sign before a number or bracket" if foreign[0] == SIGN else f"the operation {foreign[0]}"
            return ReadExpression(fault=f"{which} is not allowed", kind="not allowed")
        return read

    def _remark(self, read: ReadExpression, fits: bool) -> str:
        """What the next observation says about an answer that did not solve the task."""
        brief = self.env.brief
        if read.fault:
            return f"invalid {read.kind}\n" if brief else f"Your last answer was invalid: {read.fault}.\n"
        if brief:
            return f"{read.text}={read.value}{'' if fits else ' wrong numbers'}\n"
        numbers = ", ".join(map(str, self.problem.numbers))
        why = "" if fits else f" It must use {numbers} and nothing else, each exactly once."
        return f"Your last answer {read.text} has the value {read.value}.{why}\n"

    def _show(self) -> str:
        numbers = ", ".join(map(str, self.problem.numbers))
        state = self.problem.line if self.env.brief else f"Numbers: {numbers}. Target: {self.problem.target}."
        return f"{self.limits()}\n{state}"


_MOST_STEPS = 4
"""Steps of the two expressions that an English thought tells. With more of them it tells the last one alone."""


def english_thought(problem: Problem, terms: Sequence[Term], words: random.Random) -> str:
    """The numbers, the target and the answer's expression step by step (the last of `terms`).

    Where the last two expressions have few steps, the one before the answer's is told in place of the numbers.
    """
    told = terms[-2:] if sum(len(term.steps) for term in terms[-2:]) <= _MOST_STEPS else terms[-1:]
    numbers, target = listed(problem.numbers), problem.target
    short = (f"The target is {target}.", f"I want to reach {target}.", f"I look for {target}.")
    whole = (
        f"The numbers are {numbers}, and the target is {target}.",
        f"I have {numbers} and want to reach {target}.",
        f"The target is {target}, and I may use {numbers}.",
        f"I look for {target} with the numbers {numbers}.",
    )
    said = [words.choice(short if len(told) > 1 else whole)]
    joint = words.choice((", ", " and ", ", then "))
    for later, term in enumerate(told):
        openings = ("Next", "Another way:", "Instead,", "Now") if later else ("I try", "I compute", "I take")
        value = term.value
        found = (f"and {value} is the target.", f"which is the target {value}.", f"and {value} is reached.")
        missed = (f"but {value} is not {target}.", f"which is not {target}.", f"and {value} misses {target}.")
        steps = joint.join(term.steps or (term.text,))
        said.append(f"{words.choice(openings)} {steps}, {words.choice(found if value == target else missed)}")
    if len(told) == 1:
        said.append(words.choice(("I answer with this.", "This is my answer.", "I write this as my answer.")))
    return " ".join(said)
