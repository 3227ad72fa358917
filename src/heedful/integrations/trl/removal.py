"""Removal of dropped groups from TRL's batch before its forward passes, with corrected denominators.

TRL computes the same on the smaller batch as on a batch without the dropped groups. Some formulas cannot give that,
because they average within a micro-batch. `cut_dependent` lists them for a warning.

Pictures leave with their rows, by TRL's own functions for cutting a batch into micro-batches.

TRL cuts a generation batch into `chunks` micro-batches of equal size, on every process. So each process keeps as many
rows as the fullest one needs. The others fill up with *idle* rows: the shortest dropped ones, with every token masked
as if a tool had written it. The attention mask is unchanged. Otherwise the rows would be read without their context,
and the probability ratio may overflow (infinity times zero). Idle rows cost a forward pass and enter no term. Their
effect on a denominator is corrected:

| loss_type | denominator of TRL | correction |
|---|---|---|
| `grpo`, `sapo`, `luspo`, `dr_grpo` | rows, idle ones too | advantages and beta times rows / kept rows |
| `dapo`, `cispo`, `vespo` | `num_items_in_batch` | counted again |
| `bnpo`, the entropy bonus | tokens of the micro-batch | nothing: it depends on how rows are cut, filter or not |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

ROWS_COUNTED = frozenset({"grpo", "sapo", "luspo", "dr_grpo"})
"""Losses with a denominator that counts rows."""

KEPT = "heedful_kept"
"""Column: True if a row is kept, False if it is idle."""
ROW_FACTOR = "heedful_row_factor"
LOSS_FACTOR = "heedful_loss_factor"

_EPSILON = 1e-4
"""Term that TRL adds to standard deviations."""

Batch = dict[str, Any]

_OF_COMPLETIONS = frozenset(
    {
        "completion_ids",
        "completion_mask",
        "tool_mask",
        "advantages",
        "old_per_token_logps",
        "ref_per_token_logps",
        "sampling_per_token_logps",
        "importance_sampling_ratio",
    }
)
"""Columns with one value per token of the completion. The ratio may be one number per row."""

_OF_WHOLE_ROWS = frozenset({"token_type_ids", "mm_token_type_ids"})
"""Columns with one value per token of prompt and completion."""

_OF_PICTURES = (
    *("pixel_values", "image_grid_thw", "image_position_ids", "pixel_attention_mask", "spatial_shapes", "image_sizes"),
    *("num_images", "num_tiles"),
)


def rows_needed(kept_by_process: Sequence[int], chunks: int) -> int:
    """Number of rows that every process keeps: a multiple of `chunks`, enough for the fullest process, at least one."""
    return chunks * max(1, *(-(-kept // chunks) for kept in kept_by_process))


def remove(batch: Mapping[str, Any], kept: Sequence[bool], rows: int, trim: bool = True) -> Batch:
    """The batch with the kept rows first and idle ones after them, `rows` in total.

    `trim`: cut off columns that no row uses any more. `num_items_in_batch` does not change.
    """
    before = len(kept)
    lengths_B = (batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)).tolist()
    idle = sorted((row for row in range(before) if not kept[row]), key=lambda row: lengths_B[row])
    order = ([row for row in range(before) if kept[row]] + idle)[:rows]
    by_row = split_pixel_values_by_grid(dict(batch))
    smaller = _joined({name: _rows(value, order, before) for name, value in by_row.items()})
    dropped_B = torch.tensor([not kept[row] for row in order], device=smaller["completion_mask"].device)
    sampled_BT = smaller.get("tool_mask", torch.ones_like(smaller["completion_mask"]))
    smaller["tool_mask"] = sampled_BT.masked_fill(dropped_B[:, None], 0)
    # They are per row or, in subclasses of TRL's trainer, per token.
    left_out = dropped_B if smaller["advantages"].ndim == 1 else dropped_B[:, None]
    smaller["advantages"] = smaller["advantages"].masked_fill(left_out, 0.0)
    smaller[KEPT] = ~dropped_B
    return _trimmed(smaller) if trim else smaller


def merged(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches as one, padded as TRL pads: prompts on the left, completions on the right."""
    if len(batches) == 1:
        return dict(batches[0])
    befores = [batch["prompt_mask"].shape[1] for batch in batches]
    widths = [batch["completion_mask"].shape[1] for batch in batches]
    whole: Batch = {}
    for name, first in batches[0].items():
        values = [batch[name] for batch in batches]
        if isinstance(first, list):
            whole[name] = [one for value in values for one in value]
        elif not isinstance(first, Tensor) or not first.ndim:
            whole[name] = first  # `num_items_in_batch` is counted again
        elif first.ndim == 1:
            whole[name] = torch.cat(values)
        else:
            left = name in ("prompt_ids", "prompt_mask") or name in _OF_WHOLE_ROWS
            # A ratio of whole sequences has one column, also where a draw's completions have one token.
            per_token = all(value.shape[1] >= width for value, width in zip(values, widths, strict=True))
            right = name in _OF_WHOLE_ROWS or (name in _OF_COMPLETIONS and per_token)
            padded = [
                pad(value, (max(befores) - before if left else 0, max(widths) - width if right else 0))
                for value, before, width in zip(values, befores, widths, strict=True)
            ]
            whole[name] = torch.cat(padded)
    return whole


