"""Which metrics go into another trainer's own logs. Torch-free."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from heedful.boundary.foreign_text import clean_line
from heedful.types import Metric

_DETAIL = re.compile(
    r"(information|retrieval)[^/]*/(?!first_turn(@[^/]*)?/)"  # other scopes than first turns
    r"|information/.*/(mi_loo|mi_tempered|mi_per_token|mi_head_.*|n_reaching_.*|zscore.*|entropy_.*(?<!per_token))$"
    r"|retrieval/.*(@|chance|2way)"
)


def numbers_of(metrics: Sequence[Metric], all_of_them: bool) -> dict[str, float]:
    """The finite numbers among the metrics, by name, with or without those that only the record needs.

    Names of reward components come from environments. What no terminal and no file should get is escaped.
    """
    return {
        clean_line(metric.name): float(metric.value)
        for metric in metrics
        if isinstance(metric.value, int | float)
        and math.isfinite(metric.value)
        and (all_of_them or not _DETAIL.match(metric.name))
    }
