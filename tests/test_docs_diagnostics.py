"""The guide to the diagnostics: its examples print what they say. The simulation behind it is the stored one."""

import doctest
import json
import re
from pathlib import Path

import pytest

from benchmarks import coverage

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def result() -> dict:
    return json.loads((RESULTS / "coverage.json").read_text(encoding="utf-8"))


def test_the_examples_print_what_the_page_says():
    blocks = re.findall(r"^```python\n(>>> .*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    parser, runner, names = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False), {}
    for number, block in enumerate(blocks):
        example = parser.get_doctest(block, names, f"example {number}", "docs/diagnostics.md", 0)
        assert runner.run(example, clear_globs=False).failed == 0, f"Example {number} prints something else."
        names = example.globs


def test_the_tables_are_those_of_the_stored_simulation(result):
    assert coverage.page_of(result) == (RESULTS / "coverage.md").read_text(encoding="utf-8")


def test_intervals_of_mi_cover_90_to_98_percent_below_70_percent_of_the_ceiling(result):
    rows = [row for row in result["channels"] if row["of_ceiling"] <= 0.7]
    assert len(rows) >= 30
    assert {row["channel"] for row in rows} == {"gaussian", "bits", "templates"}
    for row in rows:
        assert row["prompts"] >= 16
        assert row["mi"]["intervals"] == row["batches"] >= 500
        assert 0.9 <= row["mi"]["coverage"] <= 0.98, row


def test_no_saturated_reading_has_an_interval(result):
    assert max(row["saturated"] for row in result["channels"]) > 0.5
    assert sum(row["saturated_with_interval"] for row in result["channels"]) == 0


def test_plug_in_and_leave_one_out_bracket_the_true_information(result):
    for row in result["channels"]:
        assert row["mi"]["mean"] - 3 * row["mi"]["error"] < row["nats"]
        assert row["mi_loo"]["mean"] + 3 * row["mi_loo"]["error"] > row["nats"]


def test_the_group_permutation_keeps_its_level_where_the_binomial_test_does_not(result):
    found = {row["null"]: row for row in result["nulls"]}
    assert max(row["permutation"] for row in result["nulls"]) < 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5
    assert min(found[kind]["binomial"] for kind in ("shared", "hubs and shared")) > 0.08


def test_the_judge_of_pure_templates_is_at_chance(result):
    pure = result["planted"][-1]
    assert pure["share"] == 1.0
    for name, chance in (("judge_accuracy", 1 / 16), ("judge_accuracy_8way", 1 / 8), ("template_share", 1.0)):
        cell = pure[f"text/{name}"]
        assert cell["mean"] == pytest.approx(chance, abs=3 * cell["error"])


def test_a_small_simulation_of_every_kind_reads_like_the_stored_one(result):
    small = coverage.simulate(batches=4, nulls=10, seeds=2)
    assert small.keys() == result.keys()
    for rows in ("channels", "nulls", "planted"):
        assert [row.keys() for row in small[rows]] == [row.keys() for row in result[rows]]
    for here, there in zip(small["channels"], result["channels"], strict=True):
        tolerance = 4 * (here["mi"]["error"] + there["mi"]["error"])
        assert here["mi"]["mean"] == pytest.approx(there["mi"]["mean"], abs=tolerance)


@pytest.mark.proof
def test_the_stored_simulation_of_the_readings_is_what_the_script_finds(result, record_property):
    found = coverage.simulate(batches=500, nulls=2000, seeds=100)
    record_property("cases", sum(row["batches"] for row in found["channels"] + found["nulls"]))
    for here, there in zip(found["channels"], result["channels"], strict=True):
        for name in coverage.READ:
            assert here[name] == {key: pytest.approx(value, abs=0.005) for key, value in there[name].items()}
    assert found["nulls"] == [
        {**row, "permutation": pytest.approx(row["permutation"], abs=0.002)} for row in result["nulls"]
    ]


def test_the_channels_hold_the_information_they_claim():
    # All 65,536 prompts would be needed for the marginal; it is uniform, so the log-likelihood gives the information.
    for nats in (0.5, 4.0):
        rng = coverage.generator("test", nats)
        scores = coverage.score_matrix(coverage.bits(rng, 64, 64, nats))
        gains = scores.own(scores.scores_MN) + 16 * coverage.math.log(2)
        assert gains.mean() == pytest.approx(nats, abs=4 * gains.std() / 64)
    mixed = coverage.score_matrix(coverage.templates(coverage.generator("mixed"), 64, 64, 1.0))
    matched = mixed.own(mixed.scores_MN)
    # Templates lie apart from copies: the marginal of a thought is half of 2^-16 either way.
    gains = matched + 17 * coverage.math.log(2)
    assert gains.mean() == pytest.approx(1.0, abs=4 * gains.std() / 64)
