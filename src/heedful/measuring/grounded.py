"""Scores of actions after thoughts that were exchanged between prompts.

The scores equal those of scoring each action after each prompt and thought alone, up to the scorer's rounding. Each
prompt is read once. If the scorer shares beginnings, each thought is read once under each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange, Ids, exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.measuring.swapped import TokenScorer
from heedful.protocols import WindowExceeded
from heedful.types import Group, Metric


def grounding_metrics(
    scorer: TokenScorer,
    groups: Sequence[Group],
    temperature: float,
    rows: int = 16,
    columns: int = 8,
    place: str = "",
) -> list[Metric]:
    """The model-based `grounding/...` of first turns: `rows` thoughts of the first `columns` prompts.

    The metrics are named after the scorer, unless it is the policy that sampled (its name is then empty). The groups
    must be of one environment. `place` is `/<environment>` in a batch that mixes several. If a text exceeds the model's
    window, the metrics have a reason instead of numbers.
    """
    asked = exchange(groups, rows, columns)
    try:
        logprobs_MNS = score_exchange(scorer, asked, temperature)
    except WindowExceeded as error:
        return not_grounded(str(error), place, scorer.name)
    return grounding(asked, logprobs_MNS, place, scorer.name)


def not_grounded(why: str, place: str, scorer: str) -> list[Metric]:
    """The same metrics, all of them missing."""
    return grounding(Exchange(why=why), np.zeros((0, 0, 0)), place, scorer)


def score_exchange(scorer: TokenScorer, asked: Exchange, temperature: float) -> npt.NDArray[np.float64]:
    """M x N x S: log p(spelling s | prompt j, thought i), summed over the spelling's tokens, in nats.

    NaN where spelling s was not requested after thought i. Thought and spelling are scored together under a prompt, and
    only the spelling's tokens are summed. Raises ValueError if the scorer keeps no tokens.
    """
    pairs = _pairs(asked)
    logprobs_MNS = np.full((len(asked.thoughts_M), len(asked.prompts_N), len(asked.spellings_S)), np.nan)
    if not pairs:
        return logprobs_MNS
    scored = scorer.cross_score(
        asked.prompts_N,
        continued(asked),
        [asked.own_M[row] for row, _ in pairs],
        temperature,
        keep="tokens",
    )
    if scored.tokens is None:
        raise ValueError("score_exchange needs a scorer that keeps tokens, but this one returned sums only.")
    for (row, spelling), logprobs_NT in zip(pairs, scored.tokens, strict=True):
        behind = len(asked.thoughts_M[row])
        logprobs_MNS[row, :, spelling] = np.asarray(logprobs_NT, dtype=np.float64)[:, behind:].sum(axis=1)
    return logprobs_MNS


def continued(asked: Exchange) -> list[Ids]:
    """The thoughts that the scorer is asked about: each one with each of its spellings behind it."""
    return [(*asked.thoughts_M[row], *asked.spellings_S[spelling]) for row, spelling in _pairs(asked)]


def _pairs(asked: Exchange) -> list[tuple[int, int]]:
    """Row and spelling of each scored continuation."""
    return [(row, spelling) for row in range(len(asked.thoughts_M)) for spelling in asked.asked(row)]
