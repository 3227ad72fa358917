"""reasoning-gym's datasets as environments: pure tasks, gated scores, and answers that are never run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from heedful import cli
from heedful.envs.common.actions import format_reply
from heedful.envs.common.tasks import evaluation_tasks
from heedful.rollout.baselines import random_reply
from heedful.run.evaluation.held_out import measure_baselines
from heedful.types import Ending
from heedful_envs.adapters.reasoning_gym.environment import ReasoningGym
from heedful_envs.adapters.reasoning_gym.scoring import (
    HASH_DEPENDENT,
    REFUSED,
    WITHOUT_AN_ANSWER,
    floor_of,
    known_datasets,
    not_handed_on,
    raw_score,
    right_answer,
    score,
)
from scripted_episodes import play

pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")

QUICK = (
    "chain_sum",
    "countdown",
    "mini_sudoku",
    "maze",
    "graph_color",
    "rubiks_cube",
    "simple_integration",
    "n_queens",
    "spell_backward",
    "pool_matrix",
    "word_ladder",
    "acre",
    "sokoban",
)
every_quick_one = pytest.mark.parametrize("name", QUICK)


@every_quick_one
def test_right_answers_solve_and_replies_that_answer_nothing_earn_nothing(name: str) -> None:
    for partial in (False, True):
        env = ReasoningGym(dataset=name, partial=partial)
        for seed in range(4):
            task, entry = env.task(seed), env.entry(seed)
            right = play(env, task, 0, lambda o, t, entry=entry: format_reply([right_answer(name, entry)], ""))
            assert right[-1].ending is Ending.SOLVED
            assert dict(right[-1].rewards) == {"solved": 1.0}
            for garbage in (*WITHOUT_AN_ANSWER, entry["question"]):
                judged = score(name, "", entry, garbage, partial)
                assert judged.value == 0.0


@every_quick_one
def test_a_task_is_a_function_of_its_seed_and_leaves_no_trace(name: str) -> None:
    state = random.getstate()
    first = [ReasoningGym(dataset=name).task(seed) for seed in range(3)]
    random.seed(3)
    moved = random.getstate()
    assert [ReasoningGym(dataset=name, instructions="brief").task(seed) for seed in range(3)] == first
    assert random.getstate() == moved
    random.setstate(state)


def test_random_players_answer_in_the_right_form() -> None:
    env = ReasoningGym(dataset="countdown", turns=2)
    for seed in range(5):
        task, rng = env.task(seed), random.Random(seed)
        steps = play(env, task, 0, lambda o, t, task=task, rng=rng: random_reply(env, task, rng))
        assert len(steps) <= 2
        assert all(step.valid for step in steps)


@pytest.mark.parametrize("name", sorted(HASH_DEPENDENT))
def test_datasets_that_follow_the_hash_seed_are_played_under_a_fixed_one_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    with pytest.raises(ValueError, match=f"{name} .*Set PYTHONHASHSEED=0"):
        ReasoningGym(dataset=name, config="").task(0)


def test_a_later_attempt_is_worth_less_and_the_score_is_never_shown() -> None:
    env = ReasoningGym(turns=3)
    answer = right_answer("chain_sum", env.entry(1))
    replies = ["no tags", format_reply(["17"], ""), format_reply([answer], "")]
    steps = play(env, env.task(1), 0, lambda observation, turn: replies[turn])
    assert [dict(step.rewards) for step in steps] == [{"format": -0.1}, {}, {"solved": 0.25}]
    assert steps[-1].outcome == 1.0
    assert steps[0].observation.text.startswith("Your last reply was invalid: there is no <answer> block")
    assert steps[1].observation.text.startswith("Your last answer was not right.\nTurns left: 1.")
    assert not any("0.25" in step.observation.text for step in steps)


def test_partial_credit_counts_what_exceeds_the_floor() -> None:
    entry = ReasoningGym(dataset="countdown").entry(0)
    near = str(entry["metadata"]["numbers"][0])
    assert raw_score("countdown", "", entry, near) == pytest.approx(0.05)
    assert floor_of("countdown", "", entry) == pytest.approx(0.01)
    assert score("countdown", "", entry, near, partial=False).value == 0.0
    assert score("countdown", "", entry, near, partial=True).value == pytest.approx(0.04 / 0.99)


@pytest.mark.parametrize(
    ("name", "answer", "refused"),
    [
        ("n_queens", "__import__('os').getcwd()", True),
        ("n_queens", "[x for x in (1).__class__.__mro__]", True),
        ("n_queens", "[['Q', '_'], ['_', 'Q']]", False),
        ("n_queens", "Q _ _\n_ _ Q", False),
        ("spiral_matrix", "1 2 3 -4", False),
        ("spiral_matrix", "exit", False),
        ("spiral_matrix", "open('x')", True),
        ("countdown", "9**9**9**9", True),
        ("countdown", "exec('1')", True),
        ("countdown", "(75 - 3) * 4 / 2", False),
        ("simple_integration", "x.__class__", True),
        ("simple_integration", "lambda: 1", True),
        ("simple_integration", "2**2**2**2**2", True),
        ("simple_integration", "(((x**99)**99)**99)**99", True),
        ("simple_integration", "19*x**3/3 - sin(x)**2 + C", False),
        ("polynomial_multiplication", "2350*x**6 - 5503*x**5 + 3325*x", False),
        ("polynomial_multiplication", "x**999999999", True),
    ],
)
def test_no_answer_is_handed_on_that_would_run_as_a_program(name: str, answer: str, refused: bool) -> None:
    assert bool(not_handed_on(name, answer)) == refused


@pytest.mark.parametrize("name", ["simple_integration", "polynomial_multiplication", "countdown", "n_queens"])
def test_right_answers_pass_the_guard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    for seed in range(20):
        assert not_handed_on(name, right_answer(name, ReasoningGym(dataset=name).entry(seed))) == ""


@pytest.mark.parametrize("name", ["game_of_life_halting", "puzzle24"])
def test_scorers_that_pay_for_anything_are_refused_for_a_reason(name: str) -> None:
    from reasoning_gym import create_dataset

    dataset = create_dataset(name, seed=1, size=6)
    wrong = "0 " if name == "game_of_life_halting" else "6 * 4 + 3 - 3"
    paid = [dataset.score_answer(wrong, dataset[number]) for number in range(6)]
    assert max(paid) == 1.0
    with pytest.raises(ValueError, match=f"the dataset {name} is not played, because {REFUSED[name][:20]}"):
        ReasoningGym(dataset=name).task(0)


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"dataset": "chian_sum"}, "has no dataset 'chian_sum'; it has .*chain_sum"),
        ({"config": "terms=3"}, "chain_sum has no setting terms .*it has min_terms"),
        ({"config": "seed=3"}, "has no setting seed"),
        ({"config": "min_terms=9"}, "chain_sum cannot be made with the options 'min_terms=9'; the library says"),
        ({"dataset": "knights_knaves", "config": "depth_constraint=1"}, "the library says: IndexError"),
        ({"dataset": "arc_agi", "config": "board_format_opts=0"}, "the library says: AttributeError"),
        ({"dataset": "spell_backward", "config": "data_file=x"}, "the library says: FileNotFoundError"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^reasoning_gym: .*{sentence}"):
        ReasoningGym(**knobs).task(3)


def test_settings_reach_the_dataset_and_name_other_tasks() -> None:
    small = ReasoningGym(config="min_terms=2 max_terms=2 max_digits=1")
    assert small.entry(0)["metadata"]["num_terms"] == 2
    assert small.task(0).id == ReasoningGym(config='{"max_digits": 1, "max_terms": 2, "min_terms": 2}').task(0).id
    assert small.task(0).id != ReasoningGym().task(0).id


def test_a_worked_sum_is_right_at_every_step_unless_it_is_asked_not_to_be() -> None:
    env = ReasoningGym()
    for seed in range(50):
        (_, reply), *more = env.demonstrate(env.task(seed), random.Random(seed))
        assert not more
        assert reply.endswith(f"<answer>{right_answer('chain_sum', env.entry(seed))}</answer>")
        assert reply.count(" = ") == env.entry(seed)["metadata"]["num_terms"] - 1
    faulty = ReasoningGym(imperfect=0.5)
    wrong = 0
    for seed in range(50):
        (_, reply), *_ = faulty.demonstrate(faulty.task(seed), random.Random(seed))
        wrong += not reply.endswith(f"<answer>{right_answer('chain_sum', faulty.entry(seed))}</answer>")
    assert 20 < wrong < 50


def test_baselines_are_measured_and_evaluation_finds_enough_tasks() -> None:
    env = ReasoningGym(dataset="gcd")
    baselines = measure_baselines(env, "val", 20, search_tasks=20)
    assert baselines.random.n == 20
    assert len(baselines.sequence) == 1
    assert 0.0 < (baselines.fixed.value or 0.0) < 0.9
    assert len(evaluation_tasks(ReasoningGym(), "test", 20)) == 20


def test_all_datasets_but_the_refused_ones_are_known() -> None:
    assert len(known_datasets()) >= 100
    assert not set(known_datasets()) & REFUSED.keys()


def test_the_command_line_plays_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "reasoning_gym", "--env.dataset", "mini_sudoku", "--by", "solver"]) == 0
    assert "outcome 1 (success)" in capsys.readouterr().out
    assert cli.run(["play", "reasoning_gym", "--by", "random", "--env.config", "max_terms=2"]) == 0
    assert "ended: " in capsys.readouterr().out
