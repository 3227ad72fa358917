"""What the detector's outcomes read out of a study's runs: separations and leads, their sentences and their page."""

import json
from dataclasses import replace

import numpy as np
import pytest

from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from heedful.studies.outcomes import read_outcomes
from heedful.studies.page import write_results
from heedful.studies.verdict import verdict
from heedful.types import Metric
from research.detector.early_warning import Lead
from research.detector.separation import Separation
from written_runs import WrittenRuns

SUCCESS = "eval/val/sampled/success"


def study(**changes: object) -> Study:
    arms = tuple(Arm(name, train("echo"), level) for name, level in (("new", 1.0), ("old", 0.0)))
    measures = (Measure("final success", SUCCESS), Measure("gap reached", "gap", "first_at_least", 0.5))
    plain = Study("little", "Is new better?", arms, (0, 1, 2), (Pair("new", "old"),), measures, curves=(SUCCESS,))
    return replace(plain, **changes)  # type: ignore[arg-type]


def separated(written: WrittenRuns) -> Study:
    rng = np.random.default_rng(0)
    for seed in (0, 1):
        for arm, level in (("new", 0.0), ("old", 5.0)):
            written.add(
                arm,
                seed,
                {
                    "information/first_turn/mi": list(level + rng.normal(0, 1, 30)),
                    "policy/entropy_per_token": list(rng.normal(0, 1, 30)),
                    "time/collect": [level] * 30,
                },
            )
    return study(outcomes=(Separation("New against old", ("new",), ("old",)),), dial="level", measures=(), pairs=())


def test_two_runs_a_side_show_areas_and_confirm_none(written: WrittenRuns) -> None:
    declared = separated(written)
    outcomes = read_outcomes(declared, written.folder.runs(declared)[:4])
    found = outcomes.readings[0].values
    assert found.best == "information/first_turn/mi"
    assert "time/collect" not in found.areas
    assert (found.areas[found.best].collapsed, found.areas[found.best].direction) == (60, "lower")
    assert found.areas[found.best].collapsed_runs == 2
    assert (found.confirmed, found.met) == (None, None)
    entropy = found.areas["policy/entropy_per_token"]
    assert abs(entropy.value - 0.5) < 0.2
    assert not entropy.declared
    assert set(found.by_arm[found.best]) == {"new"}
    assert (
        "New against old: no metric is confirmed, because a metric is chosen on one half of the runs; the other half "
        "has 1 on the smaller side, and fewer than 6 cannot tell it from chance. On all runs 1 of 2 metrics reach "
        "0.99, by choice or by chance."
    ) in verdict(declared, outcomes, 4)


def test_a_metric_that_one_side_lacks_is_no_separation(written: WrittenRuns) -> None:
    written.add("new", 0, {"a": [1.0, 2.0]})
    written.add("old", 0, {"b": [1.0, 2.0]})
    declared = study(outcomes=(Separation("s", ("new",), ("old",)),), measures=(), pairs=(), seeds=(0,))
    outcomes = read_outcomes(declared, written.folder.runs(declared))
    assert outcomes.readings[0].values.met is None
    assert verdict(declared, outcomes, 2) == ["s: unknown (no metric has values on both sides)."]


def bounded(*values: float, half: float = 0.02) -> list[Metric]:
    return [Metric("", value, 1000, value - half, value + half) for value in values]


def warned(written: WrittenRuns) -> Study:
    """Two induced runs fall at step 4, one warned at step 2 and one at step 4; a healthy one is quiet."""
    falling, steady = (0.7, 0.7, 0.7, 0.68, 0.3, 0.2), (0.7,) * 6
    gap_falls, gap_stays = (2.0, 2.0, 2.0, 1.0, 0.5, 0.5), (2.0,) * 6
    for seed, alarm in enumerate(((0, 0, 1, 1, 1, 1), (0, 0, 0, 0, 1, 1))):
        written.add("new", seed, {SUCCESS: bounded(*falling), "alarm/x": alarm, "gap": bounded(*gap_falls)})
    for seed in (0, 1):
        written.add("old", seed, {SUCCESS: bounded(*steady), "alarm/x": [0] * 6, "gap": bounded(*gap_stays)})
    lead = Lead("Alarms", ("new",), ("old",), SUCCESS, drift_free=5)
    return study(outcomes=(lead,), measures=(), pairs=(), seeds=(0, 1))


