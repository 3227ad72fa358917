"""The ragged key-value cache: what is held when columns are added, and when rows are chosen and joined."""

from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.policies.kv import KVBatch, gather  # noqa: E402

HEADS, DIM = 2, 3


def extended(batch: KVBatch, tokens_BT: list[list[int]]) -> None:
    """Append columns whose keys hold the token's number, and values its negative; 0 = no token."""
    ids = torch.tensor(tokens_BT)
    batch.extend(ids > 0)
    states = ids[:, None, :, None].expand(-1, HEADS, -1, DIM).double()
    for layer in cast(Any, batch.cache).layers:
        layer.update(states, -states)


def held(batch: KVBatch) -> list[list[int]]:
    """The tokens of each row, read back from the keys."""
    layer = cast(Any, batch.cache).layers[1]
    keys = layer.keys[:, 0, : layer.length, 0]
    assert torch.equal(layer.values[:, 1, : layer.length, 2], -keys)
    assert batch.filled_BT.shape[1] == layer.length
    assert batch.lengths_B.tolist() == batch.filled_BT.sum(1).tolist()
    return [row[filled].int().tolist() for row, filled in zip(keys, batch.filled_BT, strict=True)]


def batch_of(*tokens_BT: list[list[int]], room: int = 2) -> KVBatch:
    batch = KVBatch.empty(len(tokens_BT[0]), 2, room, torch.device("cpu"))
    for columns in tokens_BT:
        extended(batch, columns)
    return batch


def test_chosen_rows_keep_their_tokens_right_aligned_without_unused_columns() -> None:
    batch = batch_of([[0, 0, 1], [2, 3, 4], [0, 5, 6]], [[7], [0], [8]])
    assert held(batch) == [[1, 7], [2, 3, 4], [5, 6, 8]]
    chosen = gather([(batch, row) for row in (2, 0, 2)], room=1)
    assert held(chosen) == [[5, 6, 8], [1, 7], [5, 6, 8]]
    assert chosen.filled_BT.tolist() == [[True] * 3, [False, True, True], [True] * 3]
    extended(chosen, [[9], [9], [0]])
    assert held(chosen) == [[5, 6, 8, 9], [1, 7, 9], [5, 6, 8]]
    assert held(batch) == [[1, 7], [2, 3, 4], [5, 6, 8]], "the source stays as it was"


def test_rows_of_caches_of_different_widths_join_in_any_order() -> None:
    first, second = batch_of([[1, 2, 3], [0, 4, 5]]), batch_of([[6], [7]], [[8], [0]])
    assert held(gather([(first, 1), (second, 1), (second, 0)], room=2)) == [[4, 5], [7], [6, 8]]
    assert held(gather([(second, 0), (first, 0), (second, 1), (first, 1)])) == [[6, 8], [1, 2, 3], [7], [4, 5]]


def test_a_buffer_grows_when_it_is_full() -> None:
    batch = batch_of([[1, 2], [0, 3]], *[[[number], [number]] for number in range(4, 14)], room=3)
    assert held(batch) == [[1, 2, *range(4, 14)], [3, *range(4, 14)]]
