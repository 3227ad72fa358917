"""Sums over the groups of a scope, whole and with each group left out: the base of all `gradient/...` metrics.

Promise: in each deletion the quantiles of a bucket are taken anew from the groups that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Side:
    """P groups as some of their members show them: all of the members, or one half of each group's.

    A group's gradient is normalised so that the plain mean over the P groups is the gradient of the loss on these
    members. With groups of one size it is the mean over the group's members; `_P` values that are called means are
    normalised alike. A group that cannot be measured has NaN as its variance.
    """

    grams: Mapping[tuple[str, str], Floats]
    """For each pair in `GRAMS`: inner products of the groups' gradients of these parts, P x P."""
    prompt_products: Mapping[str, Floats]
    """Part -> per group the inner product of the gradients of two halves of these members, each half with a baseline of
    its own. NaN where a half would have fewer than two members."""
    unbiased_products_P: Floats
    """The same for `task_undivided`, each half's gradient times h / (h - 1) for its h members: what subtracting a mean
    with the member itself in it takes away. Then each estimates the prompt's expected gradient without bias."""
    variance_P: Floats
    """Sample variance of the members' rewards, 1/(h - 1)."""
    deviation2_P: Floats
    """Mean squared deviation of the rewards from their mean, 1/h."""
    score2_P: Floats
    """Mean squared norm of a trajectory's score."""


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """The same groups as a whole and in halves; member by member the halves are disjoint."""

    whole: Side
    halves: tuple[Side, Side]


def bucket_shares(variances: Sequence[Floats], buckets: int) -> list[Floats]:
    """The share of each group in each bucket, `[buckets, P]`: 0 = exactly zero, 1 and up = quantiles of the others.

    Constant groups are a bucket of their own: they are often many, and they are the ones a filter drops. The other
    variances divide the range of ranks from 0 to 1 evenly, and equal ones own their part of it together. A group's
    share in a bucket is the part of its ranks that the bucket covers. So a variance at an edge counts in both buckets,
    no tie is broken by chance, and one group more or less moves every share by little. The ranks are those of all the
    given arrays together (of both halves of the members), so that one variance means the same shares. Groups whose
    variance is NaN have none.
    """
    pooled = np.concatenate(list(variances))
    spread = np.sort(pooled[pooled > 0])
    edges = np.arange(buckets) / (buckets - 1)
    shares = []
    for variance_P in variances:
        below_P = np.searchsorted(spread, variance_P, side="left") / max(len(spread), 1)
        up_to_P = np.searchsorted(spread, variance_P, side="right") / max(len(spread), 1)
        covered_BP = np.minimum(up_to_P, edges[1:, None]) - np.maximum(below_P, edges[:-1, None])
        share_BP = ratio(covered_BP.clip(0), np.broadcast_to(up_to_P - below_P, covered_BP.shape))
        shares.append(np.vstack([variance_P == 0, np.where(variance_P > 0, share_BP, 0.0)]))
    return shares


def whole_scope(side: Side) -> Scope:
    """All groups that could be measured."""
    known_P = ~np.isnan(side.variance_P)
    return Scope((side,), (_one_left_out(known_P) * known_P,))


def bucket_scopes(halves: tuple[Side, Side], buckets: int) -> list[Scope]:
    """The buckets. Each half is measured on the groups that the variances of the other one sort into the bucket."""
    sorted_by = [halves[1].variance_P, halves[0].variance_P]
    known_P = ~np.isnan(sorted_by[0]) & ~np.isnan(sorted_by[1])
    # [side, 1 + J, buckets, P]: with all groups, then without each.
    shares = np.array(
        [
            bucket_shares([np.where(kept_P > 0, variance_P, np.nan) for variance_P in sorted_by], buckets)
            for kept_P in _one_left_out(known_P) * known_P
        ]
    ).swapaxes(0, 1)
    return [Scope(halves, (shares[0, :, bucket], shares[1, :, bucket])) for bucket in range(buckets)]


def _one_left_out(known_P: npt.NDArray[np.bool_]) -> Floats:
    """`[1 + J, P]`: ones, then a row for each of the J known groups with a zero in its place."""
    ones = np.ones((1, len(known_P)))
    return np.vstack([ones, 1.0 - np.eye(len(known_P))[known_P]])


