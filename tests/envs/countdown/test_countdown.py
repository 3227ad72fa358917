"""Countdown: problems that are proved, answers that are judged exactly, and what is paid for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.countdown.arithmetic import read_expression
from heedful.envs.countdown.environment import Countdown, CountdownEpisode
from heedful.envs.countdown.problems import Problem, Term, combine
from heedful.types import Ending, Step

SMALL = Countdown(
    most_numbers=3, largest=12, operations=("+", "-", "*"), lowest_target=1, highest_target=60, largest_step=60
)
ENVIRONMENTS = [
    SMALL,
    Countdown(),
    Countdown(least_numbers=4, most_numbers=5, largest=25, lowest_target=1),
    Countdown(least_numbers=6, most_numbers=8, highest_target=999, largest=50),
    Countdown(least_numbers=2, most_numbers=2, operations=("/",), lowest_target=2),
]
every_kind = pytest.mark.parametrize("env", ENVIRONMENTS, ids=range(len(ENVIRONMENTS)))


def problem_of(*numbers: int, target: int) -> Problem:
    return Problem(numbers, target, Term("", target))


def started(env: Countdown, *numbers: int, target: int) -> CountdownEpisode:
    """An episode on a problem of our own."""
    episode = env.episode()
    episode.start(env.task(0), 0)
    episode.problem = problem_of(*numbers, target=target)
    return episode


def answer(episode: CountdownEpisode, text: str) -> Step:
    return episode.step(format_reply([text], "a thought"))


def check_problems(env: Countdown, seeds: int) -> None:
    """Each solution, read by the exact parser, keeps every knob and gives the target."""
    for seed in range(seeds):
        problem = env.problem(seed)
        read = read_expression(problem.solution.text)
        assert read.value == problem.target
        assert read.operations <= set(env.operations)
        assert Counter(read.numbers) == Counter(problem.numbers)
        assert list(problem.numbers) == sorted(problem.numbers)
        assert env.least_numbers <= len(problem.numbers) <= env.most_numbers
        assert all(env.smallest <= number <= env.largest for number in problem.numbers)
        assert env.lowest_target <= problem.target <= env.highest_target
        for step in problem.solution.steps:
            left, right = step.split("=")
            assert read_expression(left).value == int(right)
            assert 0 < int(right) <= env.largest_step


@every_kind
def test_each_problem_comes_with_a_solution_that_keeps_its_rules(env: Countdown) -> None:
    check_problems(env, 100)


@pytest.mark.proof
@every_kind
def test_each_of_ten_thousand_problems_has_a_solution(
    env: Countdown, record_property: Callable[[str, Any], None]
) -> None:
    record_property("cases", 10_000)
    check_problems(env, 10_000)


def test_brackets_stand_where_they_are_needed_and_nowhere_else() -> None:
    two, three, six = (Term(str(number), number) for number in (2, 3, 6))

    def text(left: Term, sign: str, right: Term) -> str:
        found = combine(left, sign, right)
        assert found is not None
        assert read_expression(found.text).value == found.value
        return found.text

    def term(left: Term, sign: str, right: Term) -> Term:
        found = combine(left, sign, right)
        assert found is not None
        return found

    assert text(term(two, "+", three), "*", six) == "(2+3)*6"
    assert text(six, "-", term(three, "-", two)) == "6-(3-2)"
    assert text(six, "+", term(three, "-", two)) == "6+3-2"
    assert text(six, "/", term(six, "/", three)) == "6/(6/3)"
    assert text(six, "*", term(six, "/", three)) == "6*(6/3)"
    assert text(six, "*", term(two, "*", three)) == "6*2*3"
    assert text(term(two, "*", three), "+", six) == "2*3+6"
    assert combine(two, "-", three) is None
    assert combine(two, "-", two) is None
    assert combine(three, "/", two) is None


def test_an_exact_answer_solves_and_a_near_one_does_not() -> None:
    step = answer(started(Countdown(), 1, 3, 3, 8, target=24), "8 ÷ (3 - 8/3)")
    assert step.effect == "8/(3-8/3) = 24 for 24; wrong numbers"
    assert step.outcome == 0.0
    env = Countdown(least_numbers=4, smallest=3, largest=8, lowest_target=24)
    step = answer(started(env, 3, 3, 8, 8, target=24), "8 ÷ (3 - 8/3) = 24")
    assert (step.ending, step.outcome, dict(step.rewards)) == (Ending.SOLVED, 1.0, {"solved": 1.0})
    assert step.actions == ("8/(3-8/3)",)
    step = answer(started(env, 3, 3, 8, 8, target=24), "8/3*8+3")
    assert step.effect == "8/3*8+3 = 73/3 for 24"
    assert step.outcome == 0.1


@pytest.mark.parametrize(
    ("text", "outcome", "rewards", "progress"),
    [
        ("2*3+4", 1.0, {"solved": 1.0}, 1.0),
        ("4 + 2 x 3 = 99", 1.0, {"solved": 1.0}, 1.0),
        ("2+3+4", 0.1, {"numbers": 0.1}, 0.5),
        ("2*3+4+0", 0.0, {}, 0.0),
        ("10", 0.0, {}, 0.0),
        ("2*5", 0.0, {}, 0.0),
        ("2*3+4*", 0.0, {"format": -0.1}, 0.0),
        ("2**3+4", 0.0, {"format": -0.1}, 0.0),
        ("(4+2)/(3-3)", 0.0, {"format": -0.1}, 0.0),
        ("-2+3*4", 0.0, {"format": -0.1}, 0.0),
        ("٢*3+4", 0.0, {"format": -0.1}, 0.0),
        ("eval('10')", 0.0, {"format": -0.1}, 0.0),
    ],
)
def test_what_an_answer_is_paid(text: str, outcome: float, rewards: dict[str, float], progress: float) -> None:
    step = answer(started(SMALL, 2, 3, 4, target=10), text)
    assert (step.outcome, dict(step.rewards), step.progress) == (outcome, rewards, progress)
    assert step.valid == ("format" not in rewards)


def test_an_operation_that_is_not_allowed_is_a_fault_and_is_named() -> None:
    step = answer(started(SMALL, 2, 3, 6, target=9), "6/2*3")
    assert step.effect == "nothing for 9; the operation / is not allowed"
    assert dict(step.rewards) == {"format": -0.1}


def test_attempts_are_answered_by_the_value_and_paid_once() -> None:
    env = Countdown(turns=4, partial=0.2)
    episode = started(env, 2, 3, 4, target=10)
    first = answer(episode, "2 + 3 + 4")
    assert (first.ending, first.outcome, dict(first.rewards)) == (None, None, {})
    assert first.observation.text == (
        "Your last answer 2+3+4 has the value 9.\nTurns left: 3.\nNumbers: 2, 3, 4. Target: 10."
    )
    second = answer(episode, "2*3*4/5")
    assert second.observation.text.startswith(
        "Your last answer 2*3*4/5 has the value 24/5. It must use 2, 3, 4 and nothing else, each exactly once.\n"
    )
    assert answer(episode, "2/0").observation.text.startswith("Your last answer was invalid: it divides by zero.\n")
    last = answer(episode, "3")
    assert (last.ending, last.outcome, dict(last.rewards)) == (Ending.FAILED, 0.2, {"numbers": 0.2})
    assert last.progress == 0.5
    episode = started(env, 2, 3, 4, target=10)
    answer(episode, "2+3+4")
    assert dict(answer(episode, "2*3+4").rewards) == {"solved": 1.0}


def test_brief_feedback_is_one_short_line() -> None:
    env = Countdown(turns=4, instructions="brief")
    episode = started(env, 2, 3, 4, target=10)
    told = [answer(episode, text).observation.text for text in ("2 + 3 + 4", "7", "2+")]
    assert told[0] == "2+3+4=9\nturns 3 moves 1\n2 3 4 target 10"
    assert told[1] == "7=7 wrong numbers\nturns 2 moves 1\n2 3 4 target 10"
    assert told[2] == "invalid no expression\nturns 1 moves 1\n2 3 4 target 10"


def test_tasks_are_told_apart_by_numbers_and_target_alone() -> None:
    seeds_of: dict[str, list[int]] = {}
    for seed in range(4_000):
        seeds_of.setdefault(SMALL.task(seed).id, []).append(seed)
    for seeds in seeds_of.values():
        assert len({SMALL.problem(seed).line for seed in seeds}) == 1
        assert len({SMALL.task(seed).split for seed in seeds}) == 1
    assert 1_500 < len(seeds_of) < 3_500


def test_no_knob_of_the_prompt_or_the_reward_changes_the_tasks() -> None:
    other = Countdown(turns=3, partial=0.5, format_penalty=0.0, instructions="brief", tries=9, imperfect=0.5)
    assert [other.task(seed) for seed in range(50)] == [Countdown().task(seed) for seed in range(50)]


def test_a_demonstrated_thought_computes_rightly_and_ends_with_the_answer() -> None:
    lengths = set()
    for seed in range(150):
        task = SMALL.task(seed)
        thought, solution = SMALL.demonstrate(task, random.Random(seed))[0][1].split("</think>")
        words = thought.removeprefix("<think>").split()
        for step in (word for word in words if "=" in word):
            left, right = step.split("=")
            assert read_expression(left).value == int(right)
        tries = thought.count("no") + thought.count("yes")
        assert (words[-1], thought.count("yes")) == ("yes", 1)
        target = str(SMALL.problem(seed).target)
        assert words[-2] == target
        assert words[-3].split("=")[1] == target
        assert read_expression(solution[len("<answer>") : -len("</answer>")]).value == int(target)
        lengths.add(tries)
    assert lengths == {1, 2, 3, 4}


def test_an_imperfect_demonstration_states_the_wrong_value_that_it_answers() -> None:
    env = Countdown(imperfect=1.0, instructions="brief")
    wrong = 0
    for seed in range(100):
        _, reply = env.demonstrate(env.task(seed), random.Random(seed))[0]
        thought, solution = reply.split("</think>")
        value = read_expression(solution[len("<answer>") : -len("</answer>")]).value
        assert int(thought.split()[-3].split("=")[1]) == value
        assert thought.endswith("no") == (value != env.problem(seed).target)
        wrong += thought.endswith("no")
    assert wrong > 90


def test_random_answers_keep_the_rules_and_blind_ones_are_solutions() -> None:
    rng = random.Random(5)
    for env in ENVIRONMENTS:
        for seed in range(30):
            episode = env.episode()
            episode.start(env.task(seed), 0)
            step = answer(episode, env.random_answer(env.task(seed), rng))
            assert step.valid
            assert step.progress is not None
            assert step.progress >= 0.5
    tasks = [SMALL.task(seed) for seed in range(300)]
    blind = SMALL.blind_answers(tasks)
    assert len(blind) == len(set(blind)) == 64
    solutions = Counter(SMALL.problem(task.seed).solution.text for task in tasks)
    assert [solutions[text] for text in blind] == sorted(solutions.values(), reverse=True)[:64]


def test_the_prompt_says_what_the_rules_are() -> None:
    def opening(env: Countdown) -> str:
        return env.episode().start(env.task(0), 0).text

    assert "each of them exactly once" in opening(Countdown())
    assert "in whole numbers, + - * and brackets" in opening(SMALL)
    assert "You have 1 turn, with one answer in each." in opening(Countdown())
    assert "After a wrong answer you are told its value" in opening(Countdown(turns=2))
    assert "After a wrong answer" not in opening(Countdown())