def trained_tokens(batch: Mapping[str, Any]) -> Tensor:
    """Number of tokens of this process in the loss, as TRL counts them."""
    mask_BT = batch["completion_mask"]
    return (mask_BT * batch["tool_mask"] if "tool_mask" in batch else mask_BT).sum()


def row_factor(loss_type: str, rows: int, kept: int) -> float:
    """Factor of the advantages and beta that turns a mean over `rows` rows into a mean over `kept` rows."""
    return rows / kept if loss_type in ROWS_COUNTED and kept else 1.0


def cut_dependent(loss_type: str, entropy_bonus: bool, entropy_quantile: float, load_balancing: bool) -> list[str]:
    """Terms that TRL computes within a micro-batch, so that they depend on a filter: one sentence for each.

    They do not depend on it if a generation batch is one micro-batch of one process."""
    sentences = []
    if loss_type == "bnpo":
        sentences.append(
            "The loss bnpo averages over the tokens of each micro-batch, so its gradient depends on how rows are cut "
            "into micro-batches, with and without a filter. Take loss_type='dapo' for one that does not."
        )
    if entropy_bonus:
        sentences.append(
            "TRL's entropy bonus is a mean over each micro-batch: under a filter a micro-batch with fewer kept tokens "
            "weighs as much as a full one, and one without any adds nothing."
        )
    if entropy_quantile < 1:
        sentences.append(
            "TRL takes the threshold of top_entropy_quantile within each micro-batch: the choice of tokens "
            "depends on how rows are cut into micro-batches, with and without a filter."
        )
    if load_balancing:
        sentences.append(
            "The load-balancing loss of a mixture of experts is computed within each micro-batch and includes rows "
            "that only fill the micro-batch. Set router_aux_loss_coef=0.0 to train without it."
        )
    return sentences


def _rows(value: Any, order: Sequence[int], before: int) -> Any:
    if isinstance(value, Tensor):
        return value[list(order)] if value.ndim and value.shape[0] == before else value
    return [value[row] for row in order] if isinstance(value, list) and len(value) == before else value


def _joined(batch: Batch) -> Batch:
    """The batch with the pictures of its rows in one tensor again, as TRL's forward passes take them."""
    pixels = batch.get("pixel_values")
    if isinstance(pixels, Tensor):  # one entry for each row, padded: TRL must not take it for one entry per picture
        return if_shown({**batch, "num_images": [1] * len(pixels)})
    return if_shown(unsplit_pixel_values_by_grid(batch))


def if_shown(batch: Batch) -> Batch:
    """The batch, without pixels of no picture at all: models cannot read those."""
    pixels, mask = batch.get("pixel_values"), batch.get("pixel_attention_mask")
    if pixels is None or (pixels.numel() and (mask is None or mask.any())):
        return batch
    return {name: value for name, value in batch.items() if name not in _OF_PICTURES}


