"""Filters around a filter: one that ranks by better estimates of the variances, and the random control.

The filter inside decides by numbers alone. A wrapper changes the numbers, or which groups get the verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol, runtime_checkable

from heedful.boundary import Choice, Share, Text, settings
from heedful.boundary.registry import Registry
from heedful.diagnostics.statistics.group_statistics import is_constant, scored_values
from heedful.filters.ranked import DropConstant, KeepAll, MinP, Ranking, Softmax, SoftWeight, TopK, TopP, TopPStd
from heedful.filters.ranking import check_same_on
from heedful.filters.shrinkage import Prior, Visit, expected_variances
from heedful.protocols import Filter
from heedful.types import Verdict


@runtime_checkable
class Remembering(Protocol):
    """A filter that uses earlier visits to the same tasks, where there are any."""

    def after(self, earlier_PV: Sequence[Sequence[Visit]]) -> Filter:
        """This filter for groups whose tasks were visited before: per group its visits, oldest first."""
        ...


RANKINGS: dict[str, type[Ranking]] = {
    "top_p": TopP,
    "top_k": TopK,
    "min_p": MinP,
    "top_p_std": TopPStd,
    "softmax": Softmax,
    "soft_weight": SoftWeight,
}
"""The filters that need only one variance per group."""


@settings
class Shrunken:
    """Another filter, on variances estimated with the help of the step's other groups and the task's past.

    The variance of four or eight outcomes is a rough estimate of the task's variance. Here it is replaced by its
    posterior mean (`heedful.filters.shrinkage`). In a step of 0/1 outcomes and equal group sizes Jeffreys' prior
    changes no rank. It changes only how much the groups differ, and so the edge of `top_p`. Ranks change where groups
    lost members, and under a fitted prior. They change most where tasks of a pool are visited again, since earlier
    visits count as evidence.

    A constant group keeps its spread of 0 and is never kept, although its variance is estimated as positive. Its
    advantages are zeros whatever the task's variance is.
    """

    like: Annotated[Ranking, Choice(RANKINGS)] = field(default_factory=TopP)
    """The filter that ranks, or weighs, by the estimates."""
    prior: Prior = "jeffreys"
    """Prior for 0/1 values. jeffreys = Beta(1/2, 1/2), batch = fitted to the groups of the step."""
    discount: Share = 0.5
    """Weight of the last visit to the same task. The visit before counts its square, and so on. 0 = ignore the past."""
    on: Text = "outcome"

    def __post_init__(self) -> None:
        check_same_on(self, self.like, "gives better variances to")

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the posterior mean of the variance (under `like` top_p_std and softmax its square root)."""
        return self.judge(values_PG, [()] * len(values_PG))

    def after(self, earlier_PV: Sequence[Sequence[Visit]]) -> Filter:
        return _Informed(self, tuple(map(tuple, earlier_PV)))

    def judge(
        self, values_PG: Sequence[Sequence[float | None]], earlier_PV: Sequence[Sequence[Visit]]
    ) -> list[Verdict]:
        """The verdicts, given the earlier visits to the same tasks."""
        scored_PG = scored_values(values_PG)
        judged = [group for group, values in enumerate(scored_PG) if len(values) >= 2]
        estimates = expected_variances(
            [scored_PG[group] for group in judged], [earlier_PV[group] for group in judged], self.prior, self.discount
        )
        variances_P: list[float | None] = [None] * len(scored_PG)
        for group, estimate in zip(judged, estimates, strict=True):
            variances_P[group] = 0.0 if is_constant(scored_PG[group]) else estimate
        return self.like.rank(variances_P)

    @property
    def share(self) -> float | None:
        """The factor of the loss scale `rho`: the share of `like`."""
        return self.like.share


@dataclass(frozen=True, slots=True)
class _Informed:
    """A `Shrunken` for one step, with the past of the step's tasks."""

    filter: Shrunken
    earlier_PV: tuple[tuple[Visit, ...], ...]

    @property
    def on(self) -> str:
        return self.filter.on

    @property
    def share(self) -> float | None:
        return self.filter.share

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        return self.filter.judge(values_PG, self.earlier_PV)


@settings
class RandomSubset:
    """Control: as many groups as another filter would keep, drawn uniformly among the groups that it could score.

    A filter may gain only because it trains on fewer groups. This control gains that, too, so the remaining difference
    is due to the choice. Constant groups are drawn like any other. Where the other filter weighs softly, its weights
    are dealt out to the groups drawn.
    """

    like: Annotated[Filter, Choice(FILTERS)] = field(default_factory=TopP)
    """The filter that decides how many groups. Its own choice is ignored."""
    on: Text = "outcome"

    def __post_init__(self) -> None:
        check_same_on(self, self.like, "keeps as many groups as")

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: that of `like`."""
        verdicts = self.like(values_PG, rng)
        pool = [group for group, verdict in enumerate(verdicts) if verdict.reason != "unscored"]
        weights = [verdict.weight for verdict in verdicts if verdict.kept]
        drawn = dict(zip(rng.sample(pool, len(weights)), weights, strict=True))
        return [
            verdict
            if verdict.reason == "unscored"
            else Verdict(drawn.get(group, 0.0), "kept" if group in drawn else "not_drawn", verdict.spread)
            for group, verdict in enumerate(verdicts)
        ]

    @property
    def share(self) -> float | None:
        """`None`, whatever `like` has: the choice of groups does not depend on their variance."""
        return None

    def after(self, earlier_PV: Sequence[Sequence[Visit]]) -> Filter:
        return replace(self, like=self.like.after(earlier_PV)) if isinstance(self.like, Remembering) else self


FILTERS = Registry(
    "heedful.filters",
    {
        "keep_all": KeepAll,
        "drop_constant": DropConstant,
        "top_p": TopP,
        "soft_weight": SoftWeight,
        "shrunken": Shrunken,
        "random_subset": RandomSubset,
        "top_k": TopK,
        "min_p": MinP,
        "top_p_std": TopPStd,
        "softmax": Softmax,
    },
    "filter",
)
"""Every filter by the name that configurations and the command line use. Packages add theirs as entry points."""
