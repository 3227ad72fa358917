"""What pictures and text tell together: the picture's share of what the prompt moves."""

from __future__ import annotations

import numpy as np

from heedful.diagnostics.cross_scores import mixture
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.types import CrossScores, Metric


def image_share(image: CrossScores, both: CrossScores, place: str = "", scorer: str = "", why: str = "") -> Metric:
    """`grounding/image_share`: the gap where pictures are exchanged, divided by the gap where pictures and text are.

    Both matrices have the same thoughts in the same order. A prompt is deleted from both at once. `None` where the
    interval of the divisor includes 0. `why`: the reason why one of them has no scores.
    """
    name = f"grounding@{scorer}{place}/image_share" if scorer else f"grounding{place}/image_share"
    parts = score_matrix(image), score_matrix(both)
    rows = parts[1].rows
    if not why and min(part.prompts for part in parts) < 3:
        why = mixture.FEW_PROMPTS
    if not why and not all(part.finite() for part in parts):
        why = "the scores hold NaN or infinite values"
    if why:
        return Metric(name, None, rows, why=why)
    apart, together = (mixture.gap(part) for part in parts)
    read = metric_from("", together, rows)
    if read.low is None or read.low <= 0:
        return Metric(name, None, rows, why="the gap of first turns is not clearly above 0")
    deleted = []
    for prompt in range(parts[1].prompts):
        kept_M = [own != prompt for own in both.own_M]
        rest = [score_matrix(select_rows(scores, kept_M)) for scores in (image, both)]
        if min(part.prompts for part in rest) < 2:
            return Metric(name, apart.value / together.value, rows, why=f"no interval: {mixture.FEW_PROMPTS}")
        deleted.append(mixture.gap(rest[0]).value / mixture.gap(rest[1]).value)
    return metric_from(name, Estimate(apart.value / together.value, np.array(deleted)), rows)
