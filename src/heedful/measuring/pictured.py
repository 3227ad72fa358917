"""Scores of thoughts whose pictures, or texts, are exchanged. Each context is read once for the thoughts that share it.

The scores equal those of scoring every thought under `Exchanged.context`, pair by pair, up to the scorer's rounding.
Whole contexts are prompts, so a scorer meets pictures in prompts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from heedful.diagnostics.cross_scores.image_metrics import image_share
from heedful.diagnostics.cross_scores.pictures import Exchanged, Pictured
from heedful.diagnostics.cross_scores.score_matrix import take_rows
from heedful.diagnostics.cross_scores.thoughts import Thoughts
from heedful.measuring.scope_reader import ScoredThoughts
from heedful.measuring.swapped import Request
from heedful.protocols import Scorer
from heedful.types import CrossScores, Metric


@dataclass(frozen=True, slots=True)
class ImageScores:
    """First turns whose pictures are exchanged, and first turns whose texts are."""

    image: ScoredThoughts
    text: ScoredThoughts
    rows_M: tuple[Pictured, ...] = ()
    """The thoughts of `image`. Empty: they are those of first turns, since all prompts have one text."""

    def share(self, first: CrossScores, thoughts: Thoughts, place: str, scorer: str) -> Metric:
        """`grounding/image_share`, from the scores of all first turns as well."""
        both = first
        if self.rows_M and not self.image.why:
            asked = zip((thoughts.prompts_N[own] for own in thoughts.own_M), thoughts.thoughts_M, strict=True)
            number = {pair: row for row, pair in enumerate(asked)}  # equal pairs have equal scores
            both = take_rows(first, [number[one.context, one.thought] for one in self.rows_M])
        return image_share(self.image.scores, both, place, scorer, self.image.why)


def requests_of_pictures(exchanged: Exchanged) -> Iterator[Request]:
    """What the scorer is asked: the rows that keep the same side, under all columns."""
    together: dict[object, list[int]] = {}
    for row in range(len(exchanged.rows_M)):
        together.setdefault(exchanged.kept(row), []).append(row)
    for members in together.values():
        prompts = [exchanged.context(members[0], column) for column in range(exchanged.columns)]
        thoughts = [exchanged.rows_M[row].thought for row in members]
        yield Request(members, False, prompts, thoughts, [exchanged.own_M[row] for row in members])


def score_exchanged(scorer: Scorer, exchanged: Exchanged, temperature: float) -> CrossScores:
    """M x N scores: thought i where column j stands in for its own pictures, or its own text."""
    shape = len(exchanged.rows_M), exchanged.columns
    whole_MN, heads, noise = np.zeros(shape), dict[int, np.ndarray](), 0.0
    for asked in requests_of_pictures(exchanged):
        scored = scorer.cross_score(asked.prompts, asked.thoughts, asked.own, temperature)
        whole_MN[list(asked.rows)] = scored.scores_MN
        for k, head_MN in scored.heads.items():
            heads.setdefault(k, np.zeros(shape))[list(asked.rows)] = head_MN
        noise = max(noise, scored.noise)
    return CrossScores(
        scores_MN=whole_MN,  # type: ignore[arg-type]
        lengths_M=[len(one.thought) for one in exchanged.rows_M],
        own_M=list(exchanged.own_M),
        heads=cast(dict[int, list[list[float]]], heads),
        noise=noise,
    )
