"""What pictures and text tell together: the information of the picture given the text, and the picture's share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heedful.diagnostics.cross_scores import mixture
from heedful.diagnostics.cross_scores.information import SATURATED
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.picture_ids import Frame, Ids, frame
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.diagnostics.names import metric_name, scope_name
from heedful.types import CrossScores, Metric

NO_SHARED_TEXT = "no two prompts share a text"


def image_given_text(
    scores: CrossScores, prompts_N: Sequence[Ids], place: str = "", scorer: str = "", why: str = ""
) -> list[Metric]:
    """`information/image_given_text/mi` and `mi_ceiling`: I(picture; Z given the text), in nats.

    `scores` are those of first turns, so every prompt is a real one. Each thought is compared with the prompts that
    differ from its own in pictures alone. Thoughts without such a prompt do not count. The interval deletes one prompt
    at a time. `why`: the reason why there are no scores.
    """
    scope = scope_name("image_given_text", place)
    names = [metric_name("information", scope, name, scorer) for name in ("mi", "mi_ceiling")]
    matrix = score_matrix(scores)
    texts_N = [frame(prompt) for prompt in prompts_N]
    shared_N = [texts_N.count(text) > 1 for text in texts_N]
    rows = sum(shared_N[own] for own in scores.own_M)
    if not why and not matrix.finite():
        why = "the scores hold NaN or infinite values"
    if why or not rows:
        return [Metric(name, None, rows, why=why or NO_SHARED_TEXT) for name in names]

    def without(prompt: int | None) -> tuple[float, float] | None:
        return _means(scores, texts_N, [shared and column != prompt for column, shared in enumerate(shared_N)])

    whole = without(None)
    assert whole is not None
    deleted = [without(prompt) for prompt, shared in enumerate(shared_N) if shared]
    known = [found[0] for found in deleted if found is not None]
    estimate = Estimate(whole[0], np.array(known) if len(known) == len(deleted) else None, mixture.FEW_PROMPTS)
    saturated = whole[0] >= SATURATED * whole[1]
    return [
        metric_from(names[0], estimate, rows, ceiling=whole[1], saturated=saturated),
        Metric(names[1], whole[1], rows),
    ]


def _means(scores: CrossScores, texts_N: Sequence[Frame], chosen_N: Sequence[bool]) -> tuple[float, float] | None:
    """The mean gain and the mean ceiling of the thoughts of these prompts; `None` where no two share a text."""
    gains, ceilings, rows = 0.0, 0.0, 0
    for text in dict.fromkeys(text for text, chosen in zip(texts_N, chosen_N, strict=True) if chosen):
        matrix = score_matrix(select_rows(scores, [chosen_N[own] and texts_N[own] == text for own in scores.own_M]))
        if matrix.prompts > 1:
            gains += float(mixture.mixture(matrix, matrix.scores_MN).gain_M.sum())
            ceilings += mixture.ceiling(matrix) * matrix.rows
            rows += matrix.rows
    return (gains / rows, ceilings / rows) if rows else None


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
