"""The environment of programs: what is drawn, what is paid, and what the agent is told."""

from __future__ import annotations

import itertools
import random

import pytest

from heedful_envs.code.environment import Code, clean
from heedful_envs.code.problems import NAMES, OPERATIONS, apply, expression
from lockbox import SandboxError

BRIEF = Code(instructions="brief", sandbox="strict", wall=60.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_what_its_python_says(name: str) -> None:
    rng = random.Random(name)
    for _ in range(50):
        x = [rng.randrange(10) for _ in range(rng.randint(1, 6))]
        assert eval(OPERATIONS[name][0].format("x"), {"x": list(x)}) == apply((name,), list(x))


def test_no_single_operation_explains_a_drawn_problem_of_two() -> None:
    for seed in range(200):
        drawn = BRIEF.drawn(seed)
        shown = [list(each) for each in drawn.inputs[: drawn.shown]]
        wanted = [apply(drawn.operations, each) for each in shown]
        assert all([apply((name,), each) for each in shown] != wanted for name in NAMES)
        assert [list(each) for each in shown] != wanted


def test_a_program_that_explains_the_shown_examples_mostly_passes_the_hidden_ones() -> None:
    """So checking the shown examples is worth the agent's while, and no luck."""
    right = found = 0
    for seed in range(100):
        drawn = BRIEF.drawn(seed)
        made = [apply(drawn.operations, list(each)) for each in drawn.inputs]
        for names in itertools.product(NAMES, repeat=2):
            guess = [apply(names, list(each)) for each in drawn.inputs]
            if guess[: drawn.shown] == made[: drawn.shown]:
                found += 1
                right += guess == made
    assert right / found > 0.8


def test_a_right_expression_is_paid_once_and_a_wrong_one_is_told_its_value() -> None:
    drawn = BRIEF.drawn(0)
    assert BRIEF.problem(0).statement == "7637 > 878 , 7492 > 85 , 1956 > 67"
    episode = BRIEF.episode()
    assert episode.start(BRIEF.task(0), 0).text == "turns 2 moves 1\n7637 > 878 , 7492 > 85 , 1956 > 67"
    wrong = episode.step("<think>t</think><answer>sorted(x)</answer>")
    assert wrong.observation.text == "7637 got 3677\nturns 1 moves 1\n7637 > 878 , 7492 > 85 , 1956 > 67"
    assert wrong.rewards == {}
    right = episode.step(f"<think>t</think><answer>{expression(drawn.operations)}</answer>")
    assert (right.rewards, right.outcome, right.progress) == ({"passed": 1.0}, 1.0, 1.0)


def test_the_share_of_tests_is_paid_where_it_is_asked_for() -> None:
    env = Code(instructions="brief", sandbox="strict", counted="share", turns=1, hidden=6, wall=60.0)
    seed, names = next(
        (seed, names)
        for seed in range(100)
        for names in itertools.product(NAMES, repeat=2)
        if 0 < passed(env, seed, names) < 9
    )
    episode = env.episode()
    episode.start(env.task(seed), 0)
    step = episode.step(f"<think>t</think><answer>{expression(names)}</answer>")
    assert step.outcome == 0.0
    assert step.rewards == {"passed": passed(env, seed, names) / 9}


def passed(env: Code, seed: int, names: tuple[str, ...]) -> int:
    drawn = env.drawn(seed)
    return sum(apply(names, list(each)) == apply(drawn.operations, list(each)) for each in drawn.inputs)


def test_a_sandbox_that_fails_is_no_verdict_on_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise SandboxError("no sandbox here")

    monkeypatch.setattr("heedful_envs.code.environment._sandbox", refuse)
    episode = BRIEF.episode()
    episode.start(BRIEF.task(0), 0)
    with pytest.raises(SandboxError, match="no sandbox here"):
        episode.step("<think>t</think><answer>x</answer>")


def test_what_a_program_says_reaches_the_agent_short_and_clean() -> None:
    assert clean("a\x1b[2J\u202eb\n c") == "a?[2J?b c"
    assert len(clean("x" * 10_000)) == 203