def test_leads_and_false_alarms_are_counted_with_exact_limits(written: WrittenRuns) -> None:
    declared = warned(written)
    outcomes = read_outcomes(declared, written.folder.runs(declared))
    found = outcomes.readings[0].values
    assert [run.lead for run in found.table.induced] == [2, 0]
    before, healthy = found.by_alarm["alarm/x"]
    assert (str(before), str(healthy)) == ("1 of 2 [0.013, 0.987]", "0 of 2 [0.000, 0.842]")
    # The gap leaves its first three readings at step 3, before the fall at 4, in both runs and in no healthy one.
    assert [(m.metric, m.before.hits, m.healthy.hits) for m in found.movers] == [("gap", 2, 0)]
    assert found.drift_free is not None
    assert (found.drift_free.hits, found.drift_free.of) == (0, 5)
    assert verdict(declared, outcomes, 4) == [
        "Alarms: success fell by 10 points in 2 of 2 [0.158, 1.000] induced runs; an alarm came before the evaluation "
        "that shows it in 1 of 2 [0.013, 0.987], no later than the last good evaluation in 1 of 2 [0.013, 0.987]. "
        "False alarms: 0 of 2 [0.000, 0.842] healthy runs, 0 of 5 [0.000, 0.522] simulated runs without drift.",
        "Leads in steps (negative = after the fall was visible): +0, +2.",
    ]


def test_alarms_can_be_replayed_on_old_measurements(written: WrittenRuns) -> None:
    collapse = (2.0,) * 8 + (0.1,) * 8
    name, steady = "information/first_turn/gap_per_token", (0.7,) * 16
    written.add("new", 0, {SUCCESS: bounded(*steady), name: bounded(*collapse), "success/rate": bounded(*collapse)})
    written.add("old", 0, {SUCCESS: bounded(*steady), name: bounded(*(2.0,) * 16)})
    lead = Lead("Alarms", ("new",), ("old",), SUCCESS, drift_free=0, replayed=True)
    declared = study(outcomes=(lead,), measures=(), pairs=(), seeds=(0,))
    found = read_outcomes(declared, written.folder.runs(declared)).readings[0].values
    assert found.drift_free is None
    assert found.table.healthy[0].alarm is None
    assert any(name.startswith("alarm/") for name in found.by_alarm)


def test_the_page_holds_the_tables_and_charts_of_both(written: WrittenRuns) -> None:
    separated(written)
    whole = replace(
        warned(written), outcomes=(Separation("S", ("new",), ("old",)), *warned(written).outcomes), dial="level"
    )
    for seed in (0, 1):  # written twice: the later reading of a step counts
        written.add("new", seed, {"information/first_turn/mi": [0.0, 1.0] * 3})
        written.add("old", seed, {"information/first_turn/mi": [5.0, 6.0] * 3})
    outcomes = read_outcomes(whole, written.folder.runs(whole))
    write_results(written.folder, whole, outcomes, 4)
    page = written.folder.page.read_text(encoding="utf-8")
    for words in ("S: areas", "S: ROC", "Alarms: what moves first"):
        assert words in page, words
    assert (written.folder.figures / "s-roc.svg").exists()
    (_, lead) = json.loads(written.folder.results.read_text(encoding="utf-8"))["outcomes"]
    assert lead["table"]["induced"][0]["alarm"] == 2
    assert lead["by_alarm"]["alarm/x"][0]["limits"] == pytest.approx([0.01258, 0.98742], abs=1e-4)
