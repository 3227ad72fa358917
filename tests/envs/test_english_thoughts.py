"""Thoughts in English: what they say is read back from the text and compared with the observation they follow."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.envs import ENVIRONMENTS
from heedful.envs.common.actions import CLOSE_ANSWER, OPEN_ANSWER, SEPARATOR, thought_of
from heedful.envs.common.base import IN_ENGLISH, SolvableEnvironment
from heedful.envs.common.demonstrations import english_template, listed
from heedful.envs.countdown import Countdown
from heedful.envs.countdown.arithmetic import read_expression
from heedful.envs.frozen_lake import FrozenLake
from heedful.envs.math import MathProblems
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain

TASKS = 100
ENGLISH: list[Any] = [
    Bandit(thoughts="english"),
    Chain(thoughts="english", turns=2),
    MathProblems(thoughts="english"),
    Countdown(thoughts="english", turns=2),
    FrozenLake(thoughts="english"),
]
every_english_one = pytest.mark.parametrize("env", ENGLISH, ids=lambda env: env.name)

_SIGNS = {"plus": "+", "minus": "-", "times": "*", "divided by": "/"}
_STEP = re.compile(r"(-?\d+) ?([-+*/]|plus|minus|times|divided by) ?(-?\d+)(?:=| is | gives | makes | leaves )(-?\d+)")
_PLACE = r"(?:row (\d+),? column (\d+)|\((\d+), (\d+)\))"


class Text:
    """A thought from which statements are taken as they are read. No figure may be left in the end."""

    def __init__(self, text: str) -> None:
        self.left = text

    def take(self, pattern: str) -> list[re.Match[str]]:
        found = list(re.finditer(pattern, self.left))
        self.left = re.sub(pattern, "~", self.left)
        return found

    def all_read(self) -> None:
        assert not re.search(r"\d", self.left), self.left


def demonstrated(env: Any, tasks: int = TASKS, seed: int = 3) -> Iterator[tuple[str, str, str]]:
    """Observation, thought and answer of every turn of `tasks` demonstrations."""
    rng = random.Random(seed)
    for task in map(env.task, range(tasks)):
        for shown, reply in env.demonstrate(task, rng):
            yield shown, thought_of(reply), answer_of(reply)


def answer_of(reply: str) -> str:
    return reply.partition(OPEN_ANSWER)[2].removesuffix(CLOSE_ANSWER)


def read_bandit(shown: str, thought: str, answer: str, flawed: bool) -> None:
    rows = dict(re.findall(r"^(Owl|Fox) ([01 ]+)$", shown, re.M))
    text = Text(thought)
    told = text.take(r"(Owl|Fox) (?:paid|has|shows) ([01 ]+), (?:which is |that makes |a sum of )?(\d+)")
    assert {said[1]: said[2] for said in told} == rows
    sums = {said[1]: int(said[3]) for said in told}
    assert sums == {name: row.count("1") for name, row in rows.items()}
    worse, better = sorted(sums, key=lambda name: sums[name])
    (compared,) = text.take(
        rf"{better} has the higher sum|{better} paid more often than {worse}|{worse} paid less often than {better}|"
        rf"{sums[better]} is more than {sums[worse]}|{better} is ahead with {sums[better]} against {sums[worse]}"
    )
    assert compared
    assert text.left.endswith(f" {answer}.")
    assert flawed or answer == better
    text.all_read()


def read_chain(shown: str, thought: str, answer: str, flawed: bool) -> None:
    *_, modulus, row = shown.splitlines()
    start, *operations = re.findall(r"^\d|[-+*]\d", row)
    head, _, steps = thought.partition(". ")
    assert sorted(re.findall(r"\d+", head)) == sorted([start, modulus.removeprefix("mod ")])
    *told, last = re.split(r", then |, |; |\. ", steps.removesuffix("."))
    assert last.rpartition(" ")[2] == answer
    assert len(told) == len(operations)
    before, true = int(start), []
    for operation, step in zip(operations, told, strict=True):
        match = re.fullmatch(
            r"(?:(\d)([-+*])|(Plus|Minus|Times|plus|minus|times) )(\d) (?:gives|leaves|makes|is) (\d)", step
        )
        assert match, step
        assert (match[2] or _SIGNS[match[3].lower()]) + match[4] == operation
        assert match[1] in (None, str(before))
        true.append(int(match[5]) == value(before, operation[0], int(operation[1])) % int(modulus[4:]))
        before = int(match[5])
    assert str(before) == answer
    assert flawed or all(true)


def read_math(shown: str, thought: str, answer: str, flawed: bool) -> None:
    question = shown.splitlines()[-1]
    asked = question[question.rindex(". ") + 2 :]
    numbers = re.findall(r"\d+", question)
    given, found, worked = thought.partition(asked)
    assert found
    assert re.search(rf"\b{re.escape(listed(numbers))}\. ", given)
    text = Text(worked)
    known, last = list(map(int, numbers)), 0
    for step in text.take(_STEP.pattern):
        left, right, last = int(step[1]), int(step[3]), int(step[4])
        assert {left, right} <= set(known)
        assert flawed or value(left, _SIGNS.get(step[2], step[2]), right) == last
        known.append(last)
    assert text.take(rf"(?<=[a-z]) {re.escape(answer)}\.$")
    assert str(last) == answer
    text.all_read()


def read_countdown(shown: str, thought: str, answer: str, flawed: bool) -> None:
    (state,) = re.findall(r"Numbers: ([\d, ]+)\. Target: (\d+)\.", shown)
    numbers, target = state[0].split(", "), int(state[1])
    text = Text(thought)
    tried = text.take(rf"((?:{_STEP.pattern}(?:, then |, | and )?)+)(and|which|but) ([^.]+)\.")
    for one in tried:
        steps = [_STEP.fullmatch(step) for step in re.split(r", then |, | and ", one[1].strip(", "))]
        assert all(step and value(int(step[1]), step[2], int(step[3])) == int(step[4]) for step in steps)
        result = int(steps[-1][4])  # type: ignore[index]
        hit = rf"{result} is the target|is the target {result}|{result} is reached"
        miss = rf"{result} is not {target}|is not {target}|{result} misses {target}"
        assert re.fullmatch(hit if result == target else miss, one[7]), one[0]
    assert read_expression(answer).value == result
    assert flawed or result == target
    if len(tried) == 1:
        assert listed(numbers) in text.left
        text.take(re.escape(listed(numbers)))
    text.take(rf"\b{target}\b")
    text.all_read()


def read_lake(shown: str, thought: str, answer: str, flawed: bool) -> None:
    grid = [line for line in shown.splitlines() if re.fullmatch(r"[POG_]{4}", line)]
    cells = {(row, column): cell for row, line in enumerate(grid) for column, cell in enumerate(line)}
    (player,), (goal,) = ([place for place, cell in cells.items() if cell == mark] for mark in "PG")
    text = Text(thought)
    places = [tuple(int(figure) for figure in place.groups() if figure) for place in text.take(_PLACE)]
    assert set(places[:2]) == {player, goal}
    assert all(cells[place] == "O" for place in places[2:])  # type: ignore[index]
    ways = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}
    moved = [[int(part[1]) * step for step in ways[part[2]]] for part in text.take(r"(\d+) (down|up|right|left)")]
    assert (player[0] + sum(row for row, _ in moved), player[1] + sum(column for _, column in moved)) == goal
    if len(places) == 2:
        assert "shortest way has no hole beside it" in thought or "shortest way with no hole beside it" in thought
        assert len(crossing(cells, player, goal, True)) == len(crossing(cells, player, goal, False))
    plan = re.findall(r"Left|Down|Right|Up", thought)
    assert answer.split(f" {SEPARATOR} ") == plan[: len(answer.split(SEPARATOR))]
    if not flawed:
        end = player
        for move in plan:
            end = (end[0] + ways[move.lower()][0], end[1] + ways[move.lower()][1])
            assert cells.get(end, "O") != "O"
        assert len(crossing(cells, player, goal, False)) == len(plan) + len(crossing(cells, end, goal, False))
    text.all_read()


def crossing(cells: dict[Any, str], start: Any, goal: Any, away: bool) -> list[int]:
    """As many entries as a shortest way has moves. `away`: of those with no hole beside them."""

    def around(place: Any) -> list[Any]:
        return [(place[0] + down, place[1] + right) for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))]

    def free(place: Any) -> bool:
        return not away or all(cells.get(near) != "O" for near in around(place))

    reached, moves = {start} if free(start) else set(), []
    while goal not in reached:
        further = {near for place in reached for near in around(place) if cells.get(near, "O") != "O" and free(near)}
        assert not further <= reached, "there is no such way"
        reached |= further
        moves.append(len(reached))
    return moves


def value(left: int, sign: str, right: int) -> float:
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else 0}[sign]


READ: dict[str, Callable[[str, str, str, bool], None]] = {
    "bandit": read_bandit,
    "chain": read_chain,
    "math": read_math,
    "countdown": read_countdown,
    "frozen_lake": read_lake,
}


@every_english_one
def test_what_an_english_thought_says_is_true_and_its_plan_is_the_answer(env: Any) -> None:
    for shown, thought, answer in demonstrated(env):
        READ[env.name](shown, thought, answer, False)


@every_english_one
def test_an_imperfect_english_thought_tells_the_state_truly_and_the_random_plan(env: Any) -> None:
    faulty = dataclasses.replace(env, imperfect=1.0)
    wrong = 0
    for shown, thought, answer in demonstrated(faulty, 60):
        READ[env.name](shown, thought, answer, True)
        assert not re.search(r"\b(because|therefore|hence|so)\b", thought)
        try:
            READ[env.name](shown, thought, answer, False)
        except AssertionError:
            wrong += 1
    assert wrong >= 20


@every_english_one
def test_answers_are_the_same_in_english_and_terse(env: Any) -> None:
    mixed = dataclasses.replace(env, imperfect=0.3, template=0.3)
    here, there = random.Random(5), random.Random(5)
    terse = dataclasses.replace(mixed, thoughts="terse")
    for task in map(env.task, range(TASKS)):
        pairs = zip(mixed.demonstrate(task, here), terse.demonstrate(task, there), strict=True)
        for (shown, reply), (shown_terse, reply_terse) in pairs:
            assert (shown, answer_of(reply)) == (shown_terse, answer_of(reply_terse))
            assert thought_of(reply) != thought_of(reply_terse)
    assert here.getstate() == there.getstate()


@every_english_one
def test_english_thoughts_of_one_task_are_varied(env: Any) -> None:
    task = env.task(1)
    thoughts = [thought_of(env.demonstrate(task, random.Random(seed))[0][1]) for seed in range(300)]
    assert len(set(thoughts)) >= 50


@every_english_one
def test_english_thoughts_have_15_to_60_words(env: Any) -> None:
    for share in (0.0, 1.0):
        for _, thought, _ in demonstrated(dataclasses.replace(env, template=share)):
            assert 15 <= len(thought.split()) <= 60
            assert thought[0].isupper() or thought[0].isdigit()
            assert thought.endswith(".")
            assert "  " not in thought


@every_english_one
def test_an_english_template_is_the_same_for_all_tasks_and_names_nothing_of_any(env: Any) -> None:
    vague = dataclasses.replace(env, template=1.0)
    firsts = {thought_of(vague.demonstrate(vague.task(seed), random.Random(7))[0][1]) for seed in range(50)}
    assert firsts == {thought_of(vague.demonstrate(vague.task(0), random.Random(7))[0][1])}
    names = {name.lower() for name in getattr(env, "actions", ())}
    for _, thought, _ in demonstrated(vague, 100):
        assert not names & set(re.findall(r"\w+", thought.lower()))
        assert not re.search(r"\d|\b(row|column|hole|goal|arm|sum|number|target|modulo|problem)s?\b", thought)


def test_english_templates_have_more_than_5000_wordings() -> None:
    rng = random.Random(0)
    templates = {english_template(rng) for _ in range(6_000)}
    assert len(templates) > 5_000
    assert all(15 <= len(template.split()) <= 60 for template in templates)


def test_a_long_row_of_payouts_is_told_by_its_sum() -> None:
    env = Bandit(thoughts="english", history=40)
    for shown, thought, answer in demonstrated(env, 50):
        sums = {name: row.count("1") for name, row in re.findall(r"^(Owl|Fox) ([01 ]+)$", shown, re.M)}
        told = re.findall(r"(Owl|Fox) (?:paid|has) (\d+) (?:of 40 times|payouts in 40 pulls)", thought)
        assert {name: int(count) for name, count in told} == sums
        assert answer == max(sums, key=lambda name: sums[name])


def test_the_other_environments_refuse_english_and_name_those_that_have_it() -> None:
    solvable = {name: made for name, made in ENVIRONMENTS.items() if issubclass(made, SolvableEnvironment)}
    assert {name for name, made in solvable.items() if made.english} == set(IN_ENGLISH) == set(READ)
    others = sorted(set(solvable) - set(IN_ENGLISH))
    assert len(others) >= 5
    for name in others:
        made: Any = solvable[name]
        with pytest.raises(ValueError, match=r"^\w+: thoughts must be 'terse'.* exist for bandit, chain, countdown, "):
            made(thoughts="english")


TERSE = {
    "bandit": "72b133eaffb2df49",
    "chain": "315b6a88aa25a063",
    "math": "91d2d7f9f3267547",
    "countdown": "4fa412f2ec3764ab",
    "frozen_lake": "e36abfb1e3e8f3a8",
}
"""Digests of 50 demonstrations each, written by the version that had no other thoughts."""


@every_english_one
def test_terse_demonstrations_are_those_of_the_version_without_english(env: Any) -> None:
    terse = dataclasses.replace(env, thoughts="terse", imperfect=0.3, template=0.2)
    rng = random.Random(11)
    pairs = itertools.chain.from_iterable(terse.demonstrate(terse.task(seed), rng) for seed in range(50))
    assert hashlib.sha256(repr(list(pairs)).encode()).hexdigest()[:16] == TERSE[env.name]


def test_the_examples_of_the_documentation_are_real() -> None:
    page = (Path(__file__).parents[2] / "docs" / "built_in.md").read_text(encoding="utf-8")
    examples = re.findall(r"^(\w+) (\d+): (<think>.*)$", page.partition("### Thoughts in English")[2], re.M)
    assert len(examples) == 1
    for name, seed, reply in examples:
        made: Any = ENVIRONMENTS[name]
        env = made(thoughts="english")
        assert env.demonstrate(env.task(int(seed)), random.Random(0))[0][1] == reply
