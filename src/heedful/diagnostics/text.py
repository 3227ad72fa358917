"""Can the prompt be identified from the words of a thought alone? `text/*`, without a language model.

Promise: the judge reads only the texts of the thoughts. The same thoughts and the same generator give the same values.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from dataclasses import replace

import numpy as np

from heedful.diagnostics.cross_scores.retrieval import retrieval
from heedful.diagnostics.cross_scores.score_matrix import Floats, Integers, score_matrix
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.statistics.intervals import effective_clusters, jackknife_interval
from heedful.diagnostics.statistics.special import log_gamma
from heedful.diagnostics.word_judge import FOLDS, TOLERANCE, judge_decisions, judge_features
from heedful.diagnostics.words import words_of
from heedful.types import CrossScores, Group, Metric, Reply

FEWEST_THOUGHTS = 4
"""Thoughts that a prompt needs: the judge learns from some and is asked about another."""
GRAM = 3
"""Words in a row that make a phrase."""

JUDGE_NAMES = {
    "accuracy": "text/judge_accuracy",
    "accuracy_8way": "text/judge_accuracy_8way",
    "chance": "text/judge_chance",
}
TEMPLATE_SHARE = "text/template_share"


def text_thoughts(groups: Sequence[Group], tags: ThoughtTags) -> list[list[str]]:
    """The texts of the first turns' thoughts without their tags, one list per prompt, for `text_metrics`.

    Prompts are distinct by token ids. Members without a turn and thoughts without a token are left out.
    """
    texts: dict[tuple[int, ...], list[str]] = {}
    for trajectory in (member for group in groups for member in group.trajectories if member.turns):
        reply = trajectory.turns[0].reply
        text = thought_text(reply, tags)
        if text is not None:
            texts.setdefault(reply.prompt.ids, []).append(text)
    return list(texts.values())


def thought_text(reply: Reply, tags: ThoughtTags) -> str | None:
    """The text of a reply's thought without its tags; `None` where no token of it is a thought."""
    return tags.split(reply)[1].removesuffix(tags.close).strip() if len(reply.thought) else None


def text_metrics(thoughts_by_prompt: Sequence[Sequence[str]], rng: np.random.Generator) -> list[Metric]:
    """`text/judge_accuracy`, `text/judge_accuracy_8way`, `text/judge_chance` and `text/template_share`.

    Args:
        thoughts_by_prompt: for each distinct prompt the texts of its thoughts.
        rng: deals the thoughts to the judge's folds.

    The judge names the prompt of a thought that it was not trained on: 5 folds within each prompt, multinomial
    logistic regression on TF-IDF weighted runs of 1 to 4 characters. Prompts with fewer than 4 thoughts are left out.
    Null if fewer than 2 prompts remain. `template_share` is the share of a thought's word 3-grams found in thoughts of
    other prompts, over the share found in as many other thoughts of its own prompt: 1 where thoughts are as alike
    across prompts as within, 0 where prompts share no phrase. The thoughts compared with are drawn at random. The share
    is the exact mean over all draws. Null where no prompt has two thoughts.

    Intervals are 95%, by deleting one prompt at a time (the judge is not trained again). Both quantities are our own.
    They answer the objection that in RAGEN-2 the model judges itself.
    """
    return [*_judge(thoughts_by_prompt, rng), _template_share(thoughts_by_prompt)]


def _judge(thoughts_by_prompt: Sequence[Sequence[str]], rng: np.random.Generator) -> list[Metric]:
    kept = [thoughts for thoughts in thoughts_by_prompt if len(thoughts) >= FEWEST_THOUGHTS]
    texts = [text for thoughts in kept for text in thoughts]
    own_M = np.repeat(np.arange(len(kept)), [len(thoughts) for thoughts in kept])
    if len(kept) < 2:
        why = f"needs at least 2 prompts with {FEWEST_THOUGHTS} thoughts each, found {len(kept)}"
        return [Metric(name, None, len(texts), why=why) for name in JUDGE_NAMES.values()]
    fold_M = np.concatenate([rng.permutation(len(thoughts)) % FOLDS for thoughts in kept])
    decisions_MN = judge_decisions(judge_features(texts), own_M, fold_M)
    scores = CrossScores(decisions_MN, [1] * len(texts), own_M.tolist(), noise=TOLERANCE)  # type: ignore[arg-type]
    by_name = retrieval(score_matrix(scores), rng)
    return [replace(by_name[key], name=name) for key, name in JUDGE_NAMES.items()]


