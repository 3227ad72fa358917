"""Where a thought's conclusion is written: the first action after a thought that is ended early."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from heedful.diagnostics.actions.exchanged import Exchange, Ids, exchange
from heedful.diagnostics.actions.rightness import right_actions
from heedful.measuring.swapped import TokenScorer
from heedful.measuring.thought_scores import tokens_read
from heedful.protocols import WindowExceeded
from heedful.storage.measurements import EarlyAnswer
from heedful.types import Group, Rightness

THOUGHTS = 4
CUTS = 10
"""A thought is ended after each tenth of its tokens."""


def early_answers(
    scorer: TokenScorer,
    groups: Sequence[Group],
    temperature: float,
    right: Rightness,
    piece: Callable[[int], str],
    closing: str,
    allowed: float = math.inf,
) -> tuple[EarlyAnswer, ...]:
    """How right the first action is when a thought is cut, for a thought of each of the first prompts.

    The rest of the thought is left out, and its end follows: the last tokens, from the closing tag on. Nothing is read
    where right actions are not known, actions are free text, or no thought was closed.

    Args:
        piece: the text of one token.
        closing: the tag that ends a thought.
        allowed: the tokens that may be read.
    """
    asked = exchange(groups, 2 * THOUGHTS, THOUGHTS)
    if asked.why or asked.free:
        return ()
    right_NA, found = right_actions(asked, right), []
    for prompt, task in enumerate(asked.tasks_N):
        thought = asked.thoughts_M[asked.own_M.index(prompt)]
        end = _end_of(thought, piece, closing)
        if not end or np.isnan(right_NA[prompt]).any():
            continue
        body = thought[: len(thought) - end]
        cuts = tuple(dict.fromkeys(round(len(body) * cut / CUTS) for cut in range(CUTS + 1)))
        asked_C = [(*body[:cut], *thought[len(body) :]) for cut in cuts]
        continued = [(*ids, *spelling) for ids in asked_C for spelling in asked.spellings_S]
        context = asked.prompts_N[prompt]
        allowed -= tokens_read(scorer, [context], continued)
        if allowed < 0:
            break
        try:
            scored = scorer.cross_score([context], continued, [0] * len(continued), temperature, keep="tokens")
        except WindowExceeded:
            continue
        chances_CA = _chances(asked, [np.asarray(kept)[0] for kept in scored.tokens or ()], len(cuts))
        texts = "".join("[picture]" if token < 0 else piece(token) for token in context)
        right_C = tuple((chances_CA @ right_NA[prompt]).tolist())
        likeliest = tuple(asked.names_A[action] for action in chances_CA.argmax(axis=1))
        found.append(EarlyAnswer(task.id, texts, tuple(map(piece, body)), cuts, right_C, likeliest))
    return tuple(found)


def _end_of(thought: Ids, piece: Callable[[int], str], closing: str) -> int:
    """How many of the last tokens the closing tag takes; 0 if the thought was not closed."""
    return next((n for n in range(1, len(thought) + 1) if closing in "".join(map(piece, thought[-n:]))), 0)


def _chances(asked: Exchange, logprobs: Sequence[np.ndarray], cuts: int) -> np.ndarray:
    """C x A: the probability of each action, all spellings added, from the log-probabilities of all tokens."""
    pairs = zip(logprobs, asked.spellings_S * cuts, strict=True)
    sums = [float(kept[len(kept) - len(ids) :].sum()) for kept, ids in pairs]
    chances_CS = np.exp(np.array(sums, dtype=np.float64)).reshape(cuts, len(asked.spellings_S))
    spelled_SA = np.eye(asked.actions)[np.asarray(asked.action_S)]
    return chances_CS @ spelled_SA
