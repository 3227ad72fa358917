"""The expected gradient of one update, over everything that a tabular policy can sample, against the gradient of J.

Two prompts, three actions, groups of three. All 729 batches are enumerated. Samples, advantages, filter, weights of
tokens and the loss's scale are those of a run. The gradient of the log-probability of a table is written out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import pytest

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.table import Algorithm, loss_scale_factor
from heedful.training.samples import make_samples
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

CHANCES = ((0.6, 0.3, 0.1), (0.2, 0.3, 0.5))
REWARDS = ((1.0, 0.0, 0.0), (1.0, 1.0, 0.0))
MEMBERS = 3
BUDGET = 5
KEPT, DROPPED = Verdict(1.0, "kept", None), Verdict(0.0, "constant", 0.0)


def group(prompt: int, actions: Sequence[int]) -> Group:
    """The action is the id, the prompt's id is 10 or 11. Another token follows an action: the action's own number of
    times the id 20, whose probability is 1."""
    task, members = Task(f"task-{prompt}", prompt, "train"), []
    for member, action in enumerate(actions):
        ids = (action, *(20,) * action)
        reply = Reply(Prompt("", (10 + prompt,)), ids, "", (0.0,) * len(ids), (), Span(0, 0), Span(0, 1), True, False)
        turn = Turn(reply, {"outcome": REWARDS[prompt][action]}, (), True, "", "")
        members.append(Trajectory(task, member, (turn,), Ending.FAILED, REWARDS[prompt][action]))
    return Group(task, tuple(members))


@cache
def batches() -> tuple[tuple[float, tuple[Group, Group]], ...]:
    found = []
    for actions in itertools.product(range(3), repeat=2 * MEMBERS):
        halves = actions[:MEMBERS], actions[MEMBERS:]
        chance = math.prod(CHANCES[prompt][action] for prompt in (0, 1) for action in halves[prompt])
        found.append((chance, (group(0, halves[0]), group(1, halves[1]))))
    return tuple(found)


def expected_gradient(algorithm: Algorithm, scale: str, drop: bool) -> list[list[float]]:
    """Of minus the loss, by the logits of the table."""
    total = [[0.0] * 3 for _ in CHANCES]
    for chance, groups in batches():
        varied = [len({member.outcome for member in each.trajectories}) > 1 for each in groups]
        verdicts = [KEPT if vary or not drop else DROPPED for vary in varied]
        samples = make_samples(groups, verdicts, algorithm.advantage)
        if not samples:
            continue
        counts = [sum(sample.trained) for sample in samples]
        weights = algorithm.token_weights(counts, [sample.weight for sample in samples], BUDGET)
        factor = loss_scale_factor(scale, sum(one.kept for one in verdicts), len(groups))  # type: ignore[arg-type]
        for sample, weight in zip(samples, weights, strict=True):
            prompt, action = sample.ids[0] - 10, sample.ids[1]
            for other in range(3):
                score = float(other == action) - CHANCES[prompt][other]
                total[prompt][other] += chance * factor * weight * sample.advantages[1] * score
    return total


def gradient_of_success() -> list[list[float]]:
    """Of the mean over the prompts of the expected reward."""
    found = []
    for chances, rewards in zip(CHANCES, REWARDS, strict=True):
        mean = sum(p * r for p, r in zip(chances, rewards, strict=True))
        found.append([p * (r - mean) / len(CHANCES) for p, r in zip(chances, rewards, strict=True)])
    return found


def assert_multiple(found: list[list[float]], factor: float) -> None:
    for mine, true in zip(found, gradient_of_success(), strict=True):
        assert mine == pytest.approx([factor * value for value in true], abs=1e-12)


@pytest.mark.parametrize("drop", [False, True])
def test_a_fixed_average_has_the_gradient_of_success_with_scale_all_whatever_the_filter_drops(drop: bool) -> None:
    leave_one_out = Algorithm(advantage=LeaveOneOut(), average="fixed")
    assert_multiple(expected_gradient(leave_one_out, "all", drop), 1 / BUDGET)
    relative = Algorithm(advantage=GroupRelative(standardize=False), average="fixed")
    assert_multiple(expected_gradient(relative, "all", drop), (MEMBERS - 1) / MEMBERS / BUDGET)


def test_without_a_filter_the_scales_agree() -> None:
    algorithm = Algorithm(advantage=LeaveOneOut(), average="fixed")
    for scale in ("kept", "all", "sqrt"):
        assert expected_gradient(algorithm, scale, drop=False)[0] == pytest.approx(
            expected_gradient(algorithm, "all", drop=True)[0], abs=1e-12
        )


@pytest.mark.parametrize("average", ["sequence", "token"])
def test_averages_by_length_have_another_gradient_where_lengths_differ(average: str) -> None:
    found = expected_gradient(Algorithm(advantage=LeaveOneOut(), average=average), "all", drop=False)  # type: ignore
    true = gradient_of_success()
    ratios = [mine / value for mine, value in zip(found[0], true[0], strict=True)]
    assert max(ratios) - min(ratios) > 0.02


def test_with_scale_kept_a_prompt_that_rarely_varies_counts_for_more() -> None:
    found = expected_gradient(Algorithm(advantage=LeaveOneOut(), average="fixed"), "kept", drop=True)
    ratios = [found[prompt][0] / gradient_of_success()[prompt][0] * BUDGET for prompt in (0, 1)]
    # A group stands alone, and counts twice, where the other one is constant.
    constant = [sum((1 - hit, hit)[bit] ** MEMBERS for bit in (0, 1)) for hit in (0.6, 0.5)]
    assert ratios == pytest.approx([1 + constant[1], 1 + constant[0]])
