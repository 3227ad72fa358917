"""Can the prompt be identified from the words of a thought alone? `text/*`, without a language model.

Promise: the judge reads only the texts of the thoughts, on one thread. The same thoughts and the same generator give
the same values.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import gammaln

from heedful.diagnostics.cross_scores.retrieval import retrieval
from heedful.diagnostics.cross_scores.score_matrix import Floats, Integers, score_matrix
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.statistics.intervals import effective_clusters, jackknife_interval
from heedful.diagnostics.words import words_of
from heedful.types import CrossScores, Group, Metric, Reply

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix, csr_matrix

FOLDS = 5
FEWEST_THOUGHTS = 4
"""Thoughts that a prompt needs: the judge learns from some and is asked about another."""
NGRAMS = (1, 4)
"""Shortest and longest run of characters that the judge sees."""
STRENGTH = 10.0
"""Inverse of the judge's L2 penalty, on n-gram vectors of length 1."""
ITERATIONS = 100
"""Most iterations of the judge's solver. Ranks settle long before the coefficients."""
TOLERANCE = 1e-3
"""Tolerance of the solver, and the largest difference of two decisions that count as tied."""
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


def load_text_judge() -> bool:
    """Import what the judge needs, which takes most of a second once; whether it is installed."""
    try:
        importlib.import_module("sklearn.feature_extraction.text")
        importlib.import_module("sklearn.linear_model")
    except ImportError:
        return False
    return True


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
    They answer the objection that in RAGEN-2 the model judges itself. Without scikit-learn the judge's metrics are null
    and name the extra `text`.
    """
    return [*_judge(thoughts_by_prompt, rng), _template_share(thoughts_by_prompt)]


def _judge(thoughts_by_prompt: Sequence[Sequence[str]], rng: np.random.Generator) -> list[Metric]:
    kept = [thoughts for thoughts in thoughts_by_prompt if len(thoughts) >= FEWEST_THOUGHTS]
    texts = [text for thoughts in kept for text in thoughts]
    own_M = np.repeat(np.arange(len(kept)), [len(thoughts) for thoughts in kept])
    why = ""
    if len(kept) < 2:
        why = f"needs at least 2 prompts with {FEWEST_THOUGHTS} thoughts each, found {len(kept)}"
    elif not load_text_judge():
        why = "the judge needs scikit-learn: install the extra `text` (pip install 'heedful[text]')"
    if why:
        return [Metric(name, None, len(texts), why=why) for name in JUDGE_NAMES.values()]
    fold_M = np.concatenate([rng.permutation(len(thoughts)) % FOLDS for thoughts in kept])
    decisions_MN = _decisions(_features(texts), own_M, fold_M)
    scores = CrossScores(decisions_MN, [1] * len(texts), own_M.tolist(), noise=TOLERANCE)  # type: ignore[arg-type]
    by_name = retrieval(score_matrix(scores), rng)
    return [replace(by_name[key], name=name) for key, name in JUDGE_NAMES.items()]


def _features(texts: Sequence[str]) -> Floats:
    """Thoughts as vectors of at most M numbers whose inner products are those of their n-gram vectors.

    An L2-penalised judge sees inner products alone, so nothing is lost and every fit is M wide instead of thousands.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from threadpoolctl import threadpool_limits

    # A thought of blanks alone still has characters, so that the vocabulary is never empty.
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=NGRAMS, lowercase=False, sublinear_tf=True)
    ngrams: csr_matrix = vectorizer.fit_transform([f" {text} " for text in texts])
    with threadpool_limits(1):
        values_M, vectors_MM = np.linalg.eigh((ngrams @ ngrams.T).toarray())
    real = values_M > 1e-9 * values_M[-1]
    features: Floats = vectors_MM[:, real] * np.sqrt(values_M[real])
    return features


