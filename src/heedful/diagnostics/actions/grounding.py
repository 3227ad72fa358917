"""Does the thought decide the action? `grounding/*` from the log-probabilities of actions after exchanged thoughts.

The names are always the same. What could not be measured is `None` with the reason. Nothing is clipped at 0.

p[i, j, s] is the probability of spelling s of a first action under prompt j and thought i. own(i) is the prompt that
thought i was sampled under. s_i is the spelling that was sampled after it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.rightness import RIGHTNESS_NAMES, rightness
from heedful.diagnostics.cross_scores.information import SATURATED
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.mixture import FEW_PROMPTS
from heedful.types import Metric, Rightness, nothing_right

Floats = npt.NDArray[np.float64]

GROUNDING_NAMES = ("reasoning_to_action", "reasoning_to_action_ceiling", "thought_influence", *RIGHTNESS_NAMES)
"""Below `grounding/`, in this order."""

ONE_PROMPT = "needs at least 2 prompts, found 1"
ONE_THOUGHT = "every prompt has one distinct thought: there is nothing to vary"


def grounding(
    asked: Exchange,
    logprobs_MNS: Floats,
    place: str = "",
    scorer: str = "",
    right: Rightness = nothing_right,
) -> list[Metric]:
    """Every model-based `grounding/...` of the metrics page, in nats or from 0 to 1.

    Args:
        asked: thoughts, prompts and spellings, as `actions.exchange` lists them.
        logprobs_MNS: log p(spelling s | prompt j, thought i) under log softmax(logits / temperature), by the weights
            that sampled; NaN where not asked.
        place: `/<environment>` in a batch that mixes several.
        scorer: name of the scoring model when it is not the policy that sampled.
        right: how right each first action is at the start of a task, where the environment can tell.

    Intervals are 95%: a prompt is deleted with its thoughts, wherever these were read (jackknife, from three prompts
    on).
    """
    head = f"grounding@{scorer}{place}" if scorer else f"grounding{place}"
    read = (logprobs_MNS[row][np.ix_(asked.under(row), asked.asked(row))] for row in range(len(asked.thoughts_M)))
    why = asked.why
    if not why and not all(np.isfinite(logprobs_NS).all() for logprobs_NS in read):
        why = "the scores hold NaN or infinite values"
    if why:
        metrics = [Metric(name, None, 0, why=why) for name in GROUNDING_NAMES]
    else:
        metrics = [*_thought_to_action(asked, logprobs_MNS), _influence(asked, logprobs_MNS)]
        metrics += rightness(asked, logprobs_MNS, right)
    return [replace(metric, name=f"{head}/{metric.name}") for metric in metrics]


def _thought_to_action(asked: Exchange, logprobs_MNS: Floats) -> list[Metric]:
    """I(Z;A given X): how much likelier the action is behind its own thought than behind the group's mixture.

    A prompt with one distinct thought adds 0 to the value.
    """
    names, rows, prompts = GROUNDING_NAMES[:2], len(asked.own_M), len(asked.prompts_N)
    gains_N, ceilings_N, counts_N = np.zeros(prompts), np.zeros(prompts), np.zeros(prompts)
    own_M, taken_M = np.asarray(asked.own_M), np.asarray(asked.taken_M)
    number = {ids: place for place, ids in enumerate(dict.fromkeys(asked.thoughts_M))}
    thought_M = np.array([number[ids] for ids in asked.thoughts_M])
    for prompt in range(prompts):
        rows_K = np.flatnonzero(own_M == prompt)
        counts_N[prompt] = len(rows_K)
        same_KK = thought_M[rows_K][:, None] == thought_M[rows_K]
        ceilings_N[prompt] = np.log(len(rows_K) / same_KK.sum(axis=1)).sum()
        # Equal thoughts have equal scores, so the mixture over members is that over distinct thoughts with shares.
        behind_KK = logprobs_MNS[rows_K[None, :], prompt, taken_M[rows_K][:, None]]
        gains_N[prompt] = (behind_KK.diagonal() - np.logaddexp.reduce(behind_KK, axis=1) + math.log(len(rows_K))).sum()
    if not ceilings_N.any():
        return [Metric(name, None, rows, why=ONE_THOUGHT) for name in names]
    ceiling = float(ceilings_N.sum()) / rows
    total, count = math.fsum(gains_N), math.fsum(counts_N)
    gain = _mean(total, count, total - gains_N, count - counts_N)
    saturated = gain.value >= SATURATED * ceiling
    return [metric_from(names[0], gain, rows, ceiling=ceiling, saturated=saturated), Metric(names[1], ceiling, rows)]


def _influence(asked: Exchange, logprobs_MNS: Floats) -> Metric:
    """What the distribution over the batch's actions does when the thought is exchanged and the prompt kept.

    Total variation distance, mean over all pairs of a prompt's own thought and a thought of another prompt that is read
    under it. A deleted prompt takes its thoughts, and all that is read under it, along.
    """
    name, prompts = GROUNDING_NAMES[2], len(asked.prompts_N)
    if asked.free:
        return Metric(name, None, 0, why=asked.free)
    if prompts < 2:
        return Metric(name, None, 0, why=ONE_PROMPT)
    own_M, action_S = np.asarray(asked.own_M), np.asarray(asked.action_S)
    # All spellings of one action are added up, relative to the sum over the batch's actions.
    with np.errstate(invalid="ignore"):  # of pairs that were not read
        sums = [np.logaddexp.reduce(logprobs_MNS[:, :, action_S == action], axis=2) for action in range(asked.actions)]
        logprobs_MNA = np.stack(sums, axis=2)
        chances_MNA = np.exp(logprobs_MNA - np.logaddexp.reduce(logprobs_MNA, axis=2, keepdims=True))
    # Row j, column k: the thoughts of prompt j are compared with those of prompt k, under prompt j.
    sums_NN, counts_NN = np.zeros((prompts, prompts)), np.zeros((prompts, prompts))
    for prompt in range(prompts):
        rows_K, under_MA = np.flatnonzero(own_M == prompt), chances_MNA[:, prompt]
        apart_KM = 0.5 * np.abs(under_MA[rows_K][:, None] - under_MA).sum(axis=2)
        read_M = np.isfinite(under_MA[:, 0])
        sums_NN[prompt] = np.bincount(own_M[read_M], apart_KM.sum(axis=0)[read_M], prompts)
        counts_NN[prompt] = len(rows_K) * np.bincount(own_M[read_M], minlength=prompts)
    np.fill_diagonal(sums_NN, 0.0)
    np.fill_diagonal(counts_NN, 0.0)
    total, count = float(sums_NN.sum()), float(counts_NN.sum())
    deleted_N = total - sums_NN.sum(axis=0) - sums_NN.sum(axis=1)
    left_N = count - counts_NN.sum(axis=0) - counts_NN.sum(axis=1)
    return metric_from(name, _mean(total, count, deleted_N, left_N), int(count), floor=0.0, ceiling=1.0)


def _mean(total: float, count: float, deleted_totals_N: Floats, deleted_counts_N: Floats) -> Estimate:
    """A mean over comparisons, with its values when one prompt is deleted."""
    if len(deleted_counts_N) < 3:
        return Estimate(total / count, None, FEW_PROMPTS)
    if not deleted_counts_N.all():
        return Estimate(total / count, None, "without one of the prompts there is nothing to compare")
    return Estimate(total / count, deleted_totals_N / deleted_counts_N)
