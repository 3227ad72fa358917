"""The regime of a run's reasoning, from information and entropy compared with the beginning of the run.

Promise: a pure function of the measurements so far. It says `undecided` when the intervals do not settle it.

| | entropy high | entropy low |
|---|---|---|
| information high | `diverse` | `compressed` |
| information low | `template` | `low-entropy` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from heedful.diagnostics.names import metric_name
from heedful.types import Metric

LABELS = {
    (True, True): "diverse",
    (False, True): "template",
    (True, False): "compressed",
    (False, False): "low-entropy",
}
"""By (information is high, entropy is high)."""
UNDECIDED = "undecided"

# The total H(Z given X) falls in every good run and a healthy start is saturated, so neither decides where low begins.
# The rule reads the gap of a thought, the permutation test and the entropy per token. The gap per token would call
# longer thoughts uninformed.
INFORMATION_FRACTION = 0.5
"""Information is low below this fraction of the baseline of `gap`."""
ENTROPY_FRACTION = 0.25
"""Entropy is low below this fraction of the baseline of `entropy_conditional_per_token`."""
P_VALUE = 0.05
"""Information is low, whatever the baseline, when the retrieval test's p-value exceeds this."""
BASELINE = 3
"""First measurements whose mean is the baseline."""


@dataclass(frozen=True, slots=True)
class RegimeState:
    """The first measurements of one scope, up to `BASELINE` of them: plain floats, checkpointed."""

    gaps: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    of: str = "gap"
    """The metric that the gaps are values of. A run that an earlier version began keeps `gap_per_token`."""

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> RegimeState:
        return cls(tuple(tree["gaps"]), tuple(tree["entropies"]), tree.get("of", "gap_per_token"))


def label_regime(state: RegimeState | None, metrics: Sequence[Metric], scope: str) -> tuple[RegimeState, Metric]:
    """The state after this measurement, and `regime/<scope>` as a label (`LABELS`, or `undecided` and why).

    `metrics` hold what `information` returned for this scope; `state` is `None` at the first measurement. A
    measurement without a gap or an entropy has no regime and leaves the state as it is.
    """
    state, label = state or RegimeState(), f"regime/{scope}"
    found = {metric.name: metric for metric in metrics}
    gap = found[metric_name("information", scope, state.of)]
    entropy = found[metric_name("information", scope, "entropy_conditional_per_token")]
    p_value = found[metric_name("retrieval", scope, "p_value")]
    gap_value, entropy_value = gap.number, entropy.number
    if gap_value is None or entropy_value is None:
        return state, Metric(label, None, gap.n, why=gap.why or entropy.why)
    if len(state.gaps) < BASELINE:
        state = RegimeState((*state.gaps, gap_value), (*state.entropies, entropy_value), state.of)
    if len(state.gaps) < BASELINE:
        why = f"measurement {len(state.gaps)} of the {BASELINE} that make the baseline"
        return state, Metric(label, None, gap.n, why=why)
    information_high = _information_is_high(gap, p_value.number, fmean(state.gaps))
    entropy_high = None if entropy.high is None else entropy.high >= ENTROPY_FRACTION * fmean(state.entropies)
    if information_high is None or entropy_high is None:
        unsettled = gap if information_high is None else entropy
        why = unsettled.why or f"the interval of {unsettled.name} does not settle it"
        return state, Metric(label, UNDECIDED, gap.n, why=why)
    return state, Metric(label, LABELS[information_high, entropy_high], gap.n)


def _information_is_high(gap: Metric, p_value: float | None, baseline: float) -> bool | None:
    """`None` if neither. The absolute test comes first: a run that starts collapsed never leaves its baseline."""
    edge = INFORMATION_FRACTION * baseline
    if p_value is not None and p_value > P_VALUE:
        return False
    if gap.low is None or gap.high is None:
        return None
    if gap.high < edge:
        return False
    # A baseline at or below zero is no information at all; staying above half of it is not enough.
    return True if gap.low > max(edge, 0.0) else None
