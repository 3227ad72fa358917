"""What the loss is multiplied by when groups were dropped.

Promise: plain numbers in and out, so any trainer can scale its loss in one line.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

LossScale = Literal["kept", "all", "sqrt", "rho"]


def loss_scale_factor(kind: LossScale, kept: int, total: int, p: float | None = None) -> float:
    """What the whole loss, its regularisers included, is multiplied by when `kept` of `total` groups are kept.

    `kept`: 1, so that means run over what is kept. `all`: kept / total, so that they run over everything collected
    (exact where groups weigh alike: averages over sequences and over a fixed budget). `sqrt`: the square root of that.
    `rho`: p, the share that the filter asks for. AdamW divides a constant factor out again: only changes of the factor
    between steps, weight decay and gradient clipping can tell the difference.

    Raises ValueError for impossible counts, and for `rho` without a filter that has a `p`.
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
    if p is None:
        raise ValueError(
            "The loss scale 'rho' multiplies the loss by the filter's p, but the chosen filter has none; "
            "choose the filter top_p, or the loss scale kept, all or sqrt."
        )
    return p
