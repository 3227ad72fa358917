"""Effects of crossed settings: by hand, against known truths, and as a study tells them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from heedful.studies.declaration import Arm, Measure, Study, narrowed, train
from heedful.studies.outcomes import read_outcomes
from heedful.studies.page import markdown
from heedful.studies.verdict import verdict
from heedful.types import Metric
from research.factorial import Factor, Factorial, main_effects, read_factorial
from written_runs import WrittenRuns

HALF = [(*levels, sum(levels) % 2 == 1) for levels in itertools.product((False, True), repeat=4)]
"""16 of the 32 combinations of five factors: no effect of one is mixed with one of two."""


def effects(values: list[float], levels: list[tuple[bool, ...]]) -> list[Metric]:
    return list(main_effects("x", values, levels, len(levels[0])))


def test_four_arms_by_hand() -> None:
    levels = [(False, False), (False, True), (True, False), (True, True)]
    first, second = effects([1.0, 2.0, 5.0, 8.0], levels)
    assert (first.value, second.value) == pytest.approx((5.0, 2.0))
    # The fit is 0.5, 2.5, 5.5, 7.5: half a unit is left in each arm, with one degree of freedom, and t is 12.7062.
    assert first.high == pytest.approx(5.0 + 12.7062 * 1.0, abs=1e-3)
    assert second.low == pytest.approx(2.0 - 12.7062 * 1.0, abs=1e-3)
    assert first.n == 4


@pytest.mark.parametrize("together", [0.0, 2.0])
def test_intervals_hold_the_effect_that_made_the_values(together: float) -> None:
    """With what two factors do together an interval is wider than it needs to be, and its middle stays right."""
    truth = np.array([1.0, -0.5, 0.0, 0.25, 2.0])
    signs_NF = np.array(HALF) - 0.5
    held, found = 0, []
    for seed in range(300):
        noise_N = np.random.default_rng(seed).normal(size=16)
        values_N = signs_NF @ truth + 4 * together * signs_NF[:, 0] * signs_NF[:, 4] + noise_N
        metrics = effects(values_N.tolist(), HALF)
        held += sum(metric.low <= true <= metric.high for metric, true in zip(metrics, truth, strict=True))
        found.append([metric.value for metric in metrics])
    assert np.mean(found, axis=0) == pytest.approx(truth, abs=5 * 0.5 / np.sqrt(300))
    share = held / 1500
    assert 0.93 <= share <= 0.97 if not together else share > 0.97


def test_what_cannot_be_told_is_unknown_and_says_why() -> None:
    (alone, other) = effects([1.0, 2.0, 3.0], [(False, False), (True, True), (True, True)])
    assert alone.value is other.value is None
    assert alone.why == "the 3 arms that are over do not tell the settings apart"
    assert main_effects("x", [], [], 2)[0].why == "the 0 arms that are over do not tell the settings apart"
    (bare,) = effects([1.0, 3.0], [(False,), (True,)])
    assert (bare.value, bare.low) == (pytest.approx(2.0), None)
    assert "no arm is left over" in bare.why
    (equal, _) = effects([1.0] * 4, [(False, False), (False, True), (True, False), (True, True)])
    assert (equal.value, equal.low, equal.why) == (pytest.approx(0.0), None, "no interval: no noise")


def test_an_arm_counts_once_and_repeats_of_chosen_arms_do_not_count() -> None:
    spec = Factorial("T", ("a", "b", "c", "d"), (Factor("on", "off", ("c", "d")),))
    by_arm = {"x": {"a": {0: 1.0}, "b": {0: 2.0, 1: 4.0}, "c": {0: 5.0, 11: 99.0}, "d": {11: 99.0}}}
    (effect,) = read_factorial(spec, by_arm, {11}).effects["x"]
    assert (effect.value, effect.n) == (pytest.approx(5.0 - 2.0), 3)


ARMS = ("a0", "a1", "b0", "b1")
CROSSED = Factorial("Settings", ARMS, (Factor("b", "a", ("b0", "b1")), Factor("1", "0", ("a1", "b1"))))


def crossed() -> Study:
    arms = tuple(Arm(name, train("echo", "--model some/model --device cpu")) for name in ARMS)
    measures = (Measure("success", "success/rate"), Measure("length", "tokens/reply"))
    return Study("crossed", "What?", arms, (0,), measures=measures, outcomes=(CROSSED,))


def test_a_study_tells_its_effects(written: WrittenRuns) -> None:
    study = crossed()
    for arm, success in zip(ARMS, (0.1, 0.11, 0.5, 0.53), strict=True):
        written.add(arm, 0, {"success/rate": [success]})
    outcomes = read_outcomes(study, written.folder.runs(study))
    sentences = verdict(study, outcomes, 4)
    assert "Settings: 1 of 2 effects are clear. Where nothing matters, about 0.1 would be, by chance." in sentences
    assert any(sentence.startswith("Settings, success: b against a +0.410 [") for sentence in sentences)
    table = markdown(study, outcomes, sentences, "heedful study crossed")
    assert "| measure | arms | b against a | 1 against 0 |" in table
    assert "| success | 4 | +0.410 [" in table
    assert "| length | 0 | – | – |" in table


def test_a_part_of_a_study_reads_the_arms_that_it_has(written: WrittenRuns) -> None:
    part = narrowed(crossed(), ("b?",))
    assert part.outcomes[0].arms == ("b0", "b1")
    written.add("b0", 0, {"success/rate": [0.1]})
    written.add("b1", 0, {"success/rate": [0.2]})
    said = verdict(part, read_outcomes(part, written.folder.runs(part)), 2)
    assert "Settings: unknown, too few arms are over." in said
