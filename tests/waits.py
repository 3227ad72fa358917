"""Counts the calls for which a host waits for its device, on a machine without one.

Every tensor counts as one on a device. Calls are seen where Python makes them, those inside of transformers included.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_READS = {
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__")
} | {torch.nonzero, torch.masked_select, torch.Tensor.masked_select, torch.equal, torch.allclose}


class Waits(TorchFunctionMode):
    """A context that counts reads of values, and selections by a mask, by the name of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if func in _READS:
            self.counts[name] += 1
        elif func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(place, torch.Tensor) and place.dtype == torch.bool for place in places):
                self.counts["by mask"] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.counts.values())
