import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.advantages import AboveQuantile, GroupRelative, LeaveOneOut, PerSuccess
from heedful.algorithms.table import ALGORITHMS, Algorithm, Dapo, DrGrpo, Grpo


def test_the_rows_of_the_table() -> None:
    rows = {
        name: (row().advantage, row().clip_low, row().clip_high, row().average, row().minibatches)
        for name, row in ALGORITHMS.items()
    }
    plain, undivided = GroupRelative(), GroupRelative(standardize=False)
    expected = {
        "grpo": (plain, 0.2, 0.2, "sequence", 1),
        "dr_grpo": (undivided, 0.2, 0.2, "fixed", 1),
        "rloo": (LeaveOneOut(), 0.2, 0.2, "fixed", 1),
        "maxrl": (PerSuccess(), 0.2, 0.2, "fixed", 1),
        "qae": (AboveQuantile(0.4), 0.2, 0.2, "sequence", 1),
        "gspo": (plain, 3e-4, 4e-4, "sequence", 4),
        "cispo": (plain, 1.0, 4.0, "token", 4),
    }
    assert {name: rows[name] for name in expected} == expected
    assert [name for name, row in ALGORITHMS.items() if row().ratio == "sequence"] == ["gspo"]
    assert [name for name, row in ALGORITHMS.items() if row().surrogate == "weight"] == ["cispo"]
    assert all(row().kl == row().entropy == 0 for row in ALGORITHMS.values())


def test_a_row_can_be_changed_in_any_field() -> None:
    assert DrGrpo(clip_high=0.3, average="token").average == "token"
    assert DrGrpo().advantage([1, 0]) == [0.5, -0.5]
    assert Grpo(advantage=GroupRelative(standardize=False)).advantage([1, 0]) == [0.5, -0.5]


def test_the_three_averages_of_three_tokens_by_hand() -> None:
    # One sequence of one token, one of two.
    assert Algorithm(average="token").token_weights([1, 2], [1, 1], None) == pytest.approx([1 / 3, 1 / 3])
    assert Algorithm(average="sequence").token_weights([1, 2], [1, 1], None) == pytest.approx([1 / 2, 1 / 4])
    assert Algorithm(average="fixed").token_weights([1, 2], [1, 1], 4) == pytest.approx([1 / 8, 1 / 8])


def test_the_denominators_count_weights() -> None:
    assert Algorithm(average="token").token_weights([1, 2], [3, 1], None) == pytest.approx([3 / 5, 1 / 5])
    assert Algorithm(average="sequence").token_weights([1, 2], [3, 1], None) == pytest.approx([3 / 4, 1 / 8])
    assert Algorithm(average="fixed").token_weights([1, 2], [3, 1], 4) == pytest.approx([3 / 16, 1 / 16])


@pytest.mark.parametrize("average", ["token", "sequence", "fixed"])
def test_a_sequence_without_trained_tokens_counts_in_no_sum(average: str) -> None:
    algorithm = Algorithm(average=average)  # type: ignore[arg-type]
    assert algorithm.token_weights([3, 0, 2], [1, 1, 1], 8)[::2] == algorithm.token_weights([3, 2], [1, 1], 8)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 5)), min_size=1, max_size=20))
def test_token_and_sequence_weights_add_to_one_over_all_tokens(rows: list[tuple[int, float]]) -> None:
    counts_B, weights_B = [n for n, _ in rows], [w for _, w in rows]
    for algorithm in (Grpo(), Dapo()):
        shares_B = algorithm.token_weights(counts_B, weights_B, None)
        assert sum(n * share for n, share in zip(counts_B, shares_B, strict=True)) == pytest.approx(1)


def test_the_fixed_average_asks_for_its_budget() -> None:
    with pytest.raises(ValueError, match="token_budget"):
        DrGrpo().token_weights([1], [1], None)
