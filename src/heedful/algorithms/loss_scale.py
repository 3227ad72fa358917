"""The factor of the loss when groups were dropped. Plain numbers in and out."""

from __future__ import annotations

import math
from typing import Literal

LossScale = Literal["kept", "all", "sqrt", "rho"]


def check_loss_scale(kind: LossScale, share: float | None) -> None:
    """Raise ValueError for `rho` with a filter that asks for no `share` of the groups."""
    if kind == "rho" and share is None:
        raise ValueError(
            "The loss scale rho multiplies the loss by the share that the filter asks for, but the chosen filter asks "
            "for none; choose the filter top_p, or the loss scale kept, all or sqrt."
        )


def loss_scale_factor(kind: LossScale, kept: int, total: int, p: float | None = None) -> float:
    """The factor of the whole loss, its regularisers included, when `kept` of `total` groups are kept.

    `kept`: 1, so means run over the kept groups. `all`: kept / total, so means run over all collected groups. This is
    exact where groups weigh alike, as in averages over sequences and over a fixed budget. `sqrt`: the square root of
    it. `rho`: p, the filter's share. AdamW removes a constant factor again. Only changes of the factor between steps,
    weight decay and gradient clipping make a difference.

    `p` is needed for `rho` alone, see `check_loss_scale`.
    """
    if kind == "rho":
        assert p is not None, "check_loss_scale has refused it"
        return p
    share = kept / total
    return {"kept": 1.0, "all": share, "sqrt": math.sqrt(share)}[kind]
