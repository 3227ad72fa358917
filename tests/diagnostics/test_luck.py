"""The share of the variance of rewards that is luck: hand-worked splits. Coverage: `benchmarks/truth/luck.py`."""

import pytest
from episodes import by_name

from heedful.diagnostics.luck import SplitVariance, luck_metrics, split_variance


def test_the_split_of_a_prompt_is_that_worked_out_by_hand() -> None:
    # Sequences: variance 1/2, mean 1/2; variance 0, mean 1. Luck 1/4. The means have variance 1/8, of which
    # (1/2) / 2 / 2 = 1/8 is carried by the two replays. So nothing is left between the sequences.
    assert split_variance([[0.0, 1.0], [1.0, 1.0]]) == SplitVariance(luck=0.25, total=pytest.approx(0.25))
    # All of it lies between the sequences.
    assert split_variance([[0.0, 0.0], [1.0, 1.0]]) == SplitVariance(luck=0.0, total=0.5)


def test_replays_that_broke_are_left_out() -> None:
    whole = split_variance([[0.0, 1.0], [1.0, 1.0]])
    assert split_variance([[0.0, 1.0, None], [None, 1.0, 1.0], [1.0, None, None]]) == whole
    assert split_variance([[0.0, 1.0], [1.0, None]]) is None


def test_the_share_is_a_ratio_of_sums_and_kept_prompts_have_their_own() -> None:
    lucky, skilled, solved = [[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]
    found = by_name(luck_metrics([lucky, skilled, solved], [False, True, True]))
    share, kept = found["signal/luck_share"], found["signal/luck_share_kept"]
    assert (share.value, share.n) == (pytest.approx(0.25 / 0.75), 2)
    assert (kept.value, kept.n, kept.low) == (0.0, 1, None)


def test_without_variance_there_is_no_share() -> None:
    solved = [[1.0, 1.0], [1.0, 1.0]]
    assert [metric.why for metric in luck_metrics([solved, solved], [True, False])] == ["no replayed reward varies"] * 2
    assert [metric.why for metric in luck_metrics([[[1.0]]], [True])] == ["no prompt has two replayed sequences"] * 2
