"""Dropped groups leave TRL's batch before its forward passes, and its denominators are set right.

Promise: what TRL computes on the smaller batch is what it would compute on a batch that never held the dropped groups.
Where its formula cannot give that (`cut_dependent`: what is averaged within a micro-batch), it is said.

TRL cuts a generation batch into `chunks` micro-batches of equal size, on every process. So each process keeps as many
rows as the fullest one needs and fills up with *idle* rows: the shortest dropped ones, with every token masked as if a
tool had written it. (Masked for attention, too, they would be read out of their context, and a ratio to what they were
in it may overflow: infinity times zero.) They cost a forward pass and enter no term. What they do to a denominator is
undone:

| loss_type | denominator of TRL | mended by |
|---|---|---|
| `grpo`, `sapo`, `luspo`, `dr_grpo` | rows, idle ones too | advantages and beta times rows / kept rows |
| `dapo`, `cispo`, `vespo` | `num_items_in_batch` | counted anew |
| `bnpo`, the entropy bonus | tokens of the micro-batch | nothing: it depends on how rows are cut, filter or not |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

ROWS_COUNTED = frozenset({"grpo", "sapo", "luspo", "dr_grpo"})
"""Losses whose denominator counts rows."""

KEPT = "heedful_kept"
"""Column: True where a row is kept, False where it is idle."""
ROW_FACTOR = "heedful_row_factor"
LOSS_FACTOR = "heedful_loss_factor"

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
"""Columns per token of the completion; the ratio may be one number per row."""

_OF_WHOLE_ROWS = ("token_type_ids", "mm_token_type_ids", "pixel_values", "num_images")
"""Where one of these is there, columns and rows are aligned with more than prompts and completions."""


def rows_needed(kept_by_process: Sequence[int], chunks: int) -> int:
    """Rows that every process keeps: a multiple of `chunks`, enough for the fullest process, never none."""
    return chunks * max(1, *(-(-kept // chunks) for kept in kept_by_process))


def keeps_all_rows(batch: Mapping[str, Any]) -> bool:
    """Whether rows can only be made idle, not removed: images are not aligned with rows."""
    return any(name in batch for name in _OF_WHOLE_ROWS)


def remove(batch: Mapping[str, Any], kept: Sequence[bool], rows: int, trim: bool = True) -> Batch:
    """The batch with the kept rows first and idle ones behind them, `rows` in all.

    `trim`: cut off columns that no row uses any more. A batch that `keeps_all_rows` keeps rows and columns; the
    dropped ones become idle. `num_items_in_batch` is left as it was.
    """
    before = len(kept)
    if keeps_all_rows(batch):
        order = list(range(before))
    else:
        lengths_B = (batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)).tolist()
        idle = sorted((row for row in range(before) if not kept[row]), key=lambda row: lengths_B[row])
        order = ([row for row in range(before) if kept[row]] + idle)[:rows]
    smaller = {name: _rows(value, order, before) for name, value in batch.items()}
    dropped_B = torch.tensor([not kept[row] for row in order], device=smaller["completion_mask"].device)
    sampled_BT = smaller.get("tool_mask", torch.ones_like(smaller["completion_mask"]))
    smaller["tool_mask"] = sampled_BT.masked_fill(dropped_B[:, None], 0)
    smaller["advantages"] = _masked(smaller["advantages"], dropped_B)
    smaller[KEPT] = ~dropped_B
    return _trimmed(smaller) if trim and not keeps_all_rows(batch) else smaller


def trained_tokens(batch: Mapping[str, Any]) -> Tensor:
    """How many tokens of this process enter the loss, as TRL counts them."""
    mask_BT = batch["completion_mask"]
    return (mask_BT * batch["tool_mask"] if "tool_mask" in batch else mask_BT).sum()


def row_factor(loss_type: str, rows: int, kept: int) -> float:
    """What the advantages and beta are multiplied by, so that a mean over `rows` rows is one over `kept` of them."""
    return rows / kept if loss_type in ROWS_COUNTED and kept else 1.0


def cut_dependent(loss_type: str, entropy_bonus: bool, entropy_quantile: float, load_balancing: bool) -> list[str]:
    """What TRL takes within a micro-batch, so that a filter is felt in it; a sentence for each. Nothing of it is felt
    where a generation batch is one micro-batch of one process."""
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
            "TRL takes the threshold of top_entropy_quantile within each micro-batch: which tokens are trained on "
            "depends on how rows are cut into micro-batches, with and without a filter."
        )
    if load_balancing:
        sentences.append(
            "The load-balancing loss of a mixture of experts is taken within each micro-batch and sees the rows, too, "
            "that only fill a micro-batch up. Set router_aux_loss_coef=0.0 to train without it."
        )
    return sentences


def _rows(value: Any, order: Sequence[int], before: int) -> Any:
    if isinstance(value, Tensor):
        return value[list(order)] if value.ndim and value.shape[0] == before else value
    return [value[row] for row in order] if isinstance(value, list) and len(value) == before else value


def _masked(advantages: Tensor, dropped_B: Tensor) -> Tensor:
    """Advantages may stand per row or, in subclasses of TRL's trainer, per token."""
    return advantages.masked_fill(dropped_B if advantages.ndim == 1 else dropped_B[:, None], 0.0)


def _trimmed(batch: Batch) -> Batch:
    """Without the columns that dropped rows alone reached into: prompts lose padding on the left; completions end, on
    the right, where the last kept one does, so an idle one may be cut."""
    mask_BT = batch["completion_mask"]
    rows = batch[KEPT] if batch[KEPT].any() else ~batch[KEPT]
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
    return trimmed
