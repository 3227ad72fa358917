import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from heedful.algorithms.advantages import GroupRelative
from heedful.algorithms.table import Grpo, check_loss_scale, loss_scale_factor
from heedful.training.samples import advantage_without_outcome, make_samples, merge_rows
from heedful.types import (
    Ending,
    Group,
    Prompt,
    Reply,
    SampledTrajectory,
    Span,
    Task,
    TokenCredit,
    Trajectory,
    Turn,
    Verdict,
)

KEPT = Verdict(1.0, "kept", 0.25)
DROPPED = Verdict(0.0, "constant", 0.0)


def turn(prompt_ids: Sequence[int], ids: Sequence[int], reward: float = 0.0) -> Turn:
    reply = Reply(
        prompt=Prompt("", tuple(prompt_ids)),
        ids=tuple(ids),
        text="",
        logprobs=tuple(-0.25 * number for number in ids),
        entropies=(),
        thought=Span(0, 0),
        answer=Span(0, 0),
        closed=True,
        cut=False,
    )
    return Turn(reply, {"solved": reward}, (), True, "", "")


def trajectory(turns: Sequence[Turn], member: int = 0, outcome: float | None = 0.0) -> Trajectory:
    return Trajectory(Task("t", 0, "train"), member, tuple(turns), Ending.FAILED, outcome)


def group(*rewards: float | None) -> Group:
    members = (
        trajectory([turn([1, 2], [3], reward or 0.0)], member, None if reward is None else 0.0)
        for member, reward in enumerate(rewards)
    )
    return Group(Task("t", 0, "train"), tuple(members))


def test_two_turns_merge_as_in_the_worked_example() -> None:
    a, b, c, d, e, f = range(1, 7)
    winner = trajectory([turn([a, b], [c, d]), turn([e], [f], reward=1.0)], member=0)
    loser = trajectory([turn([a, b], [f])], member=1)
    first, second = make_samples(
        [Group(winner.task, (winner, loser))], [Verdict(2.0, "kept", 0.5)], GroupRelative(standardize=False)
    )
    assert first.ids == (a, b, c, d, e, f)
    assert first.trained == (False, False, True, True, False, True)
    assert first.advantages == (0, 0, 0.5, 0.5, 0, 0.5)
    assert first.logprobs == (0, 0, -0.75, -1.0, 0, -1.5)
    assert (first.group, first.member, first.weight) == (0, 0, 2.0)
    assert second.advantages == (0, 0, -0.5)


def test_the_ids_before_a_sampled_token_are_those_the_policy_read() -> None:
    episode = trajectory([turn([1, 2], [3, 4]), turn([5], [6]), turn([7, 8], [9])])
    (sample,) = make_samples([Group(episode.task, (episode,))], [KEPT], GroupRelative())
    for number, one in enumerate(episode.turns):
        context = episode.context_ids(number)
        end = len(context) + len(one.reply.ids)
        assert sample.ids[:end] == context + one.reply.ids
        assert all(sample.trained[len(context) : end])
    assert sum(sample.trained) == 4


def test_only_kept_groups_become_samples_and_keep_their_index() -> None:
    samples = make_samples([group(1, 0), group(1, 1), group(0, 1)], [KEPT, DROPPED, KEPT], GroupRelative())
    assert [(sample.group, sample.member) for sample in samples] == [(0, 0), (0, 1), (2, 0), (2, 1)]


def test_an_unscored_trajectory_is_left_out_of_samples_and_of_the_mean() -> None:
    samples = make_samples([group(1, None, 0)], [KEPT], GroupRelative(standardize=False))
    assert [(sample.member, sample.advantages[-1]) for sample in samples] == [(0, 0.5), (2, -0.5)]


def test_a_trajectory_without_a_sampled_token_is_no_sample() -> None:
    silent = trajectory([turn([1, 2], [])], member=0)
    spoken = trajectory([turn([1, 2], [3])], member=1)
    samples = make_samples([Group(silent.task, (silent, spoken))], [KEPT], GroupRelative())
    assert [sample.member for sample in samples] == [1]


def test_a_constant_group_that_is_kept_has_exact_zeros() -> None:
    for sample in make_samples([group(10.9 - 0.1, 10.8, 10.8)], [KEPT], GroupRelative()):
        assert set(sample.advantages) == {0.0}


def test_the_loss_scales_of_four_kept_of_sixteen() -> None:
    assert loss_scale_factor("kept", 4, 16) == 1.0
    assert loss_scale_factor("all", 4, 16) == 0.25
    assert loss_scale_factor("sqrt", 4, 16) == 0.5
    assert loss_scale_factor("rho", 4, 16, 0.9) == 0.9


def test_no_loss_scale_but_rho_shrinks_a_batch_that_was_kept_whole() -> None:
    assert [loss_scale_factor(kind, 16, 16, 0.9) for kind in ("kept", "all", "sqrt", "rho")] == [1, 1, 1, 0.9]


def test_rho_without_a_p_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="the chosen filter asks for none; choose the filter top_p"):
        check_loss_scale("rho", None)


def test_all_makes_the_mean_run_over_everything_collected() -> None:
    # The mean over 2 kept of 3 equal groups, times 2/3, is the mean over all when the third adds nothing.
    assert math.isclose((1.0 + 3.0) / 2 * loss_scale_factor("all", 2, 3), (1.0 + 3.0 + 0.0) / 3)


