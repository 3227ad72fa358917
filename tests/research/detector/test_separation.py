"""The best of many metrics: chosen on some runs, confirmed on others, or not at all."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from heedful.report.record import Point, RunRecord, Series
from heedful.storage.run_folder import RunFolder
from heedful.types import Metric
from research.detector.separation import Separation, SeparationOutcome, read_separation


def noise_study(runs: int, metrics: int, rng: np.random.Generator, told: float = 0.0) -> SeparationOutcome:
    """Runs whose metrics have levels of their own. Only metric m0 knows the arm, by `told` standard deviations."""

    def record(shift: float) -> RunRecord:
        found: dict[str, Series] = {}
        for name in (f"m{number}" for number in range(metrics)):
            level = rng.normal() + (shift if name == "m0" else 0.0)
            values = level + 0.1 * rng.normal(size=4)
            found[name] = Series(name, tuple(Point(step, Metric(name, float(v))) for step, v in enumerate(values)))
        return RunRecord(RunFolder(Path("unused")), found, {}, {}, None)

    records: Mapping[str, Mapping[str, RunRecord]] = {
        arm: {f"{arm}/s{seed}": record(shift) for seed in range(runs)} for arm, shift in (("bad", told), ("good", 0.0))
    }
    return read_separation(Separation("s", ("bad",), ("good",)), records)


def test_three_runs_a_side_confirm_nothing() -> None:
    found = noise_study(3, 100, np.random.default_rng(0))
    assert max(one.value for one in found.areas.values()) == 1.0, "the best of 100 looks perfect"
    assert found.confirmed is None
    assert found.met is None
    assert "1 on the smaller side, and fewer than 6" in found.why


def test_the_best_of_many_noise_metrics_is_not_confirmed_on_other_runs() -> None:
    rng = np.random.default_rng(1)
    found = [noise_study(12, 20, rng).confirmed for _ in range(12)]
    areas = [one for one in found if one is not None and one.interval is not None]
    assert len(areas) == 12
    assert sum(one.interval.low > 0.5 for one in areas if one.interval) <= 2
    assert abs(np.mean([one.value for one in areas]) - 0.5) < 0.15


def test_a_metric_that_knows_the_arm_is_chosen_and_confirmed() -> None:
    found = noise_study(12, 20, np.random.default_rng(2), told=6.0)
    assert found.best == "m0"
    assert found.confirmed is not None
    assert found.confirmed.interval is not None
    assert found.confirmed.interval.low > 0.5
    assert (found.confirmed.collapsed_runs, found.confirmed.collapsed) == (6, 24)


@pytest.mark.proof
def test_the_best_of_100_noise_metrics_is_confirmed_in_at_most_5_percent_of_studies(record_property) -> None:
    rng, studies = np.random.default_rng(3), 200
    found = [noise_study(12, 100, rng).confirmed for _ in range(studies)]
    record_property("cases", studies)
    wrong = sum(one is not None and one.interval is not None and one.interval.low > 0.5 for one in found)
    assert wrong <= 0.05 * studies + 2 * (0.05 * 0.95 * studies) ** 0.5
    assert sum(one is not None and one.value >= 0.99 for one in found) <= 2
