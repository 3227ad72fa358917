"""Scores of thoughts under swapped observations. Each row has its own history, so its contexts are its own too.

The scores equal those of scoring every thought under `SwappedObservations.context`, pair by pair, up to the scorer's
rounding. Each history is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np

from heedful.diagnostics.cross_scores.thoughts import Ids, SwappedObservations
from heedful.protocols import Scorer
from heedful.types import CrossScores


class TokenScorer(Scorer, Protocol):
    """A scorer that can keep the log-probability of every token."""

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores: ...


def score_swapped(
    scorer: TokenScorer, swapped: SwappedObservations, temperature: float, heads: Sequence[int] = (16, 32)
) -> CrossScores:
    """M x N scores with their tokens: thought i after its own history and observation j.

    The history is the shared prompt. Observation, lead and thought follow it, and the thought's tokens are taken from
    the end. Rows of equal history are scored together. Without a history (memory-less agents) the observation is the
    whole prompt, and every thought is scored under every observation. So are whole contexts that hold pictures.
    """
    rows, columns = len(swapped.thoughts_M), len(swapped.observations_N)
    tokens: list[np.ndarray] = [np.zeros((columns, len(thought)), dtype=np.float32) for thought in swapped.thoughts_M]
    noise = 0.0
    for asked in requests(swapped):
        scored = scorer.cross_score(asked.prompts, asked.thoughts, asked.own, temperature, keep="tokens")
        noise = max(noise, scored.noise)
        kept = _tokens(scored)
        for place, row in enumerate(asked.rows):
            if asked.after_history:
                for column in range(columns):
                    tokens[row][column] = kept[place * columns + column][0, -len(swapped.thoughts_M[row]) :]
            else:
                tokens[row] = kept[place]
    sums = {k: np.array([kept[:, :k].sum(axis=1, dtype=np.float64) for kept in tokens]) for k in (None, *heads)}
    matrices = {k: cast(Sequence[Sequence[float]], sums_MN.reshape(rows, columns)) for k, sums_MN in sums.items()}
    return CrossScores(
        scores_MN=matrices[None],
        lengths_M=[len(thought) for thought in swapped.thoughts_M],
        own_M=list(swapped.own_M),
        heads={k: matrices[k] for k in heads},
        noise=noise,
        tokens=cast(Sequence[Sequence[Sequence[float]]], tokens),
        tasks_M=swapped.tasks_M,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the scorer, for rows that share their history or, without one, their lead."""

    rows: Sequence[int]
    after_history: bool
    """True: the history is the prompt, and each row is a thought after each observation. False: the observations are
    the prompts, and each row is one thought."""
    prompts: Sequence[Ids]
    thoughts: Sequence[Ids]
    own: Sequence[int]


def requests(swapped: SwappedObservations) -> Iterator[Request]:
    """What the scorer is asked: first the rows whose whole contexts are prompts, then those of each history.

    Whole contexts are prompts where there is no history, and where observations hold pictures: a scorer meets pictures
    in prompts alone.
    """
    together: dict[Ids, list[int]] = {}
    in_prompts: dict[tuple[Ids, Ids], list[int]] = {}
    pictured = any(min(observation, default=0) < 0 for observation in swapped.observations_N)
    for row, (history, lead) in enumerate(zip(swapped.histories_M, swapped.leads_M, strict=True)):
        if history and not pictured:
            together.setdefault(history, []).append(row)
        else:
            in_prompts.setdefault((history, lead), []).append(row)
    for members in in_prompts.values():
        prompts = [swapped.context(members[0], column) for column in range(len(swapped.observations_N))]
        thoughts, own = [swapped.thoughts_M[row] for row in members], [swapped.own_M[row] for row in members]
        yield Request(members, False, prompts, thoughts, own)
    for history, members in together.items():
        continued = [
            (*observation, *swapped.leads_M[row], *swapped.thoughts_M[row])
            for row in members
            for observation in swapped.observations_N
        ]
        yield Request(members, True, [history], continued, [0] * len(continued))


def _tokens(scored: CrossScores) -> list[np.ndarray]:
    if scored.tokens is None:
        raise ValueError("score_swapped needs a scorer that keeps tokens, but this one returned sums only.")
    return [np.asarray(logprobs_NT, dtype=np.float32) for logprobs_NT in scored.tokens]