def _template_share(thoughts_by_prompt: Sequence[Sequence[str]]) -> Metric:
    texts_by_prompt = [thoughts for thoughts in thoughts_by_prompt if thoughts]
    counts_N = np.array([len(thoughts) for thoughts in texts_by_prompt], dtype=np.intp)
    phrases_M = [_phrases(text) for thoughts in texts_by_prompt for text in thoughts]
    if len(counts_N) < 2:
        return Metric(TEMPLATE_SHARE, None, len(phrases_M), why="needs thoughts of at least 2 prompts")
    if counts_N.max() < 2:
        return Metric(TEMPLATE_SHARE, None, len(phrases_M), why="no prompt has two thoughts")
    own_M = np.repeat(np.arange(len(counts_N)), counts_N)
    columns: dict[tuple[str, ...], int] = {}
    held_M = [
        np.array(sorted(columns.setdefault(phrase, len(columns)) for phrase in phrases), np.intp)
        for phrases in phrases_M
    ]
    # How many thoughts of each prompt hold a phrase: pairs of phrase and prompt, by phrase.
    owners_M = [held * len(counts_N) + own for held, own in zip(held_M, own_M, strict=True)]
    pairs, holders = np.unique(np.concatenate(owners_M), return_counts=True)
    edges_C = np.searchsorted(pairs, len(counts_N) * np.arange(len(columns) + 1))
    log_factorials = log_gamma(np.arange(len(phrases_M) + 1) + 1)
    telling = [thought for thought, phrases in enumerate(phrases_M) if phrases and counts_N[own_M[thought]] > 1]
    if not telling:
        return Metric(TEMPLATE_SHARE, None, 0, why=f"no thought that has a sibling has {GRAM} words")
    found = np.zeros((2, 1 + len(counts_N)))
    for thought in telling:
        held_C = held_M[thought]
        prompts_C = edges_C[held_C + 1] - edges_C[held_C]
        place_P = np.repeat(np.arange(len(held_C)), prompts_C)
        pair_P = np.arange(len(place_P)) + (edges_C[held_C] - np.cumsum(prompts_C) + prompts_C)[place_P]
        held_NC = np.zeros((len(counts_N), len(held_C)), np.intp)
        held_NC[pairs[pair_P] % len(counts_N), place_P] = holders[pair_P]
        found += _shares_found(held_NC, counts_N, int(own_M[thought]), log_factorials)
    (across, *across_N), (within, *within_N) = found.tolist()
    if within == 0:
        why = f"no phrase of {GRAM} words occurs in two thoughts of one prompt: nothing to compare with"
        return Metric(TEMPLATE_SHARE, None, len(telling), why=why)
    if len(counts_N) < 3 or min(within_N) <= 0:
        why = "no interval: needs at least 3 prompts, and phrases that recur in two of them"
        return Metric(TEMPLATE_SHARE, across / within, len(telling), why=why)
    deleted_N = np.divide(across_N, within_N)
    interval = jackknife_interval(across / within, deleted_N).cut(floor=0.0)
    return Metric(TEMPLATE_SHARE, across / within, len(telling), *interval, clusters=effective_clusters(deleted_N))


def _phrases(text: str) -> KeysView[tuple[str, ...]]:
    """Distinct runs of three words (`words_of`) in their order: in a set's order means differ by rounding."""
    words = words_of(text)
    return dict.fromkeys(tuple(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)).keys()


def _shares_found(held_NC: Integers, counts_N: Integers, own: int, log_factorials: Floats) -> Floats:
    """Shares of one thought's C phrases found across and within, in all thoughts and with each prompt deleted.

    Two rows, 1 + N columns. With its own prompt deleted the thought is gone: zeros.
    """
    siblings, held_by_siblings_C = counts_N[own] - 1, held_NC[own] - 1
    others_N = np.concatenate([[0], counts_N])
    others_N = counts_N.sum() - counts_N[own] - others_N
    held_by_others_NC = np.vstack([np.zeros_like(held_by_siblings_C), held_NC])
    held_by_others_NC = held_NC.sum(axis=0) - held_NC[own] - held_by_others_NC
    others_N[1 + own] = 0
    equally_many_N = np.minimum(siblings, others_N)[:, None]
    across_N = _chance_found(others_N[:, None], held_by_others_NC, equally_many_N, log_factorials).mean(axis=1)
    within_N = _chance_found(siblings, held_by_siblings_C[None], equally_many_N, log_factorials).mean(axis=1)
    return np.where(others_N > 0, [across_N, within_N], 0.0)


def _chance_found(thoughts: Integers, holders: Integers, drawn: Integers, log_factorials: Floats) -> Floats:
    """Chance that among `drawn` of `thoughts` thoughts, taken without replacement, is one of the phrase's holders."""
    lacking = thoughts - holders
    log_missed = log_factorials[np.maximum(lacking, 0)] - log_factorials[np.maximum(lacking - drawn, 0)]
    log_missed += log_factorials[thoughts - drawn] - log_factorials[thoughts]
    # Exact at both ends, where the logarithms would leave a rounding error of either sign.
    return np.select([holders == 0, lacking < drawn], [0.0, 1.0], 1.0 - np.exp(log_missed))
