"""How much of the variance of rewards is luck: the noise of the environment, not the replies of the agent.

Within a prompt the law of total variance splits the variance of the rewards R over sequences of replies s:
Var[R] = Var[E[R | s]] + E[Var[R | s]]. The second part is luck. A filter that ranks prompts by reward variance ranks
by both parts. Both are read off replays: each sequence is played several times under fresh noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from heedful.diagnostics.statistics.group_statistics import scored
from heedful.diagnostics.statistics.intervals import cluster_interval, deleted_means, effective_clusters
from heedful.types import Metric

_NO_VARIANCE = "no replayed reward varies"


@dataclass(frozen=True, slots=True)
class SplitVariance:
    """The variance of the rewards of one prompt, in two parts."""

    luck: float
    """E[Var[R | s]]: unbiased, never negative."""
    total: float
    """Var[R]: unbiased, never negative."""


def split_variance(values_GK: Sequence[Sequence[float | None]]) -> SplitVariance | None:
    """The split for one prompt: G sequences of replies, K replays of each. `None`: nothing can be said.

    One-way analysis of variance with random effects. The mean of K replays carries 1/K of the sequence's luck, which is
    subtracted from the variance between sequences. Sequences with fewer than two scored replays are left out. At least
    two sequences have to remain.
    """
    sequences = [values for values in map(scored, values_GK) if len(values) >= 2]
    if len(sequences) < 2:
        return None
    within = [variance(values) for values in sequences]
    luck = fmean(within)
    carried = fmean(each / len(values) for each, values in zip(within, sequences, strict=True))
    return SplitVariance(luck, variance([fmean(values) for values in sequences]) - carried + luck)


def luck_metrics(values_PGK: Sequence[Sequence[Sequence[float | None]]], kept_P: Sequence[bool]) -> list[Metric]:
    """`signal/luck_share` over all prompts, and `signal/luck_share_kept` over those that the filter keeps.

    Sum over prompts of the luck, over the sum of the variances. The interval is a jackknife over prompts. The ratio of
    the two estimates is not cut: near 1 it can be above it.
    """
    splits = [split_variance(values_GK) for values_GK in values_PGK]
    pairs = list(zip(splits, kept_P, strict=True))
    return [
        _share("signal/luck_share", [split for split, _ in pairs if split]),
        _share("signal/luck_share_kept", [split for split, kept in pairs if split and kept]),
    ]


def _share(name: str, splits: Sequence[SplitVariance]) -> Metric:
    varying = [split for split in splits if split.total > 0]
    if not varying:
        return Metric(name, None, len(splits), why=_NO_VARIANCE if splits else "no prompt has two replayed sequences")
    lucks, totals = [split.luck for split in varying], [split.total for split in varying]
    share, interval = sum(lucks) / sum(totals), cluster_interval(lucks, totals)
    if interval is None or interval.low == interval.high:
        return Metric(name, share, len(varying), why="no interval: a single prompt varies, or all agree")
    clusters = effective_clusters(deleted_means(lucks, totals))
    return Metric(name, share, len(varying), *interval.cut(0.0, 1.0), clusters=clusters)