@dataclass(frozen=True, slots=True)
class Scope:
    """The shares that groups have in a bucket, on one or two sides.

    Sums are [side, 1 + J]: with all groups, then with each of the J groups of the batch left out of both sides.
    """

    sides: tuple[Side, ...]
    shares: tuple[Floats, ...]
    """Per side `[1 + J, P]`: the share of each group, from 0 (not in the scope) to 1."""

    @property
    def groups(self) -> int:
        """How many groups have a share on any side."""
        return int(np.any([shares_JP[0] > 0 for shares_JP in self.shares], axis=0).sum())

    @property
    def size(self) -> float:
        """The sum of the groups' larger shares: as many whole groups as the scope is worth."""
        return float(np.max([shares_JP[0] for shares_JP in self.shares], axis=0, initial=0.0).sum())

    def filled(self, least: int) -> Scope:
        """Only the sides whose shares add up to `least` groups or more, on at least as many groups."""
        kept = [
            number
            for number, shares_JP in enumerate(self.shares)
            if shares_JP[0].sum() > least - 1e-9 and (shares_JP[0] > 0).sum() >= least
        ]
        return Scope(tuple(self.sides[number] for number in kept), tuple(self.shares[number] for number in kept))

    def counts(self) -> Floats:
        """Sums of the shares."""
        return np.array([shares_JP.sum(axis=1) for shares_JP in self.shares])

    def pairs(self) -> Floats:
        """Sums of the products of shares over all ordered pairs of different groups."""
        return np.array([shares_JP.sum(axis=1) ** 2 - (shares_JP**2).sum(axis=1) for shares_JP in self.shares])

    def sums(self, values: Sequence[Floats]) -> Floats:
        """Sums of a value that each group has on each side."""
        rows = [
            shares_JP @ np.where(np.any(shares_JP > 0, axis=0), values_P, 0.0)
            for shares_JP, values_P in zip(self.shares, values, strict=True)
        ]
        return np.array(rows)

    def means(self, values: Sequence[Floats]) -> Floats:
        """Mean of a value over the groups of both sides for which it is known; NaN if for none."""
        known = [~np.isnan(values_P) for values_P in values]
        totals = self.sums([np.where(known_P, values_P, 0.0) for known_P, values_P in zip(known, values, strict=True)])
        counts = self.sums([known_P.astype(np.float64) for known_P in known])
        return ratio(totals.sum(axis=0), counts.sum(axis=0))

    def products(self, pair: tuple[str, str]) -> Floats:
        """Sums of the inner products of all pairs of groups, those of a group with itself among them."""
        totals = []
        for side, shares_JP in zip(self.sides, self.shares, strict=True):
            inside_P = np.any(shares_JP > 0, axis=0).astype(np.float64)
            gram_PP = np.where(np.outer(inside_P, inside_P) > 0, side.grams[pair], 0.0)
            totals.append(((shares_JP @ gram_PP.T) * shares_JP).sum(axis=1))
        return np.array(totals)

    def own_products(self, pair: tuple[str, str], power: int) -> Floats:
        """Sums of the inner products of each group with itself, times its share to this power."""
        sides = zip(self.sides, self.shares, strict=True)
        return np.array([shares_JP**power @ np.nan_to_num(np.diag(side.grams[pair])) for side, shares_JP in sides])

    def product_of_means(self, pair: tuple[str, str]) -> Floats:
        """The inner product of the mean gradients, mean over the sides: `[1 + J]`."""
        means: Floats = ratio(self.products(pair), self.counts() ** 2).mean(axis=0)
        return means

    def signal(self, pair: tuple[str, str]) -> Floats:
        """The inner product of two expected gradients, over the pairs of different groups of both sides: `[1 + J]`."""
        different = self.products(pair) - self.own_products(pair, 2)
        return ratio(different.sum(axis=0), self.pairs().sum(axis=0))

    def noise(self, part: str) -> Floats:
        """The trace of the covariance of the mean gradient, mean over the sides: `[1 + J]`.

        That is half the mean squared distance of two different groups, over the number of groups. Groups of unequal
        shares count as sum(shares)^2 / sum(shares^2).
        """
        pair, counts, pairs = (part, part), self.counts(), self.pairs()
        # Rounding must not make a variance negative.
        distances = (counts * self.own_products(pair, 1) - self.products(pair)).clip(0)
        means: Floats = (ratio(distances, pairs) * ratio(counts**2 - pairs, counts**2)).mean(axis=0)
        return means


def ratio(upper: Floats, lower: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    return np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)
