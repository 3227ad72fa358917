r"""Math: word problems drawn here, or the problems of a file, answered in free text with several attempts.

A task and its rephrasings are in one split, and the answer is never shown. The judgement of a right answer does not
depend on its notation: `answers` compares exactly, and `verifier` decides by algebra in its own process.

The paper's environment is MetaMathQA with rewards 1, 1/2, 1/4, ... for the first, second, third attempt. Deviations:
the published code compares lower-cased strings and allows one attempt. Here answers are compared as numbers and
expressions, and all attempts are allowed. That a problem was solved late lowers the reward, not the outcome.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Distinct, Seconds, Share
from heedful.envs.common.actions import format_reply
from heedful.envs.common.answers import answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, Turns, check_range
from heedful.envs.common.demonstrations import listed, phrase, played_through, sentence, template_in, wording
from heedful.envs.common.tasks import task_of
from heedful.envs.math.answers import LONGEST_ANSWER, MOST_DIGITS, Judgement, judge
from heedful.envs.math.files import FiledProblem, ProblemFile, check_named, open_problems
from heedful.envs.math.verifier import check_installed, verify
from heedful.envs.math.word_problems import (
    KINDS,
    LEAST_LARGEST,
    MOST_STEPS,
    WordProblem,
    WorkedStep,
    draw_problem,
    longest_story,
)
from heedful.types import Ending, Task

BLIND_ANSWERS = 16
"""Candidate answers for the best player that does not read."""

_SAID = {Judgement.RIGHT: "right", Judgement.WRONG: "wrong", Judgement.UNDECIDED: "not verified"}

_NUMERAL = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MathProblems(SolvableEnvironment):
    """Solve math problems. At the defaults a random player solves 1 problem in 5.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 3 moves 1
    Felix buys 46 stickers for 2 dollars each. A coupon takes 8 dollars off. How many dollars does Felix pay?
    ```
    ```
    <think>46*2=92 92-8=84</think><answer>84</answer>
    ```

    Without `path` the problems are drawn: stories of twelve kinds, whole numbers. Reward components: `solved` (+1 at
    the first attempt, then half as much with each further one) and `format` (minus the penalty, once per turn whose
    answer cannot be read). Outcome: 1 if solved at any attempt, else 0. There is no noise.
    """

    name: ClassVar[str] = "math"
    english: ClassVar[bool] = True

    path: str = ""
    """Problems of your own in place of drawn ones: a .jsonl or .parquet file, or the name of a dataset that the library
    `datasets` can load, such as meta-math/MetaMathQA."""
    subset: str = ""
    """Which configuration of a `datasets` name: main of openai/gsm8k."""
    part: str = "train"
    """Which split of a `datasets` name is read. What is read is divided into train, val and test by source problem."""
    skip_faulty: bool = False
    """Leave out the rows of a file that have no question or no answer, instead of refusing the file."""
    algebra: bool = True
    """Problems of a file: decide by algebra what the exact reader cannot. Without it such an answer is wrong."""
    patience: Seconds = 5.0
    """Seconds that the algebra of one answer may take. Then it counts as not verified, which is wrong."""
    kinds: Annotated[tuple[str, ...], Distinct(1, KINDS)] = KINDS
    """Drawn problems: the stories."""
    least: Annotated[int, Interval(ge=1, le=MOST_STEPS)] = 1
    """Drawn problems: fewest steps of a solution."""
    most: int = 3
    """Drawn problems: most steps of a solution. The number of a problem is drawn uniformly."""
    largest: Annotated[int, Interval(ge=LEAST_LARGEST)] = 100
    """Drawn problems: largest number in a text or in its solution."""
    turns: Turns = 3
    """Attempts."""
    imperfect: Share = 0.0
    """Demonstrations: chance of each step of a drawn problem that a random number takes the place of the right one,
    with which the solution goes on. Of a file's problem, that the answer is a random one."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the problem. Their answer is
    right, but there is no way to it."""

    def check(self) -> None:
        check_range(self.name, "most", self.most, self.least, MOST_STEPS)
        check_range(self.name, "least", self.least, 1, longest_story(self.kinds))
        if self.path:
            check_named(self.path)

    @property
    def summary(self) -> str:
        times = "in one attempt" if self.turns == 1 else f"in {self.turns} attempts"
        if self.path:
            return f"Solve problems from {self.path}, {times}."
        steps = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"Solve word problems of {steps} steps with numbers up to {self.largest}, {times}."

    def problem(self, seed: int) -> FiledProblem | WordProblem:
        """The problem that a seed draws.

        Raises:
            ValueError: the file cannot be read, or has rows without question or answer.
            ModuleNotFoundError: a library that it takes is not installed.
        """
        if not self.path:
            return _drawn(seed, self.kinds, self.least, self.most, self.largest)
        problems = self._file()
        return problems[random.Random(f"math:{seed}").randrange(len(problems))]

    def _file(self) -> ProblemFile:
        if self.algebra:
            check_installed()
        return open_problems(self.path, self.subset, self.part, self.skip_faulty)

    def task(self, seed: int) -> Task:
        problem = self.problem(seed)
        tags = (problem.kind,) if problem.kind else ()
        return task_of(self.name, f"{problem.question}\n{problem.answer}", seed, tags, kin=problem.source)

    def episode(self) -> MathEpisode:
        return MathEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """Two numbers of the problem's text, joined by a random operation. Any number if the text has none."""
        numerals = _NUMERAL.findall(self.problem(task.seed).question)
        numbers = [Fraction(numeral) for numeral in numerals if len(numeral) <= MOST_DIGITS]
        if len(numbers) < 2:
            return str(rng.randint(1, self.largest))
        one, other = rng.sample(numbers, 2)
        results = [one + other, one - other, one * other]
        if other:
            results.append(one / other)
        return str(rng.choice(results))

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest right answers of `tasks`."""
        counted = Counter(str(self.problem(task.seed).answer) for task in tasks)
        return [answer for answer, _ in counted.most_common(BLIND_ANSWERS)]

    def solver_steps(self, task: Task) -> Sequence[str]:
        """The operations of a drawn problem's solution with their results. None of a file's problem."""
        problem = self.problem(task.seed)
        return tuple(map(str, problem.steps)) if isinstance(problem, WordProblem) else ()

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, working the problem out in each attempt. See `imperfect` and `template`."""
        return played_through(self.episode(), task, lambda episode: self._demonstrated(episode.problem, rng))

    def _demonstrated(self, problem: FiledProblem | WordProblem, rng: random.Random) -> str:
        english = self.thoughts == "english"
        if rng.random() < self.template:
            return format_reply([str(problem.answer)], template_in(self.thoughts, rng))
        if isinstance(problem, WordProblem):
            steps = problem.worked(self.imperfect, self.largest, rng)
            thought = solved_thought(problem.question, steps, wording(rng)) if english else " ".join(map(str, steps))
            return format_reply([str(steps[-1].result)], thought)
        if rng.random() < self.imperfect:
            guess = rng.randint(1, self.largest)
            return format_reply([str(guess)], guess_thought(guess, wording(rng)) if english else f"i guess {guess}")
        return format_reply([problem.answer], problem.solution)

    def judge(self, problem: FiledProblem | WordProblem, answer: str) -> Judgement:
        """Whether an answer is right. With a file's problem, algebra decides where exact reading cannot tell."""
        found = judge(str(problem.answer), answer)
        if found is Judgement.UNDECIDED and self.path and self.algebra:
            return verify(str(problem.answer), answer, self.patience)
        return found

    def full_rules(self) -> str:
        form = "The answer is a number" + (" or an expression, in LaTeX if you like." if self.path else ".")
        again = ""
        if self.turns > 1:
            again = " If an answer is wrong you may try again; each further attempt is worth half as much."
        return f"Solve the problem.{again}\n{free_text_rules(form, '12', self.turns)}"


class MathEpisode(BaseEpisode[MathProblems]):
    """One episode of `MathProblems`."""

    __slots__ = ("problem",)

    problem: FiledProblem | WordProblem

    def begin(self, task: Task, member: int) -> str:
        self.problem = self.env.problem(task.seed)
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        read = read_answer(response, LONGEST_ANSWER)
        judged = Judgement.WRONG if read.fault else env.judge(self.problem, read.text)
        solved = judged is Judgement.RIGHT
        over = solved or not self.turns_left
        note = answer_fault_line(read, env.brief)
        if not read.fault and not solved:
            note = "wrong\n" if env.brief else "Your last answer was wrong.\n"
        return Played(
            fault=read.fault,
            rewards={"solved": 0.5 ** (self.turn - 1)} if solved else {},
            ending=Ending.SOLVED if solved else Ending.OUT_OF_TURNS if over else None,
            actions=(read.text,) if read.text else (),
            note=note,
            shown="" if over else self._show(),
            effect=f"attempt {self.turn}: {read.fault or _SAID[judged]}",
            state=f"attempt {self.turn} of {env.turns}, {'solved' if solved else 'not solved'}",
        )

    def _show(self) -> str:
        return f"{self.limits()}\n{self.problem.question}"


@lru_cache(maxsize=4096)
def _drawn(seed: int, kinds: tuple[str, ...], least: int, most: int, largest: int) -> WordProblem:
    return draw_problem(random.Random(f"math:{seed}"), kinds, least, most, largest)


_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}

_MOST_IN_WORDS = 2
"""Steps of a solution that is told without signs. A longer one has to be short in each step."""


def solved_thought(question: str, steps: Sequence[WorkedStep], words: random.Random) -> str:
    """The numbers of the problem, what it asks, the steps, and the number that the last one gives."""
    numbers = listed(re.findall(r"\d+", question))
    given = phrase(
        words,
        ("The problem gives", "The numbers in the text are", "I am given", "I read the numbers", "I have the numbers"),
    )
    asked = phrase(
        words, ("It asks:", "The question is:", "I have to find out:", "The task asks:", "I need to answer:")
    )
    forms = ["{left}{sign}{right}={result}", "{left}{sign}{right} is {result}", "{left}{sign}{right} gives {result}"]
    if len(steps) <= _MOST_IN_WORDS:
        forms += ["{left} {word} {right} is {result}", "{left} {word} {right} gives {result}"]
    form = words.choice(forms)
    told = [
        form.format(left=step.left, sign=step.sign, word=_SIGNS[step.sign], right=step.right, result=step.result)
        for step in steps
    ]
    joint = words.choice((", then ", ". Then ", "; next "))
    first = words.choice(("", "step by step: ", "first ", "I work it out: "))
    answer = phrase(words, ("The answer is", "My answer is", "I answer", "I end with", "The result is"))
    asks = question[question.rfind(". ") + 2 :] if ". " in question else question
    return f"{given} {numbers}. {asked} {asks} {sentence(first + joint.join(told))}. {answer} {steps[-1].result}."


def guess_thought(guess: int, words: random.Random) -> str:
    """An answer that no way leads to."""
    return phrase(
        words,
        ("I have not worked this problem out", "I do not know how to solve this", "I did not find a way to solve this"),
        ("and do not want to leave it open.", "but any answer may be tried.", "and still have to say something."),
        ("I guess", "My guess is", "I say", "I try"),
        (f"{guess}.",),
    )
