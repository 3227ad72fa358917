"""The registered study of the split of updates: how updates add up, and when a run names the cause."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.report.record import Point, RunRecord, Series
from heedful.storage import RunFolder, write_gradients
from heedful.storage.trackers import JsonlTracker
from heedful.studies.outcomes import Outcomes
from heedful.studies.page import write_results
from heedful.studies.study_folder import StudyFolder
from heedful.types import Metric
from research.catalogue import STUDIES
from research.causes.named import SUCCESS as PREFIX
from research.causes.named import NamedCauses, read_run
from research.causes.unfiltered import CAUSE, SHAPED, STEPS, judged
from research.rightness.trained import Trained


def run_with(folder: Path, seed: int, cause: float, rival: float, half: float) -> Trained:
    """A run whose updates have two named parts, one positive part, and what nobody owns."""
    parts = {CAUSE: cause, "step_varied": rival, "solved_varied": 0.03, "carried": -0.5}
    folder.mkdir(parents=True)
    tracker = JsonlTracker(folder / "metrics.jsonl")
    for step in STEPS:
        values = {**parts, "total": sum(parts.values()), "measured": -0.4, "before": 0.1}
        metrics = [
            Metric(f"attribution/{reading}/{part}", value, 288, value - half, value + half)
            for reading in ("success", "gap")
            for part, value in values.items()
        ]
        write_gradients(RunFolder(folder).attribution(step), step, {}, metrics, [])
        tracker.write(step, [Metric(SHAPED, 0.4)])
    tracker.close()
    return Trained("sokoban", seed, RunFolder(folder))


def test_a_run_names_the_lowest_part_if_its_sum_is_clear_of_0(tmp_path: Path) -> None:
    def named(name: str, *parts: tuple[float, float, float]) -> tuple[float | None, bool | None]:
        runs = [run_with(tmp_path / name / str(seed), seed, *one) for seed, one in enumerate(parts)]
        result = judged(runs)
        return {each.title: each for each in result.figures}["runs that name the cause"].value, result.passed

    clear, rivalled, unclear = (-0.02, -0.01, 0.01), (-0.02, -0.03, 0.01), (-0.01, 0.0, 0.02)
    assert named("all", clear, clear, clear) == (3, True)
    assert named("rival", clear, rivalled, clear) == (2, False)
    assert named("unclear", clear, unclear, clear) == (2, False)  # 3 x .01 within .02 sqrt 3
    assert named("few", clear, clear) == (2, None)


def test_half_intervals_of_updates_are_added_in_quadrature(tmp_path: Path) -> None:
    found = {each.title: each for each in judged([run_with(tmp_path / "one", 41, -0.02, -0.01, 0.01)]).figures}
    summed = found[f"seed 41, success: {CAUSE}"]
    assert summed.value == pytest.approx(-0.06)
    assert summed.high == pytest.approx(-0.06 + 0.01 * math.sqrt(3))
    assert summed.n == 3 * 288
    assert found["seed 41, success: parts"].note == f"lowest: {CAUSE}; clear of 0 and negative: {CAUSE}, step_varied"
    assert found["seed 41, success: total"].value == pytest.approx(3 * (-0.02 - 0.01 + 0.03 - 0.5))
    assert found["seed 41: part of |advantage| from groups of one outcome"].value == pytest.approx(0.4)


def test_a_study_of_named_causes_writes_its_runs(tmp_path: Path) -> None:
    study = STUDIES["attribution_causes"]()
    outcomes = Outcomes((), ())
    reading = study.outcomes[0].read(study, outcomes)
    write_results(StudyFolder(tmp_path), study, replace(outcomes, readings=(reading,)), 24)
    assert json.loads((tmp_path / "results.json").read_text())["outcomes"][0]["runs"] == []


def test_a_run_names_a_part_by_its_updates_up_to_the_first_alarm() -> None:
    def series(name: str, *values: tuple[int, float]) -> Series:
        return Series(name, tuple(Point(step, Metric(name, one, 288, one - 0.01, one + 0.01)) for step, one in values))

    found = [
        series(f"{PREFIX}fluency_constant", (0, -0.02), (4, -0.02), (8, 0.5)),
        series(f"{PREFIX}solved_varied", (0, 0.01), (4, 0.02), (8, 0.0)),
        series(f"{PREFIX}carried", (0, -9.0)),
        series("alarm/noise_collapse", (5, 0.0), (6, 1.0), (7, 1.0)),
        series("alarm/success_drop", (1, 1.0)),
    ]
    record = RunRecord(RunFolder(Path("run")), {one.name: one for one in found}, {}, {}, None)
    spec = NamedCauses("title", ("t",), ("fluency_constant",), ("alarm/template_collapse",), (), ("alarm/*_collapse",))
    run = read_run(spec, "t", "t/s0", record)
    assert (run.alarm, run.names, run.updates) == (6, ("alarm/noise_collapse",), 2)
    assert run.parts["fluency_constant"].value == pytest.approx(-0.04)
    assert (run.named(), run.named(above=0.05), set(run.parts)) == (
        "fluency_constant",
        "",
        {"fluency_constant", "solved_varied"},
    )
