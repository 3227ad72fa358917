"""How rows leave a batch: by hand, on batches small enough to be written down."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch

from heedful.integrations.trl.removal import (
    KEPT,
    cut_dependent,
    merged,
    micro_batches,
    remove,
    row_factor,
    rows_needed,
    trained_tokens,
)


def batch(**more: Any) -> dict[str, Any]:
    """Four rows: prompts of 3, 1, 2 and 1 tokens, completions of 4, 2, 1 and 3."""
    return {
        "prompt_ids": torch.tensor([[11, 12, 13], [0, 0, 21], [0, 31, 32], [0, 0, 41]]),
        "prompt_mask": torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0], [8, 9, 10, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]),
        "advantages": torch.tensor([1.0, -1.0, 2.0, -2.0]),
        "old_per_token_logps": torch.arange(16.0).view(4, 4),
        "num_items_in_batch": torch.tensor(10),
        **more,
    }


def test_kept_rows_stay_in_order_and_columns_that_they_do_not_use_go() -> None:
    smaller = remove(batch(), [False, True, True, False], rows=2)
    assert smaller["prompt_ids"].tolist() == [[0, 21], [31, 32]]
    assert smaller["completion_ids"].tolist() == [[5, 6], [7, 0]]
    assert smaller["completion_mask"].tolist() == [[1, 1], [1, 0]]
    assert smaller["old_per_token_logps"].tolist() == [[4, 5], [8, 9]]
    assert smaller["advantages"].tolist() == [-1, 2]
    assert smaller[KEPT].tolist() == [True, True]
    assert int(smaller["num_items_in_batch"]) == 10  # counted anew by who knows all processes
    assert int(trained_tokens(smaller)) == 3


def test_idle_rows_are_the_shortest_read_in_their_context_and_out_of_the_loss() -> None:
    smaller = remove(batch(), [True, False, False, False], rows=3)
    # Rows 1 and 2 have 3 tokens, row 3 has 4; the kept row is the longest, so nothing is cut off.
    assert smaller["prompt_ids"].tolist() == [[11, 12, 13], [0, 0, 21], [0, 31, 32]]
    assert smaller["completion_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    assert smaller["tool_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert smaller["advantages"].tolist() == [1, 0, 0]
    assert smaller[KEPT].tolist() == [True, False, False]
    assert int(trained_tokens(smaller)) == 4


def test_an_idle_row_keeps_its_prompt_and_ends_where_the_kept_ones_end() -> None:
    smaller = remove(batch(), [False, False, True, False], rows=4)
    assert smaller["prompt_ids"].shape == (4, 3)
    assert smaller["completion_ids"].tolist() == [[7], [5], [8], [1]]
    assert smaller["tool_mask"].tolist() == [[1], [0], [0], [0]]


def test_a_process_without_a_kept_row_has_idle_ones_alone() -> None:
    smaller = remove(batch(), [False] * 4, rows=2)
    assert smaller["completion_ids"].tolist() == [[5, 6], [7, 0]]
    assert int(trained_tokens(smaller)) == 0
    assert smaller["advantages"].tolist() == [0, 0]


def test_what_tools_wrote_stays_masked() -> None:
    tools = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]])
    smaller = remove(batch(tool_mask=tools), [True, False, False, True], rows=2)
    assert smaller["tool_mask"].tolist() == [[1, 0, 0, 1], [0, 1, 1, 1]]
    assert int(trained_tokens(smaller)) == 4


def test_without_trimming_rows_go_and_columns_stay() -> None:
    smaller = remove(batch(), [False, True, True, False], rows=2, trim=False)
    assert smaller["prompt_ids"].shape == (2, 3)
    assert smaller["completion_ids"].shape == (2, 4)


def test_pictures_leave_with_their_rows() -> None:
    # Patches as Qwen has them: 1, 2, 0 and 4 pictures of 2 patches each.
    grids = torch.tensor([[1, 1, 2]] * 7)
    pictures = {"pixel_values": torch.arange(14.0)[:, None], "image_grid_thw": grids, "num_images": [1, 2, 0, 4]}
    kinds = torch.arange(28).view(4, 7)
    smaller = remove(batch(**pictures, mm_token_type_ids=kinds), [False, True, True, False], rows=2)
    assert smaller["pixel_values"].flatten().tolist() == [2, 3, 4, 5]
    assert smaller["image_grid_thw"].tolist() == [[1, 1, 2]] * 2
    assert smaller["num_images"] == [2, 0]
    assert smaller["mm_token_type_ids"].tolist() == [[8, 9, 10, 11], [15, 16, 17, 18]]  # two columns left, two right


def test_pictures_that_are_padded_to_rows_stay_one_entry_for_each_row() -> None:
    # As Idefics3 has them. Two rows with 0 and 2 pictures must not be read as one entry for each of 2 pictures.
    padded = {"pixel_values": torch.arange(8.0).view(4, 2, 1), "num_images": [1, 0, 2, 2]}
    smaller = remove(batch(**padded), [False, True, True, False], rows=2)
    assert smaller["pixel_values"].flatten().tolist() == [2, 3, 4, 5]
    assert smaller["num_images"] == [1, 1]


def test_rows_that_show_no_picture_leave_no_pixels() -> None:
    pictures = {
        "pixel_values": torch.ones(2, 3),
        "image_grid_thw": torch.tensor([[1, 1, 2]]),
        "num_images": [0, 0, 0, 1],
    }
    smaller = remove(batch(**pictures), [True, True, False, False], rows=2)
    assert not {"pixel_values", "image_grid_thw", "num_images"} & smaller.keys()


def test_a_row_with_pictures_is_not_cut_since_its_completion_may_show_some() -> None:
    pictures = {"pixel_values": torch.ones(4, 3), "num_images": [1, 1, 1, 1]}
    smaller = remove(batch(**pictures), [False, False, True, False], rows=4)
    assert smaller["completion_ids"].tolist() == [[7, 0, 0, 0], [5, 6, 0, 0], [8, 9, 10, 0], [1, 2, 3, 4]]


def test_a_micro_batch_has_the_pictures_of_its_rows_and_no_pixels_without_one() -> None:
    grids = torch.tensor([[1, 1, 2]] * 3)
    pictures = {"pixel_values": torch.arange(6.0)[:, None], "image_grid_thw": grids, "num_images": [1, 2, 0]}
    kinds = torch.arange(6).view(3, 2)
    (rows, both), (row, none) = micro_batches({**pictures, "mm_token_type_ids": kinds}, 3, 2)
    assert (rows, row) == (slice(0, 2), slice(2, 3))
    assert both["pixel_values"].flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert both["num_images"] == [1, 2]
    assert {name: value.tolist() for name, value in none.items()} == {"mm_token_type_ids": [[4, 5]]}


def test_advantages_may_stand_per_token() -> None:
    smaller = remove(batch(advantages=torch.ones(4, 4)), [True, False, False, False], rows=2)
    assert smaller["advantages"].tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_a_ratio_of_whole_sequences_keeps_its_column() -> None:
    ratios = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    smaller = remove(batch(importance_sampling_ratio=ratios), [False, True, True, False], rows=2)
    assert smaller["importance_sampling_ratio"].tolist() == [[2], [3]]


def test_a_ratio_of_whole_sequences_keeps_one_column_beside_a_draw_of_single_tokens() -> None:
    long = batch(importance_sampling_ratio=torch.ones(4, 1))
    short = {name: value[:, :1] if value.ndim == 2 else value for name, value in long.items()}
    whole = merged([short, long])
    assert whole["completion_ids"].shape == whole["old_per_token_logps"].shape == (8, 4)
    assert whole["importance_sampling_ratio"].tolist() == [[1]] * 8


@pytest.mark.parametrize(
    ("kept", "chunks", "rows"),
    [([6], 4, 8), ([6, 2], 2, 6), ([4, 0], 1, 4), ([0, 0], 3, 3), ([0], 1, 1), ([12], 4, 12)],
)
def test_every_process_holds_as_many_rows_as_the_fullest_one_needs(kept: list[int], chunks: int, rows: int) -> None:
    assert rows_needed(kept, chunks) == rows


def test_a_mean_over_rows_is_made_one_over_kept_rows_where_the_loss_counts_rows() -> None:
    assert row_factor("grpo", 8, 6) == pytest.approx(4 / 3)
    assert row_factor("dapo", 8, 6) == 1
    assert row_factor("bnpo", 8, 6) == 1
    assert row_factor("grpo", 8, 0) == 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("dapo", False, 1.0, False), []),
        (("bnpo", False, 1.0, False), ["bnpo"]),
        (("grpo", True, 1.0, False), ["entropy bonus"]),
        (("grpo", False, 0.2, False), ["top_entropy_quantile"]),
        (("grpo", False, 1.0, True), ["mixture of experts"]),
        (("bnpo", True, 0.2, True), ["bnpo", "entropy bonus", "top_entropy_quantile", "mixture of experts"]),
    ],
)
def test_each_term_that_depends_on_the_cut_is_named(settings: tuple[Any, ...], named: list[str]) -> None:
    sentences = cut_dependent(*settings)
    assert len(sentences) == len(named)
    assert all(name in sentence for name, sentence in zip(named, sentences, strict=True))