def _decisions(features_MF: Floats, own_M: npt.NDArray[np.intp], fold_M: npt.NDArray[np.intp]) -> Floats:
    """Row i, column j: how much thought i speaks for prompt j, to a judge that has not seen thought i."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    prompts = int(own_M[-1]) + 1
    decisions_MN = np.empty((len(own_M), prompts))
    for fold in range(FOLDS):
        asked_M = fold_M == fold
        if not asked_M.any():
            continue
        judge = LogisticRegression(C=STRENGTH, class_weight="balanced", max_iter=ITERATIONS, tol=TOLERANCE)
        with threadpool_limits(1):
            judge.fit(features_MF[~asked_M], own_M[~asked_M])
            decided = judge.decision_function(features_MF[asked_M])
        decisions_MN[asked_M] = np.stack([-decided, decided], axis=1) if prompts == 2 else decided
    return decisions_MN


def _template_share(thoughts_by_prompt: Sequence[Sequence[str]]) -> Metric:
    texts_by_prompt = [thoughts for thoughts in thoughts_by_prompt if thoughts]
    counts_N = np.array([len(thoughts) for thoughts in texts_by_prompt], dtype=np.intp)
    phrases_M = [_phrases(text) for thoughts in texts_by_prompt for text in thoughts]
    if len(counts_N) < 2:
        return Metric(TEMPLATE_SHARE, None, len(phrases_M), why="needs thoughts of at least 2 prompts")
    if counts_N.max() < 2:
        return Metric(TEMPLATE_SHARE, None, len(phrases_M), why="no prompt has two thoughts")
    own_M = np.repeat(np.arange(len(counts_N)), counts_N)
    columns = {phrase: column for column, phrase in enumerate(sorted(set().union(*phrases_M)))}
    holders = _holders(phrases_M, own_M, columns)
    telling = [thought for thought, phrases in enumerate(phrases_M) if phrases and counts_N[own_M[thought]] > 1]
    if not telling:
        return Metric(TEMPLATE_SHARE, None, 0, why=f"no thought that has a sibling has {GRAM} words")
    found = np.zeros((2, 1 + len(counts_N)))
    for thought in telling:
        held_NC = holders[:, sorted(columns[phrase] for phrase in phrases_M[thought])].toarray()
        found += _shares_found(held_NC, counts_N, int(own_M[thought]))
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


def _phrases(text: str) -> set[tuple[str, ...]]:
    """Distinct runs of three words (`words_of`)."""
    words = words_of(text)
    return {tuple(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)}


def _holders(
    phrases_M: Sequence[set[tuple[str, ...]]], own_M: npt.NDArray[np.intp], columns: dict[tuple[str, ...], int]
) -> csc_matrix:
    """Row j, column c: how many thoughts of prompt j hold phrase c."""
    prompts_held = np.repeat(own_M, [len(phrases) for phrases in phrases_M])
    held = np.array([columns[phrase] for phrases in phrases_M for phrase in phrases], dtype=np.intp)
    ones, shape = np.ones(len(held), np.intp), (int(own_M[-1]) + 1, len(columns))
    return sparse.csc_matrix((ones, (prompts_held, held)), shape=shape)


def _shares_found(held_NC: Integers, counts_N: Integers, own: int) -> Floats:
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
    across_N = _chance_found(others_N[:, None], held_by_others_NC, equally_many_N).mean(axis=1)
    within_N = _chance_found(siblings, held_by_siblings_C[None], equally_many_N).mean(axis=1)
    return np.where(others_N > 0, [across_N, within_N], 0.0)


def _chance_found(thoughts: Integers, holders: Integers, drawn: Integers) -> Floats:
    """Chance that among `drawn` of `thoughts` thoughts, taken without replacement, is one of the phrase's holders."""
    lacking = thoughts - holders
    log_missed = gammaln(lacking + 1) - gammaln(np.maximum(lacking - drawn, 0) + 1)
    log_missed += gammaln(thoughts - drawn + 1) - gammaln(thoughts + 1)
    # Exact at both ends, where the logarithms would leave a rounding error of either sign.
    return np.select([holders == 0, lacking < drawn], [0.0, 1.0], 1.0 - np.exp(log_missed))
