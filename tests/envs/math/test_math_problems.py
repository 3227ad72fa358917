"""Generated word problems and the episode: right by a reader of its own, within limits, attempts worth half each."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest
from story_reader import read_story

from heedful.envs.common.actions import format_reply, read_reply
from heedful.envs.math.answers import LONGEST_ANSWER
from heedful.envs.math.environment import MathProblems
from heedful.envs.math.word_problems import KINDS, WordProblem, draw_problem
from heedful.envs.math.word_stories import STORIES
from heedful.types import Ending, Step

PROVED_SEEDS = 10_000

ENVIRONMENTS = [
    MathProblems(),
    MathProblems(most=2, largest=20),
    MathProblems(least=3, most=6, largest=12),
    MathProblems(most=6, largest=5000),
]
every_env = pytest.mark.parametrize("env", ENVIRONMENTS, ids=["default", "small", "long", "large"])

_STEP = re.compile(r"(-?\d+)([-+*/])(-?\d+)=(-?\d+)")


def drawn(env: MathProblems, seed: int) -> WordProblem:
    problem = env.problem(seed)
    assert isinstance(problem, WordProblem)
    return problem


def check_solution(env: MathProblems, seed: int) -> None:
    """The text's own answer, the worked steps, and the stated answer agree; every number keeps the limits."""
    problem = drawn(env, seed)
    assert read_story(problem.question) == problem.answer, problem.question
    in_text = [int(number) for number in re.findall(r"\d+", problem.question)]
    known = Counter(in_text)
    so_far = None
    for step in problem.steps:
        match = _STEP.fullmatch(str(step))
        assert match
        left, right, result = (Fraction(match[number]) for number in (1, 3, 4))
        assert {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[match[2]] == result
        new = [number for number in (left, right) if number != so_far] or [right]
        assert all(known[int(number)] for number in new), f"{step} uses a number that is not in: {problem.question}"
        assert 1 <= result <= env.largest
        so_far = result
    assert so_far == problem.answer
    assert env.least <= len(problem.steps) <= env.most
    assert all(2 <= number <= env.largest for number in in_text)


@every_env
def test_every_solution_agrees_with_a_reader_of_the_text(env: MathProblems) -> None:
    for seed in range(500):
        check_solution(env, seed)


@pytest.mark.proof
@every_env
def test_ten_thousand_solutions_agree_with_a_reader_of_the_text(
    env: MathProblems, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", PROVED_SEEDS)
    for seed in range(PROVED_SEEDS):
        check_solution(env, seed)


def test_every_wording_of_every_story_is_told_and_read() -> None:
    for story in STORIES:
        env, seed = MathProblems(kinds=(story.kind,), most=3), 0
        moves = (*story.openings, *story.events, *story.ends)
        unheard = {wording: _as_pattern(wording) for move in moves for wording in move.wordings}
        while unheard:
            assert seed < 600, unheard
            check_solution(env, seed)
            text, seed = drawn(env, seed).question, seed + 1
            unheard = {wording: pattern for wording, pattern in unheard.items() if not pattern.search(text)}
    assert len(STORIES) >= 8


def _as_pattern(wording: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(wording)))


def test_a_retelling_belongs_to_the_split_of_its_source() -> None:
    env = MathProblems(most=2, largest=20)
    splits: dict[str, set[str]] = {}
    told: dict[str, set[str]] = {}
    for seed in range(6000):
        source = drawn(env, seed).source
        splits.setdefault(source, set()).add(env.task(seed).split)
        told.setdefault(source, set()).add(drawn(env, seed).question)
    assert all(len(found) == 1 for found in splits.values())
    assert sum(len(found) > 1 for found in told.values()) > 500
    assert {split for found in splits.values() for split in found} == {"train", "val", "test"}


def test_every_kind_and_number_of_steps_is_drawn() -> None:
    env = MathProblems(least=1, most=3)
    seen = Counter((drawn(env, seed).kind, len(drawn(env, seed).steps)) for seed in range(3000))
    assert {kind for kind, _ in seen} == set(KINDS)
    steps = Counter(count for _, count in seen.elements())
    assert set(steps) == {1, 2, 3}
    assert min(steps.values()) > 600
    assert env.task(0).tags == (drawn(env, 0).kind,)


def test_a_wrong_step_is_carried_on_and_a_right_one_is_carried_out() -> None:
    rng = random.Random(0)
    for seed in range(300):
        problem = drawn(MathProblems(least=3, most=5), seed)
        steps = [_STEP.fullmatch(str(step)) for step in problem.worked(0.4, 100, rng)]
        assert len(steps) == len(problem.steps)
        results = [int(step[4]) for step in steps if step]
        assert [step[2] for step in steps if step] == [step.sign for step in problem.steps]
        for before, step in zip(results, steps[1:], strict=False):
            assert step
            assert before in (int(step[1]), int(step[3]))
    assert drawn(ENVIRONMENTS[0], 0).worked(0.0, 100, rng)[-1].result == drawn(ENVIRONMENTS[0], 0).answer


def answered(env: MathProblems, seed: int, *answers: str) -> list[Step]:
    episode = env.episode()
    episode.start(env.task(seed), 0)
    return [episode.step(format_reply([answer], "hm")) for answer in answers]


def test_a_later_attempt_is_worth_half_and_solves_all_the_same() -> None:
    env = MathProblems(turns=4)
    right = str(drawn(env, 3).answer)
    for wrong in range(4):
        steps = answered(env, 3, *["100000"] * wrong, right)
        assert [dict(step.rewards) for step in steps[:-1]] == [{}] * wrong
        assert dict(steps[-1].rewards) == {"solved": 0.5**wrong}
        assert (steps[-1].ending, steps[-1].outcome) == (Ending.SOLVED, 1.0)
    lost = answered(env, 3, *["100000"] * 4)
    assert (lost[-1].ending, lost[-1].outcome) == (Ending.OUT_OF_TURNS, 0.0)
    assert not any(step.rewards for step in lost)


@pytest.mark.parametrize(
    ("answer", "first_line"),
    [
        ("100000", "Your last answer was wrong."),
        ("no idea", "Your last answer was wrong."),
        ("3+4*", "Your last answer was wrong."),
        ("", "Your last reply was invalid: the answer is empty. The turn is spent."),
        ("7" * 600, f"Your last reply was invalid: the answer has 600 characters, more than {LONGEST_ANSWER}."),
    ],
)
def test_feedback_tells_a_wrong_answer_from_none_and_shows_the_problem_again(answer: str, first_line: str) -> None:
    env = MathProblems()
    (step,) = answered(env, 7, answer)
    lines = step.observation.text.split("\n")
    assert lines[0].startswith(first_line)
    assert lines[1:] == ["Turns left: 2.", drawn(env, 7).question]
    assert step.valid == ("wrong" in lines[0])
    brief = dataclasses.replace(env, instructions="brief")
    word = answered(brief, 7, answer)[0].observation.text.split("\n")[0]
    assert word == "wrong" if step.valid else word.startswith("invalid ")


def test_nothing_that_is_shown_depends_on_the_answer() -> None:
    """Two problems whose texts differ in one number look alike but for it, whatever is answered."""
    env = MathProblems(show_reward=True)
    for seed in range(50):
        question = drawn(env, seed).question
        episode = env.episode()
        shown = [episode.start(env.task(seed), 0).text]
        shown += [episode.step(format_reply([answer], "")).observation.text for answer in ("-1", "words")]
        rest = " ".join(text.replace(question, "") for text in shown)
        assert set(re.findall(r"\d+", rest)) <= {"12", "3", "2", "1", "0"}


def test_drawn_problems_take_no_algebra() -> None:
    env = MathProblems()
    right = drawn(env, 0).answer
    steps = answered(env, 0, f"{right - 1}+1", f"{right}.0 dollars")
    assert [step.valid for step in steps] == [True, True]
    assert [step.ending for step in steps] == [None, Ending.SOLVED]


def test_a_story_without_room_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="no word problem of 2 to 2 steps with numbers up to 3 was found"):
        draw_problem(random.Random(0), ("prices",), 2, 2, 3)


def test_the_random_player_joins_two_numbers_of_the_text() -> None:
    env = MathProblems()
    rng = random.Random(0)
    for seed in range(100):
        numbers = {Fraction(number) for number in re.findall(r"\d+", drawn(env, seed).question)}
        answer = Fraction(env.random_answer(env.task(seed), rng))
        joined = {one + other for one in numbers for other in numbers} | {a - b for a in numbers for b in numbers}
        joined |= {one * other for one in numbers for other in numbers} | {a / b for a in numbers for b in numbers}
        assert answer in joined


def test_demonstrated_thoughts_are_the_worked_steps() -> None:
    env = MathProblems(instructions="brief")
    for seed in range(50):
        ((_, reply),) = env.demonstrate(env.task(seed), random.Random(0))
        assert reply.startswith(f"<think>{' '.join(map(str, drawn(env, seed).steps))}</think>")
        assert read_reply(reply, [str(drawn(env, seed).answer)], 1).actions
