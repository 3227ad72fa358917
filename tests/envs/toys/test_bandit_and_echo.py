"""The two toys: what is right, what is luck, what is told."""

from __future__ import annotations

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.echo import Echo
from heedful.types import Ending, Step


def pull(env: Bandit, seed: int, member: int, better: bool) -> Step:
    episode = env.episode()
    episode.start(env.task(seed), member)
    arm = episode.arms.better if better else 1 - episode.arms.better
    return episode.step(format_reply([env.names[arm]], "a thought"))


def test_the_shown_payouts_always_tell_the_better_arm() -> None:
    env = Bandit()
    for seed in range(500):
        arms = env.arms(seed)
        assert sum(arms.payouts[arms.better]) > sum(arms.payouts[1 - arms.better])


def test_each_arm_is_better_and_listed_first_equally_often() -> None:
    env = Bandit()
    arms = [env.arms(seed) for seed in range(1_000)]
    assert 430 < sum(arm.better for arm in arms) < 570
    assert 430 < sum(arm.order[0] for arm in arms) < 570
    assert 430 < sum(arm.order[0] == arm.better for arm in arms) < 570


def test_the_outcome_judges_the_choice_and_the_reward_is_luck() -> None:
    env = Bandit()
    right = [pull(env, 0, member, better=True) for member in range(600)]
    wrong = [pull(env, 0, member, better=False) for member in range(600)]
    assert {(step.outcome, step.ending) for step in right} == {(1.0, Ending.SOLVED)}
    assert {(step.outcome, step.ending) for step in wrong} == {(0.0, Ending.FAILED)}
    assert sum(step.rewards["payout"] for step in right) / 600 == pytest.approx(0.8, abs=0.06)
    assert sum(step.rewards["payout"] for step in wrong) / 600 == pytest.approx(0.3, abs=0.07)


def test_shared_noise_pays_all_members_alike() -> None:
    env = Bandit(shared_noise=True)
    assert len({pull(env, 0, member, better=True).rewards["payout"] for member in range(30)}) == 1


def test_the_names_of_the_arms_do_not_change_the_task() -> None:
    assert Bandit().task(4).id == Bandit(names=("Red", "Blue")).task(4).id


def test_an_invalid_reply_allows_another_try_while_turns_remain() -> None:
    env = Bandit(turns=2)
    episode = env.episode()
    episode.start(env.task(0), 0)
    assert episode.step("no answer").ending is None
    last = episode.step("no answer")
    assert (last.ending, last.outcome) == (Ending.OUT_OF_TURNS, 0.0)


def test_echo_wants_the_asked_letter_and_no_decoy() -> None:
    env = Echo(instructions="brief")
    outcomes = {}
    for letter in env.actions:
        episode = env.episode()
        assert episode.start(env.task(0), 0).text == "turns 1 moves 1\necho D not F A G"
        step = episode.step(format_reply([letter], "a thought"))
        outcomes[letter] = step.outcome
        assert step.ending is (Ending.SOLVED if letter == "D" else Ending.FAILED)
    assert outcomes == {letter: float(letter == "D") for letter in "ABCDEFGH"}


def test_echo_over_several_turns_wants_every_turn_right() -> None:
    env = Echo(turns=3)
    for wrong_turn in (None, 0, 1, 2):
        episode = env.episode()
        episode.start(env.task(1), 0)
        steps = []
        for turn in range(3):
            asked = episode.asked
            other = next(letter for letter in env.actions if letter != asked)
            steps.append(episode.step(format_reply([other if turn == wrong_turn else asked], "a thought")))
        assert [step.ending for step in steps[:2]] == [None, None]
        assert steps[-1].outcome == float(wrong_turn is None)
        assert steps[-1].progress == pytest.approx(1.0 if wrong_turn is None else 2 / 3)
