"""The factor of the loss when groups were dropped. Plain numbers in and out."""

from __future__ import annotations

import math
from typing import Literal, get_args

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

    Raises ValueError for impossible counts, and for `rho` without a filter that has a `p` above 0 and at most 1.
    """
    if not 0 <= kept <= total or total < 1:
        raise ValueError(f"Expected 0 <= kept groups <= groups and at least 1 group, found {kept} kept of {total}.")
    if kind == "kept":
        return 1.0
    if kind == "all":
        return kept / total
    if kind == "sqrt":
        return math.sqrt(kept / total)
    if kind != "rho":
        raise ValueError(f"Expected a loss scale among {', '.join(get_args(LossScale))}, found {kind!r}.")
    check_loss_scale(kind, p)
    assert p is not None, "the check has just refused it"
    if not 0 < p <= 1:
        raise ValueError(f"Expected a share above 0 and at most 1 for the loss scale rho, found {p}.")
    return p
