"""Advantages that use statistics of the whole batch, computed over the kept rows.

The formulas are TRL's (1.16, `sum_then_normalize` with `scale_rewards="batch"`, and `normalize_then_sum`). With all
rows kept they give TRL's numbers. Statistics of a single group need no correction.
"""

from __future__ import annotations

import torch
from torch import Tensor

_EPSILON = 1e-4
"""Term that TRL adds to standard deviations."""


def advantages_over(
    rewards_BF: Tensor, weights_F: Tensor, group_size: int, kept_B: Tensor, normalize_first: bool
) -> Tensor:
    """One advantage per row, 0 for dropped and for unscored rows.

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
