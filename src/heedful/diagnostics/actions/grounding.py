"""Does the thought decide the action? `grounding/*` from the log-probabilities of actions after exchanged thoughts.

The names are always the same. What could not be measured is `None` with the reason. Nothing is clipped at 0.

p[i, j, s] is the probability of spelling s of a first action under prompt j and thought i. own(i) is the prompt that
thought i was sampled under. s_i is the spelling that was sampled after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.cross_scores import mixture
from heedful.diagnostics.cross_scores.information import SATURATED
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.mixture import FEW_PROMPTS
from heedful.diagnostics.cross_scores.score_matrix import score_matrix
from heedful.diagnostics.statistics.intervals import wilson
from heedful.types import CrossScores, Metric

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

GROUNDING_NAMES = (
    "reasoning_to_action",
    "reasoning_to_action_ceiling",
    "reasoning_to_action_loo",
    "direct_input_to_action",
    "foreign_thought_obeyed",
    "thought_influence",
    "thought_influence_same_prompt",
)
"""Below `grounding/`, in this order."""

ONE_PROMPT = "needs at least 2 prompts, found 1"
ONE_THOUGHT = "every prompt has one distinct thought: there is nothing to vary"


def grounding(asked: Exchange, logprobs_MNS: Floats, place: str = "", scorer: str = "") -> list[Metric]:
    """Every model-based `grounding/...` of the metrics page, in nats or from 0 (-1) to 1.

    Args:
        asked: thoughts, prompts and spellings, as `actions.exchange` lists them.
        logprobs_MNS: log p(spelling s | prompt j, thought i) under log softmax(logits / temperature), by the weights
            that sampled; NaN where not asked.
        place: `/<environment>` in a batch that mixes several.
        scorer: name of the scoring model when it is not the policy that sampled.

    Intervals are 95%: a prompt is deleted with its thoughts, wherever these were read (jackknife, from three prompts
    on). Raises ValueError if the shape of `logprobs_MNS` is not that of `asked`.
    """
    head = f"grounding@{scorer}{place}" if scorer else f"grounding{place}"
    expected = len(asked.thoughts_M), len(asked.prompts_N), len(asked.spellings_S)
    if logprobs_MNS.shape != expected:
        raise ValueError(
            f"Expected log-probabilities of shape thoughts x prompts x spellings, {expected}, "
            f"found {logprobs_MNS.shape}."
        )
    why = asked.why
    if not why and _not_finite(asked, logprobs_MNS):
        why = "the scores hold NaN or infinite values"
    if why:
        by_name = {name: Metric(name, None, 0, why=why) for name in GROUNDING_NAMES}
    else:
        by_name = {**_thought_to_action(asked, logprobs_MNS), **_direct(asked, logprobs_MNS)}
        by_name |= _interventions(asked, logprobs_MNS)
    return [replace(by_name[name], name=f"{head}/{name}") for name in GROUNDING_NAMES]


def _not_finite(asked: Exchange, logprobs_MNS: Floats) -> bool:
    return any(
        not np.isfinite(logprobs_MNS[row][:, list(asked.asked(row))]).all() for row in range(len(asked.thoughts_M))
    )


def _thought_to_action(asked: Exchange, logprobs_MNS: Floats) -> dict[str, Metric]:
    """I(Z;A given X): how much likelier the action is behind its own thought than behind the group's mixture.

    A prompt with one distinct thought adds 0 to the value, and nothing to `_loo`, whose rows are those with a rival.
    """
    names, rows, prompts = GROUNDING_NAMES[:3], len(asked.own_M), len(asked.prompts_N)
    gains_N, rivals_N, ceilings_N = np.zeros(prompts), np.zeros(prompts), np.zeros(prompts)
    counts_N, rivalled_N = np.zeros(prompts), np.zeros(prompts)
    own_M, taken_M = np.asarray(asked.own_M), np.asarray(asked.taken_M)
    for prompt in range(prompts):
        rows_K = np.flatnonzero(own_M == prompt)
        counts_N[prompt] = len(rows_K)
        same_KK = _equal([asked.thoughts_M[row] for row in rows_K])
        ceilings_N[prompt] = np.log(len(rows_K) / same_KK.sum(axis=1)).sum()
        # Equal thoughts have equal scores, so the mixture over members is that over distinct thoughts with shares.
        behind_KK = logprobs_MNS[rows_K[None, :], prompt, taken_M[rows_K][:, None]]
        matched_K = behind_KK.diagonal()
        gains_N[prompt] = (matched_K - np.logaddexp.reduce(behind_KK, axis=1) + math.log(len(rows_K))).sum()
        if not same_KK.all():
            others_K = np.logaddexp.reduce(np.where(same_KK, -np.inf, behind_KK), axis=1)
            rivals_N[prompt] = (matched_K - others_K + np.log((~same_KK).sum(axis=1))).sum()
            rivalled_N[prompt] = len(rows_K)
    if not rivalled_N.any():
        return {name: Metric(name, None, rows, why=ONE_THOUGHT) for name in names}
    ceiling, gain = float(ceilings_N.sum()) / rows, _clustered(gains_N, counts_N).mean()
    measured = (
        metric_from(names[0], gain, rows, ceiling=ceiling, saturated=gain.value >= SATURATED * ceiling),
        Metric(names[1], ceiling, rows),
        metric_from(names[2], _clustered(rivals_N, rivalled_N).mean(), int(rivalled_N.sum())),
    )
    return {metric.name: metric for metric in measured}


def _equal(thoughts: Sequence[Sequence[int]]) -> Flags:
    number = {ids: place for place, ids in enumerate(dict.fromkeys(map(tuple, thoughts)))}
    numbers_K = np.array([number[tuple(ids)] for ids in thoughts])
    equal_KK: Flags = numbers_K[:, None] == numbers_K
    return equal_KK


def _direct(asked: Exchange, logprobs_MNS: Floats) -> dict[str, Metric]:
    """The thought kept, the prompt swapped: the same contrast as the mutual information of thought and prompt."""
    name, rows = "direct_input_to_action", len(asked.thoughts_M)
    if len(asked.prompts_N) < 2:
        return {name: Metric(name, None, rows, why=ONE_PROMPT)}
    taken_MN = logprobs_MNS[np.arange(rows), :, np.asarray(asked.taken_M)]
    lengths = [len(asked.spellings_S[taken]) for taken in asked.taken_M]
    matrix = score_matrix(CrossScores(taken_MN, lengths, asked.own_M))  # type: ignore[arg-type]
    gain, ceiling = mixture.information(matrix, mixture.mixture(matrix, taken_MN)), mixture.ceiling(matrix)
    return {name: metric_from(name, gain, rows, ceiling=ceiling, saturated=gain.value >= SATURATED * ceiling)}


def _interventions(asked: Exchange, logprobs_MNS: Floats) -> dict[str, Metric]:
    """What the distribution over the batch's actions does when the thought is exchanged and the prompt kept."""
    obeyed, influence, same = GROUNDING_NAMES[4:]
    if asked.free:
        return {name: Metric(name, None, 0, why=asked.free) for name in (obeyed, influence, same)}
    own_M = np.asarray(asked.own_M)
    chances_MNA = _chances(asked, logprobs_MNS)
    moved = _Comparisons.of(own_M, partial(_distances, chances_MNA))
    turned = _Comparisons.of(own_M, partial(_followed, chances_MNA.argmax(axis=2), own_M))
    found = {same: _share(same, moved.within, "no prompt has two thoughts")}
    if len(asked.prompts_N) < 2:
        return found | {name: Metric(name, None, 0, why=ONE_PROMPT) for name in (obeyed, influence)}
    found[influence] = _share(influence, moved.across, "")
    found[obeyed] = _votes(obeyed, turned.across, len(asked.prompts_N))
    return found


