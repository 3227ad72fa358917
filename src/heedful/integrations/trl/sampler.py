"""The difference between the log-probabilities of the engine that sampled and those of the learner.

TRL corrects for it (`vllm_importance_sampling_correction`) and logs its mean and its maximum for each draw. These
metrics have the same names. They are over all that was sampled for an update, with the share of tokens far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.types import Metric

LOGGED_BY_TRL = ("sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max")
"""They are in TRL's logs already, where TRL corrects."""
SHARE = "sampling/sampling_logp_difference/share"
LIMIT = 0.1
"""Nats above which a token counts in `SHARE`: its two probabilities differ by about a tenth."""

_UNKNOWN = (
    "TRL computed no log-probabilities of the learner for this batch; it does with vLLM and "
    "vllm_importance_sampling_correction=True"
)
_SAMPLER, _LEARNER = "sampling_per_token_logps", "old_per_token_logps"


def difference_metrics(batches: Sequence[Mapping[str, Any]], gather: Callable[[list[Any]], list[Any]]) -> list[Metric]:
    """The metrics of the batches of one update, before the filter. Empty if the sampler told no log-probabilities.

    `gather`: joins the lists of all processes, which all call this.
    """
    told = gather([_sums(batch) for batch in batches])
    if not all(_SAMPLER in batch for batch in batches):
        return []
    names = (*LOGGED_BY_TRL, SHARE)
    if None in told:
        return [Metric(name, None, why=_UNKNOWN) for name in names]
    sums, largest, beyond, counts = zip(*told, strict=True)
    n = sum(counts)
    if not n:
        return [Metric(name, None, n=0, why="no sampled token is in the loss") for name in names]
    values = (sum(sums) / n, max(largest), sum(beyond) / n)
    return [Metric(name, value, n=n) for name, value in zip(names, values, strict=True)]


def _sums(batch: Mapping[str, Any]) -> tuple[float, float, int, int] | None:
    """Of the absolute differences at the sampled tokens of the loss: sum, maximum, number above the limit, number.

    A token that vLLM could not score is left out. `None`: TRL does not have both log-probabilities.
    """
    if _SAMPLER not in batch or _LEARNER not in batch:
        return None
    mask_BT = batch["completion_mask"]
    if "tool_mask" in batch:
        mask_BT = mask_BT * batch["tool_mask"]
    apart_N = (batch[_LEARNER] - batch[_SAMPLER]).abs()[mask_BT.bool()]
    apart_N = apart_N[~apart_N.isnan()]
    largest = float(apart_N.max()) if len(apart_N) else 0.0
    return float(apart_N.sum()), largest, int((apart_N > LIMIT).sum()), len(apart_N)