def micro_batches(batch: Batch, rows: int, size: int) -> Iterator[tuple[slice, Batch]]:
    """The columns of each `size` rows, with the pictures that these rows show."""
    by_row = split_pixel_values_by_grid(batch)
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        yield part, if_shown(unsplit_pixel_values_by_grid({name: value[part] for name, value in by_row.items()}))


def _trimmed(batch: Batch) -> Batch:
    """The batch without columns that only dropped rows used.

    Prompts lose padding on the left. Completions are cut on the right after the last kept token, so an idle one may be
    cut. With pictures it is not: a completion may show some, and a model reads all of a picture or nothing."""
    mask_BT = batch["completion_mask"]
    whole = not batch[KEPT].any() or "pixel_values" in batch
    rows = torch.ones_like(batch[KEPT]) if whole else batch[KEPT]
    filled = torch.nonzero(mask_BT[rows].any(dim=0))
    if not len(filled):
        return batch
    before, width = batch["prompt_mask"].shape[1], mask_BT.shape[1]
    start = int(torch.nonzero(batch["prompt_mask"].any(dim=0))[0])
    end = int(filled[-1]) + 1
    trimmed = dict(batch)
    for name, value in batch.items():
        if not isinstance(value, Tensor) or value.ndim < 2:
            continue
        if name in ("prompt_ids", "prompt_mask") and value.shape[1] == before:
            trimmed[name] = value[:, start:]
        elif name in _OF_COMPLETIONS and value.shape[1] == width:
            trimmed[name] = value[:, :end]
        elif name in _OF_WHOLE_ROWS and value.shape[1] == before + width:
            trimmed[name] = value[:, start : before + end]
    return trimmed


def advantages_over(
    rewards_BF: Tensor, weights_F: Tensor, group_size: int, kept_B: Tensor, normalize_first: bool
) -> Tensor:
    """One advantage per row, 0 for dropped and for unscored rows: advantages that use statistics of the whole batch.

    The formulas are TRL's (1.16, `sum_then_normalize` with `scale_rewards="batch"`, and `normalize_then_sum`). With all
    rows kept they give TRL's numbers. Statistics of a single group need no correction.

    `rewards_BF`: raw rewards of all processes, a column per function, NaN = no reward. `normalize_first`: each function
    is normalised within its group before the weighted sum. Otherwise the sum is centred in its group. Both are then
    divided by the standard deviation over the kept rows.
    """
    unscored_B = torch.isnan(rewards_BF).all(dim=1)
    if normalize_first:
        grouped_PGF = rewards_BF.view(-1, group_size, rewards_BF.shape[1])
        centred_PGF = grouped_PGF - torch.nanmean(grouped_PGF, dim=1, keepdim=True)
        rewards_BF = (centred_PGF / (_deviation(grouped_PGF, dim=1) + _EPSILON)).view_as(rewards_BF)
    rewards_B = (rewards_BF * weights_F).nansum(dim=1)
    rewards_B = rewards_B.masked_fill(unscored_B, torch.nan)
    kept_rewards = rewards_B[kept_B]
    if normalize_first:
        centre_B = torch.nanmean(kept_rewards).expand_as(rewards_B)
    else:
        grouped_PG = rewards_B.view(-1, group_size)
        centre_B = torch.nanmean(grouped_PG, dim=1).repeat_interleave(group_size)
    advantages_B = (rewards_B - centre_B) / (_deviation(kept_rewards, dim=0).squeeze() + _EPSILON)
    return torch.nan_to_num(advantages_B, nan=0.0).masked_fill(~kept_B, 0.0)


def _deviation(values: Tensor, dim: int) -> Tensor:
    """Sample standard deviation along `dim`, which is kept with size 1. NaNs are left out."""
    mean = torch.nanmean(values, dim=dim, keepdim=True)
    count = (~torch.isnan(values)).sum(dim=dim, keepdim=True)
    return torch.sqrt(((values - mean) ** 2).nansum(dim=dim, keepdim=True) / (count - 1).clamp(min=1))