def _chances(asked: Exchange, logprobs_MNS: Floats) -> Floats:
    """M x N x A: probabilities of the batch's actions, all spellings of one added up, relative to their sum."""
    action_S = np.asarray(asked.action_S)
    by_action = [np.logaddexp.reduce(logprobs_MNS[:, :, action_S == action], axis=2) for action in range(asked.actions)]
    logprobs_MNA = np.stack(by_action, axis=2)
    chances_MNA: Floats = np.exp(logprobs_MNA - np.logaddexp.reduce(logprobs_MNA, axis=2, keepdims=True))
    return chances_MNA


def _distances(chances_MNA: Floats, prompt: int, rows_K: Integers) -> tuple[Floats, Flags]:
    """Total variation distance under one prompt, of each of its own thoughts (K) to every thought (M)."""
    under_MA = chances_MNA[:, prompt]
    apart_KM = 0.5 * np.abs(under_MA[rows_K][:, None] - under_MA).sum(axis=2)
    return apart_KM, np.ones(apart_KM.shape, dtype=bool)


def _followed(likeliest_MN: Integers, own_M: Integers, prompt: int, rows_K: Integers) -> tuple[Floats, Flags]:
    """Under one prompt: 1 where a thought brings the action it has at home, -1 where the prompt's own action stays.

    Counted where the two actions differ.
    """
    home_M, now_M = likeliest_MN[np.arange(len(own_M)), own_M], likeliest_MN[:, prompt]
    kept_K1 = likeliest_MN[rows_K, prompt][:, None]
    votes_KM = (now_M == home_M).astype(np.float64) - (now_M == kept_K1)
    return votes_KM, kept_K1 != home_M