class OwnTurns:
    """Each turn's own reward as its advantage."""

    def turn_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[list[float]]:
        return [
            [] if trajectory.reward is None else [turn.reward for turn in trajectory.turns]
            for trajectory in trajectories_G
        ]


class BestOfGroup:
    """1 for the members of the highest reward."""

    def member_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[float]:
        rewards = [trajectory.reward for trajectory in trajectories_G]
        best = max(reward for reward in rewards if reward is not None)
        return [float(reward == best) for reward in rewards]


class TokensLeft:
    """The number of sampled tokens that follow, over the size of the group: per token, and without a critic."""

    def token_credits(self, trajectories_B: Sequence[SampledTrajectory]) -> list[TokenCredit]:
        return [
            TokenCredit([left / len(one.group.trajectories) for left in reversed(range(len(one.turns_T)))])
            for one in trajectories_B
        ]


def test_an_own_estimator_credits_the_members_of_a_group() -> None:
    samples = make_samples([group(1, 0, None, 1)], [KEPT], BestOfGroup())
    assert [set(sample.advantages) - {0.0} for sample in samples] == [{1.0}, set(), {1.0}]


def test_a_kind_of_estimator_that_nobody_foresaw_needs_no_line_outside_its_class() -> None:
    two_turns = trajectory([turn([1, 2], [3, 4]), turn([5], [6])])
    unscored = trajectory([turn([1, 2], [6])], member=1, outcome=None)
    algorithm = Grpo(advantage=TokensLeft())
    (sample,) = make_samples([Group(two_turns.task, (two_turns, unscored))], [KEPT], algorithm.advantage)
    assert sample.advantages == (0, 0, 2 / 2, 1 / 2, 0, 0 / 2)
    assert sample.values == sample.returns == ()


def test_an_own_estimator_gives_each_turn_its_own_credit() -> None:
    base = group(1, None)
    turns = [replace(base.trajectories[0].turns[0], rewards={"step": reward}) for reward in (0.5, -0.25)]
    both = replace(base, trajectories=(replace(base.trajectories[0], turns=tuple(turns)), base.trajectories[1]))
    (sample,) = make_samples([both], [KEPT], OwnTurns())
    given = [value for value, one in zip(sample.advantages, sample.trained, strict=True) if one]
    half = len(given) // 2
    assert given == [0.5] * half + [-0.25] * half


def test_a_prompt_that_restarts_begins_a_row_of_its_own() -> None:
    base = group(1, 0)
    first = base.trajectories[0].turns[0]
    again = replace(first, reply=replace(first.reply, prompt=replace(first.reply.prompt, restarts=True)))
    long = replace(
        base, trajectories=(replace(base.trajectories[0], turns=(first, first, again)), base.trajectories[1])
    )
    rows = [row for row in merge_rows([long], [KEPT]) if row.member == base.trajectories[0].member]
    assert [sorted(set(row.turns) - {-1}) for row in rows] == [[0, 1], [2]]
    assert rows[1].ids == first.reply.prompt.ids + first.reply.ids
    samples = make_samples([long], [KEPT], GroupRelative())
    assert samples[0].advantages[-1] == samples[1].advantages[-1] != 0


def told(*members: tuple[float | None, float | None]) -> Group:
    """A group of episodes of one token, each with its reward and its outcome."""
    return Group(
        Task("t", 0, "train"),
        tuple(
            trajectory([turn([1], [2], reward or 0.0)], member, outcome)
            for member, (reward, outcome) in enumerate(members)
        ),
    )


MIXED = told((10.0, 1.0), (-0.2, 0.0))
FAILED = told((-0.1, 0.0), (-0.2, 0.0))


@pytest.mark.parametrize(
    ("standardize", "weight", "share"),
    [
        (True, 1.0, 0.5),  # a difference of .1 counts as much as one of 10
        (False, 1.0, 0.1 / 10.3),
        (True, 3.0, 0.75),
    ],
)
def test_the_advantage_of_groups_with_one_outcome(standardize: bool, weight: float, share: float) -> None:
    groups = [MIXED, FAILED]
    samples = make_samples(groups, [KEPT, Verdict(weight, "kept", 0.25)], GroupRelative(standardize=standardize))
    metric = advantage_without_outcome(samples, groups)
    assert (metric.value, metric.n) == (pytest.approx(share), 2)
    without = make_samples(groups, [KEPT, DROPPED], GroupRelative())
    assert advantage_without_outcome(without, groups).value == 0.0


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (told((1.0, 0.0), (1.0, 0.0)), "every advantage is 0"),
        (told((1.0, math.nan), (0.0, math.nan)), "the outcome of an episode is unknown"),
        (told((None, None), (None, None)), "no sample to train on"),
    ],
)
def test_the_advantage_of_groups_with_one_outcome_may_be_unknown(group: Group, why: str) -> None:
    metric = advantage_without_outcome(make_samples([group], [KEPT], GroupRelative()), [group])
    assert metric.value is None
    assert metric.why.startswith(why)


def test_an_episode_that_was_never_scored_has_no_outcome_to_differ_in() -> None:
    groups = [told((-0.1, 0.0), (None, None), (-0.2, 0.0))]
    assert advantage_without_outcome(make_samples(groups, [KEPT], GroupRelative()), groups).value == 1.0
