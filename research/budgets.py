"""Success by sampled tokens: an arm that samples longer episodes pays for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heedful.report.record import RunRecord
from heedful.studies.declaration import Pair, Study
from heedful.studies.outcomes import Outcomes, Reading, Table
from heedful.studies.paired import PairedDifference, mean_over, paired_difference
from heedful.studies.tables import signed
from heedful.types import Metric


@dataclass(frozen=True, slots=True)
class SuccessByTokens:
    """Mean held-out success over the sampled tokens of training: the area under the curve, divided by its width.

    Runs of one seed are compared over the same tokens: as many as the run that sampled the fewest.
    """

    title: str
    arms: tuple[str, ...]
    pairs: tuple[Pair, ...]
    """Compared seed by seed."""
    success: str = "eval/val/sampled/success"

    @property
    def arms_read(self) -> tuple[str, ...]:
        return self.arms

    def among(self, arms: Collection[str]) -> SuccessByTokens | None:
        """With the arms that are left; `None` without any."""
        kept = tuple(name for name in self.arms if name in arms)
        pairs = tuple(pair for pair in self.pairs if {pair.arm, pair.control} <= set(kept))
        return replace(self, arms=kept, pairs=pairs) if kept else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The mean of each arm and the paired differences, with the declared pairs in sentences."""
        records = {arm: {each.run.seed: each.record for each in outcomes.of_arm(arm)} for arm in self.arms}
        found = read_areas(self, records)
        lead = "Mean held-out success over the sampled tokens of training, up to the fewest of the runs of one seed."
        means = [["arm", "mean over seeds"], *([arm, signed(metric)] for arm, metric in found.means.items())]
        pairs = [
            ["pair", "difference over seeds", "p"],
            *(
                [name, signed(each.mean), "–" if each.p_value is None else f"{each.p_value:.3f}"]
                for name, each in found.differences.items()
            ),
        ]
        tables = (Table(self.title, lead, self.title, means), Table(f"{self.title}: pairs", lead, self.title, pairs))
        sentences = [f"{self.title}, {name}: {signed(each.mean)}." for name, each in found.differences.items()]
        return Reading(found, tables, tuple(sentences))


@dataclass(frozen=True, slots=True)
class Areas:
    """What `SuccessByTokens` read."""

    means: Mapping[str, Metric]
    differences: Mapping[str, PairedDifference]


def read_areas(spec: SuccessByTokens, records: Mapping[str, Mapping[int, RunRecord]]) -> Areas:
    """`records`: arm -> seed -> its run."""
    curves = {arm: {seed: curve(run, spec.success) for seed, run in of_arm.items()} for arm, of_arm in records.items()}
    seeds = {seed for of_arm in curves.values() for seed in of_arm}
    fewest = {
        seed: min(of_arm[seed][-1][0] for of_arm in curves.values() if len(of_arm.get(seed, ())) > 1)
        for seed in seeds
        if any(len(of_arm.get(seed, ())) > 1 for of_arm in curves.values())
    }
    areas = {
        arm: {seed: mean_until(found, fewest[seed]) for seed, found in of_arm.items() if len(found) > 1}
        for arm, of_arm in curves.items()
    }
    return Areas(
        {arm: mean_over(arm, list(by_seed.values())) for arm, by_seed in areas.items()},
        {str(pair): paired_difference(str(pair), areas[pair.arm], areas[pair.control]) for pair in spec.pairs},
    )


def curve(run: RunRecord, success: str) -> list[tuple[float, float]]:
    """(sampled tokens so far, held-out success) of each evaluation."""
    tokens = [(point.step, point.number or 0.0) for point in run.get("tokens/collect").numeric]
    return [
        (sum(spent for step, spent in tokens if step < point.step), point.number or 0.0)
        for point in run.get(success).numeric
    ]


def mean_until(found: Sequence[tuple[float, float]], tokens: float) -> float:
    """The mean of a curve of straight lines from its start to `tokens`, which lies on it."""
    xs, ys = np.array(found).T
    inside = xs < tokens
    xs_in = np.append(xs[inside], tokens)
    ys_in = np.append(ys[inside], np.interp(tokens, xs, ys))
    return float(np.trapezoid(ys_in, xs_in) / (tokens - xs[0]))