@dataclass(frozen=True, slots=True)
class _Sums:
    """A mean over comparisons, with its values when one prompt is deleted."""

    total: float
    count: float
    deleted_totals_N: Floats
    deleted_counts_N: Floats

    def mean(self) -> Estimate:
        """Raises ZeroDivisionError where nothing was compared."""
        value = self.total / self.count
        if len(self.deleted_counts_N) < 3:
            return Estimate(value, None, FEW_PROMPTS)
        if not self.deleted_counts_N.all():
            return Estimate(value, None, "without one of the prompts there is nothing to compare")
        return Estimate(value, self.deleted_totals_N / self.deleted_counts_N)


def _clustered(sums_N: Floats, counts_N: Floats) -> _Sums:
    """Sums over rows that belong to one prompt each. Prompts without a row are left out."""
    sums, counts = sums_N[counts_N > 0], counts_N[counts_N > 0]
    total, count = math.fsum(sums), math.fsum(counts)
    return _Sums(total, count, total - sums, count - counts)


@dataclass(frozen=True, slots=True)
class _Comparisons:
    """Row j, column k: prompt j is kept, and its own thoughts are compared with the thoughts of prompt k."""

    sums_NN: Floats
    counts_NN: Floats

    @classmethod
    def of(cls, own_M: Integers, compare: Callable[[int, Integers], tuple[Floats, Flags]]) -> _Comparisons:
        """`compare(prompt, its rows)` gives K x M values and which of them count. No thought meets itself."""
        prompts = int(own_M.max()) + 1
        sums_NN, counts_NN = np.zeros((prompts, prompts)), np.zeros((prompts, prompts))
        for prompt in range(prompts):
            rows_K = np.flatnonzero(own_M == prompt)
            values_KM, counted_KM = compare(prompt, rows_K)
            counted_KM[np.arange(len(rows_K)), rows_K] = False
            values_M = np.where(counted_KM, values_KM, 0.0).sum(axis=0)
            sums_NN[prompt] = np.bincount(own_M, values_M, prompts)
            counts_NN[prompt] = np.bincount(own_M, counted_KM.sum(axis=0), prompts)
        return cls(sums_NN, counts_NN)

    @property
    def within(self) -> _Sums:
        return _clustered(self.sums_NN.diagonal(), self.counts_NN.diagonal())

    @property
    def across(self) -> _Sums:
        """A deleted prompt takes its row and its column along."""
        parts = []
        for both_NN in (self.sums_NN, self.counts_NN):
            apart_NN = both_NN - np.diag(both_NN.diagonal())
            parts.append((float(apart_NN.sum()), apart_NN.sum() - apart_NN.sum(axis=0) - apart_NN.sum(axis=1)))
        (total, totals_N), (count, counts_N) = parts
        return _Sums(total, count, totals_N, counts_N)


def _share(name: str, sums: _Sums, why: str) -> Metric:
    if not sums.count:
        return Metric(name, None, 0, why=why)
    return metric_from(name, sums.mean(), int(sums.count), floor=0.0, ceiling=1.0)


def _votes(name: str, sums: _Sums, prompts: int) -> Metric:
    """A share that obeys minus a share that does not.

    Where all agree the jackknife would have no width: then every prompt counts as one trial, by Wilson's interval.
    """
    if not sums.count:
        return Metric(name, None, 0, why="own and foreign thoughts lead to the same actions everywhere")
    estimate = sums.mean()
    if estimate.deleted_N is None or estimate.value not in (-1.0, 0.0, 1.0) or np.ptp(estimate.deleted_N) > 0:
        return metric_from(name, estimate, int(sums.count), floor=-1.0, ceiling=1.0)
    unseen = wilson(0, prompts).high
    low, high = {1.0: (1 - 2 * unseen, 1.0), 0.0: (-unseen, unseen), -1.0: (-1.0, 2 * unseen - 1)}[estimate.value]
    return Metric(name, estimate.value, int(sums.count), low, high)
