"""From written measurements to tables, verdicts and a page, against numbers worked out by hand."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from heedful.report.record import Point, Series
from heedful.storage import write_rollouts
from heedful.studies.declaration import (
    Arm,
    Interaction,
    Measure,
    Pair,
    Pool,
    Study,
    narrowed,
    study_from_json,
    study_to_json,
    train,
)
from heedful.studies.figures import curves, mean_series, over_the_dial
from heedful.studies.outcomes import Outcomes, Reading, Table, read_outcomes, reading_of, total_until
from heedful.studies.page import command, markdown, write_results
from heedful.studies.paired import Count
from heedful.studies.tables import interaction_rows, measure_rows
from heedful.studies.verdict import verdict
from heedful.types import Ending, Group, Metric, Task, Trajectory
from written_runs import WrittenRuns

SUCCESS = "eval/val/sampled/success"


def series(*values: float | None) -> Series:
    return Series("m", tuple(Point(step, Metric("m", v, why="" if v else "off")) for step, v in enumerate(values)))


@pytest.mark.parametrize(
    ("when", "level", "expected"),
    [
        ("last", None, 0.9),
        ("first", None, 0.4),
        ("change", None, 0.5),
        ("mean", None, (0.4 + 0.2 + 0.8 + 0.9) / 4),
        ("highest", None, 0.9),
        ("lowest", None, 0.2),
        ("first_at_least", 0.8, 3.0),
        ("first_at_most", 0.3, 1.0),
        ("first_at_least", 0.95, None),
    ],
)
def test_a_measure_reads_a_run_at_its_point(when: str, level: float | None, expected: float | None) -> None:
    found = reading_of(Measure("t", "m", when, level), series(0.4, 0.2, None, 0.8, 0.9))  # type: ignore[arg-type]
    assert found.value == (None if expected is None else pytest.approx(expected))


def test_a_measure_looks_at_its_steps_alone() -> None:
    window = Measure("t", "m", "mean", from_step=1, to_step=3)
    assert reading_of(window, series(0.4, 0.2, None, 0.8, 0.9)).value == pytest.approx(0.5)


def test_what_was_never_measured_stays_missing_with_its_reason() -> None:
    assert reading_of(Measure("t", "m"), series(None, None)).why == "off"
    assert reading_of(Measure("t", "m"), Series("m", ())).why == "m was not recorded"
    assert reading_of(Measure("t", "m", "first_at_least", 2.0), series(1.0)).why == "never at least 2"
    assert reading_of(Measure("t", "m", "change"), series(1.0)).value is None


def study(**changes: object) -> Study:
    arms = tuple(Arm(name, train("echo"), level) for name, level in (("new", 1.0), ("old", 0.0)))
    plain = Study(
        "little",
        "Is new better?",
        arms,
        (0, 1, 2),
        (Pair("new", "old"),),
        (Measure("final success", SUCCESS), Measure("gap reached", "gap", "first_at_least", 0.5)),
        curves=(SUCCESS,),
        notes=("Made <b>up</b>.",),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def groups(*rates: float) -> list[Group]:
    """A group of four per task, of which this share succeeded."""
    found = []
    for number, rate in enumerate(rates):
        task = Task(f"echo-{number}", number, "val")
        members = tuple(
            Trajectory(task, m, (), Ending.SOLVED if m < 4 * rate else Ending.FAILED, float(m < 4 * rate))
            for m in range(4)
        )
        found.append(Group(task, members))
    return found


def written_study(written: WrittenRuns) -> Outcomes:
    """Final success new: .7 .8 .9, old: .5 .5 .5 - differences .2 .3 .4."""
    for seed, (new, old) in enumerate(((0.7, 0.5), (0.8, 0.5), (0.9, 0.5))):
        written.add("new", seed, {SUCCESS: [0.4, None, new], "gap": [0.1, 0.6 if seed else 0.2, 0.3]})
        written.add("old", seed, {SUCCESS: [0.4, None, old], "gap": [0.1, 0.2, 0.3]})
    return read_outcomes(study(), written.folder.runs(study()))


def test_means_and_paired_differences_are_those_worked_out_by_hand(written: WrittenRuns) -> None:
    final, reached = written_study(written).measures
    new, old = final.arms
    # Sample standard deviation 0.1 over 3 seeds, t(2) = 4.3027: half width 0.2484; cut at 1, the most a share can be.
    assert (new.mean.value, new.mean.low, new.mean.high) == pytest.approx((0.8, 0.8 - 0.24841, 1.0), abs=1e-4)
    assert (old.mean.value, old.mean.low) == (0.5, None)
    difference = final.pairs[0].over_seeds
    assert dict(difference.by_seed) == pytest.approx({0: 0.2, 1: 0.3, 2: 0.4})
    assert (difference.mean.low, difference.mean.high) == pytest.approx((0.3 - 0.24841, 0.3 + 0.24841), abs=1e-4)
    assert difference.p_value == 0.25
    # When: reached in two of three runs of the one arm, in none of the other, and so no difference of steps.
    assert [(str(arm.reached), dict(arm.by_seed)) for arm in reached.arms] == [
        ("2 of 3 [0.094, 0.992]", {1: 1.0, 2: 1.0}),
        ("0 of 3 [0.000, 0.708]", {}),
    ]
    assert dict(reached.arms[0].missing) == {0: "never at least 0.5"}
    assert reached.pairs[0].over_seeds.mean.value is None


def test_differences_over_tasks_pair_the_evaluated_episodes(written: WrittenRuns) -> None:
    written_study(written)
    for seed in (0, 1, 2):
        for arm, rates in (("new", (1.0, 0.75, 0.5)), ("old", (0.5, 0.5, 0.5))):
            path = written.folder.run(arm, seed).folder.rollouts(2, "val_sampled")
            write_rollouts(path, 2, "val", groups(*rates), None, "echo")
    found = read_outcomes(study(), written.folder.runs(study())).measures[0].pairs[0].over_tasks
    # Tasks differ by 0.5, 0.25 and 0: mean 0.25, sample deviation 0.25, half width 4.3027 * 0.25 / sqrt(3).
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(0.25), 3)
    assert found.high == pytest.approx(0.25 + 0.62103, abs=1e-4)


def test_a_run_whose_evaluated_episodes_cannot_be_read_is_named_and_left_out(written: WrittenRuns) -> None:
    written_study(written)
    for seed in (0, 1, 2):
        for arm in ("new", "old"):
            path = written.folder.run(arm, seed).folder.rollouts(2, "val_sampled")
            write_rollouts(path, 2, "val", groups(1.0, 0.5), None, "echo")
    path.write_bytes(path.read_bytes()[:100])
    outcomes = read_outcomes(study(), written.folder.runs(study()))
    assert len(outcomes.unread) == 1
    assert outcomes.unread[0].startswith("old/s2 (")
    assert str(path) in outcomes.unread[0]
    assert len(outcomes.runs) == len(written.folder.runs(study())) - 1


def test_a_run_with_other_settings_than_its_arm_declares_is_named(written: WrittenRuns) -> None:
    written_study(written)
    runs = written.folder.runs(study())
    runs[0].folder.config.write_text(json.dumps({"seed": 7, "of_another_version": 1}))  # of another seed, copied here
    told = verdict(study(), read_outcomes(study(), runs), len(runs))
    assert told[0] == (
        "Runs with other settings than those declared are counted: new/s0 (seed is 7, declared 0). Delete their "
        "folders, and the study makes them anew."
    )


def test_tags_that_a_run_took_from_its_model_are_no_other_settings(written: WrittenRuns) -> None:
    written_study(written)
    runs = written.folder.runs(study())
    runs[0].folder.config.write_text(json.dumps({"seed": 0, "tags": {"open": "<analysis>", "of_model": False}}))
    assert read_outcomes(study(), runs).foreign == ()


def test_a_pool_is_the_mean_over_its_arms_seed_by_seed_and_task_by_task(written: WrittenRuns) -> None:
    pooled = study(pools=(Pool("both", ("new", "old")),), pairs=(Pair("both", "old"), Pair("new", "both")))
    written_study(written)
    for arm, rates in (("new", (1.0, 0.75, 0.5)), ("old", (0.5, 0.5, 0.5))):
        path = written.folder.run(arm, 0).folder.rollouts(2, "val_sampled")
        write_rollouts(path, 2, "val", groups(*rates), None, "echo")
    outcomes = read_outcomes(pooled, written.folder.runs(pooled))
    final, reached = outcomes.measures
    # .6 .65 .7: standard deviation .05 over 3 seeds.
    mean = final.arms[2].mean
    assert (mean.value, mean.low, mean.n) == (pytest.approx(0.65), pytest.approx(0.65 - 0.12421, abs=1e-4), 3)
    against_old, against_both = final.pairs
    assert dict(against_old.over_seeds.by_seed) == pytest.approx({0: 0.1, 1: 0.15, 2: 0.2})
    assert dict(against_both.over_seeds.by_seed) == pytest.approx({0: 0.1, 1: 0.15, 2: 0.2})
    assert against_old.over_tasks is not None
    assert (against_old.over_tasks.value, against_old.over_tasks.n) == (pytest.approx(0.125), 3)
    # A seed of which one arm has no value is missing, with the arm and its reason.
    assert dict(reached.arms[2].by_seed) == {}
    assert reached.arms[2].missing[0] == "new: never at least 0.5; old: never at least 0.5"
    assert reached.arms[2].missing[1] == "old: never at least 0.5"
    assert measure_rows(pooled, outcomes)[0] == ["measure", "new", "old", "both"]
    half = read_outcomes(pooled, [run for run in written.folder.runs(pooled) if run.arm == "new"]).measures[0]
    assert half.arms[2].missing[0] == "old: not over"
    legends = [[name for _, name in panel.legend] for panel in curves(pooled, outcomes)]
    assert legends == [["new", "old"], ["both"]]


def test_an_interaction_is_the_difference_of_two_differences_seed_by_seed(written: WrittenRuns) -> None:
    names = "new", "old", "new_slow", "old_slow"
    pairs = Pair("new", "old"), Pair("new_slow", "old_slow")
    crossed = study(
        arms=tuple(Arm(name, train("echo")) for name in names), pairs=pairs, interactions=(Interaction(*pairs),)
    )
    for seed, finals in enumerate(((0.7, 0.5, 0.6, 0.6), (0.8, 0.5, 0.7, 0.6), (0.9, 0.5, 0.9, 0.6), (0.9, 0.5, 0.9))):
        for name, final in zip(names, finals, strict=False):  # the last arm has no fourth seed
            written.add(name, seed, {SUCCESS: [0.4, None, final]})
    seeds = (0, 1, 2, 3)
    runs = [run for run in written.folder.runs(replace(crossed, seeds=seeds)) if run.folder.path.exists()]
    outcomes = read_outcomes(replace(crossed, seeds=seeds), runs)
    found = outcomes.measures[0].interactions[0].over_seeds
    # .2 - .0, .3 - .1 and .4 - .3: mean 1/6, sample deviation .057735, half width 4.3027 * .057735 / sqrt(3).
    assert dict(found.by_seed) == pytest.approx({0: 0.2, 1: 0.2, 2: 0.1})
    assert (found.mean.value, found.mean.low) == pytest.approx((1 / 6, 1 / 6 - 0.14342), abs=1e-4)
    assert (found.p_value, found.mean.why) == (0.25, "1 missing: the other pair has no value")
    said = "final success, (new against old) less (new_slow against old_slow): higher. Difference +0.167 [+0.0232 to"
    assert any(sentence.startswith(said) for sentence in verdict(crossed, outcomes, len(runs)))
    assert interaction_rows(outcomes)[1][:2] == ["final success", "(new − old) − (new_slow − old_slow)"]
    assert "Interactions: paired differences less other ones." in markdown(crossed, outcomes, [], "")


def test_a_curve_of_several_arms_is_their_mean_seed_by_seed_where_all_have_a_value(written: WrittenRuns) -> None:
    written_study(written)
    found = read_outcomes(study(), written.folder.runs(study()))
    by_arm = [{each.run.seed: each.record for each in found.of_arm(arm)} for arm in ("new", "old")]
    last = mean_series(SUCCESS, by_arm).numeric[-1]
    assert (last.number, last.metric.low, last.metric.n) == (
        *(pytest.approx(0.65), pytest.approx(0.65 - 0.12421, abs=1e-4)),
        3,
    )
    del by_arm[1][2]  # type: ignore[attr-defined]
    last = mean_series(SUCCESS, by_arm).numeric[-1]
    assert (last.number, last.metric.n) == (pytest.approx(0.625), 2)


def test_the_verdict_says_what_is_clear_and_what_is_not(written: WrittenRuns) -> None:
    outcomes = written_study(written)
    sentences = verdict(study(), outcomes, 6)
    assert sentences == [
        "final success, new against old: higher. Difference +0.300 [+0.0516 to +0.548] over 3 seeds, "
        "exact sign-flip p = 0.25."
    ]
    fewer = read_outcomes(study(), [run for run in written.folder.runs(study()) if run.seed < 2])
    assert verdict(study(), fewer, 6) == [
        "Unfinished: 4 of 6 runs are over. What follows is of those, without the arms of which none is over.",
        "final success, new against old: not distinguishable from no difference. Difference +0.250 "
        "[−0.385 to +0.885] over 2 seeds, exact sign-flip p = 0.5.",
    ]


def test_of_many_comparisons_the_verdict_tells_the_clear_ones_and_counts_the_others(written: WrittenRuns) -> None:
    names = [f"arm{number}" for number in range(8)]
    many = study(
        arms=tuple(Arm(name, train("echo")) for name in (*names, "old")),
        pairs=tuple(Pair(name, "old") for name in names),
        measures=(Measure("final success", SUCCESS),),
    )
    for seed in (0, 1, 2):
        written.add("old", seed, {SUCCESS: [0.5]})
        for number, name in enumerate(names[:7]):  # the last arm has no run
            written.add(
                name, seed, {SUCCESS: [0.9 + 0.01 * seed if number == 0 else 0.5 + 0.01 * number + 0.1 * (seed - 1)]}
            )
    outcomes = read_outcomes(many, [run for run in written.folder.runs(many) if run.arm != names[7]])
    together, clear = verdict(many, outcomes, 24)
    assert together == (
        "final success: 7 of 8 comparisons have values, and 1 of these are clear. Where nothing differs, about 0.35 "
        "would be, by chance. The differences that are not clear lie from +0.0100 to +0.0600."
    )
    assert clear.startswith("final success, arm0 against old: higher. Difference +0.410")


def test_the_page_stands_alone_and_holds_every_table(written: WrittenRuns) -> None:
    outcomes = written_study(written)
    sentences = write_results(written.folder, study(dial="level"), outcomes, 6)
    page = written.folder.page.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert "Made &lt;b&gt;up&lt;/b&gt;." in page
    for words in ("Is new better?", "Paired differences", "new − old", "heedful study little --seeds 0,1"):
        assert words in page, words
    charts = sorted(path.name for path in written.folder.figures.glob("*.svg"))
    assert len(charts) == page.count('<svg class="chart"')
    assert {"final-success.svg", "eval-val-sampled-success.svg"} <= set(charts)
    assert written.folder.table.read_text() == markdown(study(), outcomes, sentences, command(study(), outcomes))
    assert json.loads(written.folder.results.read_text())["verdict"] == sentences


@dataclass(frozen=True)
class Reached:
    """An outcome of somebody else: the runs whose metric ends at a level."""

    title: str = "Reached"
    metric: str = SUCCESS
    level: float = 0.8
    arms: tuple[str, ...] = ("new",)

    @property
    def arms_read(self) -> tuple[str, ...]:
        return self.arms

    def among(self, arms: Collection[str]) -> "Reached | None":
        left = tuple(name for name in self.arms if name in arms)
        return replace(self, arms=left) if left else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        ends = {run: each.get(self.metric).numeric[-1].number for run, each in outcomes.records(self.arms).items()}
        runs = [run for run, end in ends.items() if (end or 0.0) >= self.level]
        table = Table(self.title, "Runs.", "Runs that end there.", [["run"], *([run] for run in runs)])
        return Reading(Count(len(runs), len(ends)), (table,), (f"{len(runs)} of {len(ends)} end at {self.level}.",))


def test_an_outcome_of_somebody_else_gives_rows_and_sentences(written: WrittenRuns) -> None:
    written_study(written)
    declared = study(outcomes=(Reached(),))
    tree = json.loads(json.dumps(study_to_json(declared)))
    assert tree["outcomes"][0]["type"].endswith("test_outcomes_and_page:Reached")
    assert study_from_json(tree) == declared
    outcomes = read_outcomes(declared, written.folder.runs(declared))
    sentences = write_results(written.folder, declared, outcomes, 6)
    assert sentences[-1] == "2 of 3 end at 0.8."
    table = written.folder.table.read_text(encoding="utf-8")
    assert "Runs that end there.\n\n| run |\n| --- |\n| new/s1 |\n| new/s2 |\n" in table
    (found,) = json.loads(written.folder.results.read_text(encoding="utf-8"))["outcomes"]
    assert (found["title"], found["hits"], found["of"]) == ("Reached", 2, 3)
    assert narrowed(declared, ("old",)).outcomes == ()
    with pytest.raises(ValueError, match="other is compared or read, but no arm has that name"):
        replace(declared, outcomes=(Reached(arms=("other",)),))


def test_foreign_text_begins_no_html_in_the_table_and_reaches_no_terminal(written: WrittenRuns) -> None:
    outcomes = written_study(written)
    hostile = replace(study(), question="Is it\x1b[31m <script>alert(1)</script>, with p < .05 & <.1?")
    table = markdown(hostile, outcomes, ["<!-- hidden"], "heedful study little")
    assert r"Is it\x1b[31m &lt;script>alert(1)&lt;/script>, with p < .05 & <.1?" in table
    assert "- &lt;!-- hidden" in table


def test_equal_runs_give_equal_pages(written: WrittenRuns) -> None:
    outcomes = written_study(written)
    pages = []
    for _ in range(2):
        write_results(written.folder, study(), outcomes, 6)
        pages.append((written.folder.page.read_bytes(), written.folder.results.read_bytes()))
    assert pages[0] == pages[1]


def test_results_without_any_value_are_still_a_page(written: WrittenRuns) -> None:
    written.add("new", 0, {"other": [1.0]})
    declared = study(seeds=(0,))
    outcomes = read_outcomes(declared, [written.folder.run("new", 0)])
    sentences = write_results(written.folder, declared, outcomes, 2)
    assert sentences[1] == "final success, new against old: unknown (no seed has a value in both arms)."
    assert "–" in Path(written.folder.table).read_text()


def many_arms() -> Study:
    names = [f"{line}_{level}" for line in "abcdefg" for level in (0, 1)]
    arms = tuple(Arm(name, train("echo"), float(name[-1]), line=f"line {name[0]}") for name in names)
    return study(arms=arms, pairs=(), measures=(Measure("final success", SUCCESS), Measure("gap", "gap")), dial="level")


def test_a_study_of_many_arms_has_a_row_per_arm_and_a_line_per_family(written: WrittenRuns) -> None:
    declared = many_arms()
    for arm in declared.arms:
        written.add(arm.name, 0, {SUCCESS: [0.5], "gap": [0.25]})
    outcomes = read_outcomes(declared, [run for run in written.folder.runs(declared) if run.seed == 0])
    header, first, *rest = measure_rows(declared, outcomes)
    assert header == ["arm", "final success", "gap"]
    assert first == ["a_0", "0.500 (n 1)", "0.250 (n 1)"]
    assert len(rest) == 13
    # Seven lines of two arms each: six in the first chart of a measure, the seventh in a second one.
    legends = [[label for _, label in panel.legend] for panel in over_the_dial(declared, outcomes)]
    assert legends == 2 * [[f"line {line}" for line in "abcdef"], ["line g"]]


@pytest.mark.parametrize(
    ("levels", "marks"),
    [
        ((1, 2, 4), ["1", "2", "3", "4"]),
        ((0.5, 1), ["0.5", "0.6", "0.7"]),
        ((0.1, 1, 10), ["0.1", "1", "10"]),
        ((0, 1, 10), ["0", "2", "4"]),
    ],
)
def test_a_dial_is_marked_by_whole_or_round_numbers_and_a_wide_one_by_its_levels(
    written: WrittenRuns, levels: Sequence[float], marks: list[str]
) -> None:
    arms = tuple(Arm(f"at_{level:g}", train("echo"), level) for level in levels)
    declared = study(arms=arms, pairs=(), measures=(Measure("final success", SUCCESS),), dial="level")
    for arm in arms:
        written.add(arm.name, 0, {SUCCESS: [0.5]})
    outcomes = read_outcomes(declared, [run for run in written.folder.runs(declared) if run.seed == 0])
    (panel,) = over_the_dial(declared, outcomes)
    found = re.findall(r'text-anchor="middle"[^>]*>([^<]*)</text>', panel.svg)
    assert found[: len(marks)] == marks, panel.svg
    if levels == (0.1, 1, 10):  # a logarithmic axis
        across = [float(place) for place in re.findall(r'class="dot c1" d="M([\d.]+)', panel.svg)]
        assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.3)


def test_the_cost_of_a_success_is_what_was_spent_until_its_mean_over_a_window_is_reached() -> None:
    spent, success = series(10, 20, 30, 40, 50), series(0.1, 0.6, 0.2, 0.5, 0.6)
    # Means of two steps: .35, .4, .35, .55. So .5 is reached at step 4, .4 at step 2.
    cost = Measure("t", "m", "total_until", 0.5, reaches="success/rate", window=2)
    assert total_until(cost, spent, success).value == pytest.approx(150.0)
    assert total_until(replace(cost, level=0.4), spent, success).value == pytest.approx(60.0)
    never = total_until(replace(cost, level=0.7), spent, success)
    assert (never.value, never.why) == (None, "success/rate was never at least 0.7")
    with pytest.raises(ValueError, match="`reaches` belongs to total_until"):
        Measure("t", "m", "total_until", 0.5)
    with pytest.raises(ValueError, match="`reaches` belongs to total_until"):
        Measure("t", "m", reaches="success/rate")


def test_a_study_counts_the_runs_that_reached_a_success(written: WrittenRuns) -> None:
    for seed, rates in enumerate(([0.2, 0.6, 0.6], [0.2, 0.3, 0.3])):
        written.add("new", seed, {"success/rate": rates, "tokens/update": [100, 200, 300]})
        written.add("old", seed, {"success/rate": [0.6] * 3, "tokens/update": [100, 200, 300]})
    cost = Measure("cost", "tokens/update", "total_until", 0.5, reaches="success/rate", window=1)
    declared = study(measures=(cost,), seeds=(0, 1))
    new, old = read_outcomes(declared, written.folder.runs(declared)).measures[0].arms
    assert (dict(new.by_seed), str(new.reached)) == ({0: 300.0}, "1 of 2 [0.013, 0.987]")
    assert dict(old.by_seed) == {0: 100.0, 1: 100.0}


def test_the_page_gives_the_command_of_what_was_run(written: WrittenRuns) -> None:
    for arm in ("new", "old"):
        written.add(arm, 0, {SUCCESS: [0.1]})
    declared = study(seeds=(0,))
    outcomes = read_outcomes(declared, written.folder.runs(declared))
    assert command(declared, outcomes) == f"heedful study {declared.name} --seeds 0"
    starts: list[dict[str, object]] = [{"arms": ["n*"], "steps": 4}, {"arms": ["old", "later"], "steps": 4}]
    again = f"heedful study {declared.name} --seeds 0 --arms 'n*,old,later' --steps 4"
    assert command(declared, outcomes, starts) == again
    assert command(declared, outcomes, [{"file": "my study.json"}]) == "heedful study 'my study.json' --seeds 0"
    # A start of all arms asked for all.
    assert "--arms" not in command(declared, outcomes, [*starts, {"steps": 4}])
    changes = [f"change {at}" for at in range(60)]
    written.folder.declaration.write_text(json.dumps({"starts": starts, "remeasured": changes}))
    write_results(written.folder, declared, outcomes, 2)
    assert f"    {again}\n" in written.folder.table.read_text(encoding="utf-8")
    page = written.folder.page.read_text(encoding="utf-8")
    assert all(words in page for words in (*changes[:6], "and 54 more, in study.json"))
    assert changes[6] not in page
