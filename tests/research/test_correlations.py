"""Correlations over runs: numbers by hand, known truths, and what is read out of run folders."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from research.__main__ import run
from research.correlations.clustered import Kind, Readings, correlation
from research.correlations.report import (
    markdown,
    read_correlations,
)
from research.correlations.runs import RunSeries, find_runs
from written_runs import WrittenRuns

SUCCESS = "eval/val/sampled/success"
MI = "information/first_turn/mi"


def readings(*runs: list[tuple[float, ...]], strata: tuple[int, ...] = ()) -> Readings:
    """Runs of seeds of their own, with one reading per step."""
    numbers = np.repeat(np.arange(len(runs)), [len(rows) for rows in runs])
    steps = np.concatenate([np.arange(len(rows)) for rows in runs])
    values = np.concatenate([np.array(rows) for rows in runs])
    return Readings(values, numbers, np.array(strata or [0] * len(runs)), np.arange(len(runs)), steps)


def simulated(runs: int, steps: int, within: float, between: float, rng: np.random.Generator) -> Readings:
    """Runs of two environments with levels of their own, and known correlations of levels and of deviations."""
    levels = rng.multivariate_normal([0, 0], [[1, between], [between, 1]], size=runs)
    noise = rng.multivariate_normal([0, 0], [[1, within], [within, 1]], size=(runs, steps))
    strata = np.arange(runs) % 2
    # The second environment has another scale and another level.
    values = (levels[:, None] + noise) * (1 + 99 * strata)[:, None, None] + 1000 * strata[:, None, None]
    return readings(*values.tolist(), strata=tuple(strata))


def with_shared_tasks(seeds: int, arms: int, steps: int, rho: float, rng: np.random.Generator) -> Readings:
    """One environment. Half of the variance of levels and of deviations is common to all runs of a seed."""

    def draw(*shape: int) -> np.ndarray:
        return rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=shape)

    shared = draw(seeds, 1, 1) + draw(seeds, 1, steps)
    values = (shared + draw(seeds, arms, 1) + draw(seeds, arms, steps)).reshape(seeds * arms, steps, 2)
    runs = readings(*values.tolist())
    return Readings(runs.values_NK, runs.run_N, runs.stratum_U, np.repeat(np.arange(seeds), arms), runs.step_N)


def test_within_runs_the_level_of_a_run_does_not_count() -> None:
    rising = [(float(step), float(step)) for step in range(4)]
    # Each run falls as the reading rises, and the runs with higher readings have more success.
    found = readings(*([(10 * run + x, 10 * run - y) for x, y in rising] for run in range(6)))
    assert correlation(found, "within", "pearson").value == pytest.approx(-1)
    assert correlation(found, "within", "spearman").value == pytest.approx(-1)
    assert correlation(found, "between", "pearson").value == pytest.approx(1)
    assert (correlation(found, "all", "pearson").value or 0) > 0.8


def test_numbers_by_hand() -> None:
    one = readings([(0, 0), (1, 1)], [(0, 0), (2, 1)], [(5, 1), (3, 1)])
    # Deviations: (-.5, -.5), (.5, .5), (-1, -.5), (1, .5), (1, 0), (-1, 0): 1.5 / sqrt(4.5 * 1).
    assert correlation(one, "within", "pearson").value == pytest.approx(1.5 / np.sqrt(4.5))
    # Means of runs: (.5, .5), (1, .5), (4, 1).
    expected = np.corrcoef([0.5, 1, 4], [0.5, 0.5, 1])[0, 1]
    between = correlation(one, "between", "pearson")
    assert between.value == pytest.approx(expected)
    assert (between.runs, between.sets) == (3, 3)


def test_a_partial_correlation_holds_the_third_column_fixed() -> None:
    rng = np.random.default_rng(0)
    now = rng.normal(size=(8, 400))
    own, later = now + rng.normal(size=now.shape), now + rng.normal(size=now.shape)
    runs = [list(zip(own[run], later[run], now[run], strict=True)) for run in range(8)]
    given = correlation(readings(*runs), "within", "pearson")
    assert given.value == pytest.approx(0, abs=0.06)
    plain = correlation(readings(*([row[:2] for row in run] for run in runs)), "within", "pearson")
    assert (plain.low or 0) > 0.3


def test_what_does_not_vary_and_what_is_alone_has_no_value() -> None:
    constant = correlation(readings([(1, 0), (1, 1)], [(1, 3), (1, 4)]), "within", "spearman")
    assert (constant.value, constant.why) == (None, "one of the two does not vary")
    assert correlation(readings([(1, 0), (2, 1), (3, 3)]), "within", "pearson").value is None
    # Two environments with one run each have no run to be compared with.
    assert correlation(readings([(1, 0)], [(2, 1)], strata=(0, 1)), "between", "pearson").value is None
    gap = float("nan")
    found = correlation(readings([(1, 0), (gap, 5), (2, 1)], [(1, 0), (2, 1)], [(9, gap)]), "within", "pearson")
    assert (found.readings, found.runs) == (4, 2)


@pytest.mark.parametrize(("within", "between"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.6), (-0.5, 0.7)])
def test_the_interval_holds_a_known_correlation_as_often_as_it_says(within: float, between: float) -> None:
    rng, held = np.random.default_rng(3), {"within": 0, "between": 0}
    # The mean of 5 readings has noise of its own: the truth between runs is mixed from both.
    truth = {"within": within, "between": (between + within / 5) / (1 + 1 / 5)}
    for study in range(100):
        found = simulated(14, 5, within, between, rng)
        for kind in held:
            interval = correlation(found, kind, "pearson", seed=study, draws=150)  # type: ignore[arg-type]
            assert interval.low is not None
            assert interval.high is not None
            held[kind] += interval.low <= truth[kind] <= interval.high
    assert min(held.values()) >= 88, held


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_runs_of_one_seed_are_not_counted_as_independent(rho: float) -> None:
    """Counted as independent, 36 runs of 3 seeds held the truth in 59 to 78 of 100 studies."""
    rng, kinds = np.random.default_rng(1), ("within", "between", "all")
    held, of_studies = dict.fromkeys(kinds, 0), 100
    for study in range(of_studies):
        found = with_shared_tasks(3, 12, 3, rho, rng)
        for kind in kinds:
            interval = correlation(found, kind, "pearson", seed=study, draws=150)
            assert (interval.runs, interval.sets) == (36, 3)
            assert interval.low is not None
            assert interval.high is not None
            held[kind] += interval.low <= rho <= interval.high
    assert min(held.values()) >= 86, held


def test_two_seeds_have_no_interval_however_many_runs_they_have() -> None:
    found = correlation(with_shared_tasks(2, 20, 3, 0.5, np.random.default_rng(0)), "within", "pearson")
    assert (found.low, found.runs, found.sets, found.why) == (None, 40, 2, "no interval: too few seeds")


def test_what_only_follows_time_is_not_beyond_the_course() -> None:
    rng = np.random.default_rng(0)
    success = np.linspace(0, 1, 6) ** 0.5 + 0.05 * rng.normal(size=(8, 6))
    step, own = np.tile(np.arange(6.0), (8, 1)), success + 0.05 * rng.normal(size=(8, 6))
    for reading, beyond in ((step**3, None), (step + rng.normal(size=(8, 6)), 0.0), (own, 0.7)):
        found = readings(*np.stack([reading, success], axis=2).tolist())
        assert (correlation(found, "within", "pearson").value or 0) > 0.7
        left = correlation(found, "beyond", "pearson")
        assert left.value == (None if beyond is None else pytest.approx(beyond, abs=0.2))
    # By hand: what is left of the first run is (-4/3, 4/3) and (8/3, -8/3), of the others half of it with other signs.
    square = readings([(0, 5), (4, 4)], [(1, 7), (1, 14)], [(1, 7), (1, 14)])
    assert correlation(square, "beyond", "pearson").value == pytest.approx(-1)


def test_few_runs_that_all_agree_have_no_interval_without_width() -> None:
    runs = [[(float(run), float(run) ** 2)] for run in range(3)] * 3
    found = correlation(readings(*runs, strata=(0, 0, 0, 1, 1, 1, 2, 2, 2)), "between", "spearman")
    assert found.value == pytest.approx(1)
    assert (found.low, found.why) == (None, "no interval: every draw of the runs gives the same value")


@pytest.mark.parametrize("kind", ["beyond", "between"])
def test_two_runs_of_an_environment_say_nothing_once_their_mean_is_taken_out(kind: Kind) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 6, 2)).tolist()
    pairs = correlation(readings(*rows[:8], strata=(0, 0, 1, 1, 2, 2, 3, 3)), kind, "pearson")
    assert (pairs.value, pairs.low, pairs.runs) == (None, None, 0)
    assert pairs.why == "fewer than three runs with readings enough of both"
    # Beside an environment of five runs the two of another one are left out.
    mixed = correlation(readings(*rows[:7], strata=(0, 0, 0, 0, 0, 1, 1)), kind, "pearson")
    alone = correlation(readings(*rows[:5], strata=(0, 0, 0, 0, 0)), kind, "pearson")
    assert mixed == alone
    assert alone.low is not None


def test_the_next_evaluation_is_read_in_runs_with_enough_of_them_alone() -> None:
    rng = np.random.default_rng(0)

    def run(evaluations: int, seed: int) -> RunSeries:
        series = {name: dict(enumerate(rng.normal(size=evaluations).tolist())) for name in (SUCCESS, MI)}
        return RunSeries(f"{seed}", "lake", series, seed)

    for evaluations, found in ((9, None), (10, 36)):
        entries = read_correlations([run(evaluations, seed) for seed in range(4)], SUCCESS)
        of_next = [entry.found for entry in entries if entry.metric == MI and entry.view.startswith("next")]
        assert len(of_next) == 4
        assert all((each.value is None) == (found is None) for each in of_next)
        assert all(each.readings == (found or 0) for each in of_next)


def test_between_runs_of_a_seed_leaves_out_what_the_seeds_share() -> None:
    rng, runs = np.random.default_rng(0), []
    for seed in range(3):
        shared = 10.0 * seed
        for _ in range(12):
            own = rng.normal()
            runs.append(RunSeries("a", "lake", {SUCCESS: {0: shared - own}, MI: {0: shared + own}}, seed))
    wanted = ("success", MI, "pearson")
    found = {e.view: e.found for e in read_correlations(runs, SUCCESS) if (e.table, e.metric, e.method) == wanted}
    assert (found["between runs"].value or 0) > 0.9
    assert found["between runs of a seed"].value == pytest.approx(-1)


def test_a_reading_belongs_to_the_next_evaluation_and_no_later_one() -> None:
    series = {SUCCESS: {0: 0.1, 4: 0.2, 8: 0.4}, MI: {0: 1.0, 2: 1.5, 3: 2.0}}
    rows = RunSeries("a", "lake", series).at_evaluations(SUCCESS, MI)
    assert rows[:2].tolist() == [[1.0, 0.1, 0.2, 0], [2.0, 0.2, 0.4, 4]]
    assert np.isnan(rows[2]).tolist() == [True, False, True, False]
    assert RunSeries("a", "lake", {}).at_evaluations(SUCCESS, MI).shape == (0, 4)


def test_a_course_is_read_at_both_ends() -> None:
    run = RunSeries("a", "lake", {MI: dict(enumerate([1.0, 3.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 7.0, 9.0]))})
    assert run.course(MI, 0.2) == (2.0, 8.0)
    assert run.course("other", 0.2) is None


def test_runs_are_found_below_folders_and_unfinished_ones_are_named(written: WrittenRuns) -> None:
    first = written.add("a", 0, {SUCCESS: [0.1, 0.2], MI: [1.0, None]})
    written.add("a", 1, {SUCCESS: [0.3]}).folder.verdict.unlink()
    first.folder.config.write_text(json.dumps({"env": {"type": "echo"}, "model": "some/model", "seed": 7}))
    found = find_runs([written.folder.path, written.folder.path / "a"], [SUCCESS, MI])
    assert [run.stratum for run in found.runs] == ["echo, model"]
    assert found.runs[0].series == {SUCCESS: {0: 0.1, 1: 0.2}, MI: {0: 1.0}, "step": {0: 0, 1: 1}}
    assert found.runs[0].seed == 7
    assert len(found.unfinished) == 1
    with pytest.raises(ValueError, match=r"Expected finished runs below .*, found 1 without a verdict"):
        find_runs([written.folder.path / "a" / "s1"], [SUCCESS])
    with pytest.raises(ValueError, match="found no folder at nowhere"):
        find_runs([Path("nowhere")], [SUCCESS])


@pytest.mark.parametrize("record", ["audit.json", "evaluation.json"])
def test_audits_and_evaluations_of_served_models_are_no_runs(written: WrittenRuns, record: str) -> None:
    written.add("a", 0, {SUCCESS: [0.1, 0.2]})
    other = written.add("a", 1, {SUCCESS: [0.3]}).folder
    other.config.unlink()
    (other.path / record).write_text("{}")
    found = find_runs([written.folder.path], [SUCCESS])
    assert ([run.seed for run in found.runs], found.unfinished) == ([0], ())
    with pytest.raises(ValueError, match=r"Expected finished runs below .*, found 0 without a verdict"):
        find_runs([other.path], [SUCCESS])


def test_a_run_that_was_copied_is_read_once(written: WrittenRuns) -> None:
    for arm, took in (("a", 1.0), ("backup", 2.0)):  # the same run on another machine, too, took another time
        written.add(arm, 0, {SUCCESS: [0.1, 0.2], "time/step": [took]})
    written.add("b", 0, {SUCCESS: [0.1, 0.3]})
    written.add("a", 1, {SUCCESS: [0.1, 0.2]})
    found = find_runs([written.folder.path], [SUCCESS])
    path = written.folder.path
    assert [run.name for run in found.runs] == [f"{path}/a/s0", f"{path}/a/s1", f"{path}/b/s0"]
    assert found.copies == (f"{path}/backup/s0",)
    assert "3 finished runs: 3 of echo. Left out: 0 without a verdict, 1 with the numbers of another run." in markdown(
        found, [], SUCCESS
    )


def test_runs_of_other_tasks_or_seedlings_are_not_compared(written: WrittenRuns) -> None:
    made = (
        (0.0, 128, 0),
        (0.5, 128, 0),
        (0.5, 64, 1),
    )
    for number, (slip, hidden, seed) in enumerate(made):
        config = {
            "env": {"type": "frozen_lake", "slip": slip, "size": 4},
            # The number of layers follows from the width, so it is not named.
            "seedling": {"hidden": hidden, "layers": hidden // 32, "seed": seed},
            "seed": seed,
        }
        written.add(f"a{number}", 0, {SUCCESS: [0.1]}).folder.config.write_text(json.dumps(config))
    assert [run.stratum for run in find_runs([written.folder.path], [SUCCESS]).runs] == [
        "frozen_lake, slip 0.0, seedling.hidden 128",
        "frozen_lake, slip 0.5, seedling.hidden 128",
        "frozen_lake, slip 0.5, seedling.hidden 64",
    ]


def test_a_single_run_and_a_success_that_no_run_has_are_refused(
    written: WrittenRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    written.add("a", 0, {SUCCESS: [0.1]})
    assert run(["correlate", str(written.folder.path)]) == 2
    assert re.search(r"Expected at least two finished runs, found \S+ alone\.", capsys.readouterr().err)
    written.add("a", 1, {SUCCESS: [0.2]})
    assert run(["correlate", str(written.folder.path), "--success", "success/rat"]) == 2
    assert "Expected readings of success/rat in the runs, found none in all 2." in capsys.readouterr().err


def test_a_name_of_an_environment_makes_no_line_of_its_own(written: WrittenRuns) -> None:
    written.add("a", 0, {SUCCESS: [0.1]}).folder.config.write_text('{"env": {"type": "a\\n# b"}, "seed": 0}')
    assert [run.stratum for run in find_runs([written.folder.path], [SUCCESS]).runs] == ["a # b"]


def test_the_command_writes_both_tables_and_the_courses(
    written: WrittenRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for seed in range(6):
        level = rng.normal()
        success = (level + rng.normal(size=8)).tolist()
        tokens = np.linspace(100, 50, 8).tolist()
        made = written.add(
            "a", seed, {SUCCESS: success, MI: [2 * value for value in success], "length/response_tokens": tokens}
        )
        made.folder.config.write_text(json.dumps({"env": {"type": "echo"}, "seed": seed // 2}))
    assert run(["correlate", str(written.folder.path), "--out", "found"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# What goes with success\n\n6 finished runs: 6 of echo.")
    assert "They rest on 3 sets of runs" in shown
    tree = json.loads(Path("found/correlations.json").read_text())
    of_mi = [row for row in tree["correlations"] if row["table"] == "success" and row["metric"] == MI]
    values = {(row["view"], row["method"]): row["found"]["value"] for row in of_mi}
    assert values["within runs", "pearson"] == values["all", "spearman"] == pytest.approx(1)
    length = next(row for row in tree["courses"] if row[1] == "tokens per answer")
    assert length[2:4] == ["6", "3"]
    assert length[-1].startswith("−4")  # from 96 to 54 tokens
    assert Path("found/correlations.md").read_text() == shown.rpartition("written to")[0].rstrip("\n") + "\n"
