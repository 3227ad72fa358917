"""Positions in three axes (time, row, column) for rows of ids with pictures, as Qwen2-VL and later models have them.

A token of text has one position on all axes. A picture of r x c features begins at the next position p: its features
are at (p, p + row, p + column). The text after it continues at p + max(r, c), not at p + r c. So the position of text
differs from the number of ids before it by a shift. A KV cache carries the shift of each of its rows.

Source: `get_rope_index` of transformers, which keeps the shift of the last call on the model instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

_NAME = "shift_B"


def shift_of(cache: object) -> Tensor | None:
    """The shift of each row of a KV cache, `[B]`. `None`: no row has one."""
    return cast(Tensor | None, getattr(cache, _NAME, None))


def carry_shift(cache: object, shift_B: Tensor | None) -> None:
    """Keep the shift with a KV cache."""
    if shift_B is not None:
        setattr(cast(Any, cache), _NAME, shift_B)


def joined_shifts(caches: Sequence[object], rows: Sequence[Tensor]) -> Tensor | None:
    """The shift of these rows of the first cache, then of the second, and so on."""
    shifts = [shift_of(cache) for cache in caches]
    if all(shift_B is None for shift_B in shifts):
        return None
    pairs = zip(shifts, rows, strict=True)
    return torch.cat([torch.zeros_like(rows_B) if shift_B is None else shift_B[rows_B] for shift_B, rows_B in pairs])


def shifted(
    ids_BT: Tensor, counts_BT: Tensor, shift_B: Tensor, grid_of: Callable[[int], tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """The positions `[3, B, T]`, and the shift of each row after these ids.

    `counts_BT`: the number of ids before each. `shift_B`: before these ids. `grid_of`: rows and columns of the picture
    with this id.
    """
    positions_3BT = (counts_BT + shift_B[:, None])[None].repeat(3, 1, 1)
    after = shift_B.tolist()
    ids, counts = ids_BT.tolist(), counts_BT.tolist()
    for row, ids_T in enumerate(ids):
        place, shift = 0, after[row]
        while place < len(ids_T):
            own = ids_T[place]
            if own >= 0:
                place += 1
                continue
            rows, columns = grid_of(own)
            end = place + rows * columns
            begin = counts[row][place] + shift
            grid = torch.arange(rows * columns, device=ids_BT.device)
            positions_3BT[0, row, place:end] = begin
            positions_3BT[1, row, place:end] = begin + grid // columns
            positions_3BT[2, row, place:end] = begin + grid % columns
            change = max(rows, columns) - rows * columns
            shift += change
            positions_3BT[:, row, end:] += change
            place = end
        after[row] = shift
    return positions_3BT, torch.tensor(after, device=ids_BT.device)
