"""Runs that lost the input while replies stayed valid: the rule by hand, and the limits of a hunt without a find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from heedful.studies.declaration import Arm, Study, train
from heedful.studies.outcomes import read_outcomes
from heedful.studies.page import markdown, write_results
from heedful.studies.study_folder import StudyFolder
from heedful.studies.verdict import verdict
from heedful.types import Metric
from research.detector.candidates import Hunt, counted
from written_runs import WrittenRuns

HUNT = Hunt("Hunt", ("mi", "influence"), fresh_seeds=(7, 8))
VALID = [1.0] * 6


def declared(*arms: str, seeds: Sequence[int] = (0,)) -> Study:
    return Study("hunted", "Any?", tuple(Arm(arm, train("echo")) for arm in arms), tuple(seeds), outcomes=(HUNT,))


@pytest.fixture
def written(tmp_path: Path) -> WrittenRuns:
    return WrittenRuns(tmp_path / "study")


def test_a_candidate_lost_a_third_while_its_replies_were_valid(written: WrittenRuns) -> None:
    # Start (3 + 3) / 2. The lowest mean of two later readings: (2 + 1.8) / 2 = 1.9, 37% less.
    written.add("fell", 0, {"mi": [3, 3, 2.5, 2, 1.8, 2.4], "format/valid_rate": VALID})
    # The same readings, but the replies were broken then; while they were valid it lost (3 - 2.7) / 3.
    written.add("broke", 0, {"mi": [3, 3, 2.6, 2.8, 1.8, 1.8], "format/valid_rate": [1, 1, 1, 1, 0.5, 0.5]})
    # Influence falls, MI does not.
    written.add(
        "bypassed", 0, {"mi": [3] * 6, "influence": [0.9, None, 0.9, None, 0.3, 0.3], "format/valid_rate": VALID}
    )
    # One low reading is not two.
    written.add("dipped", 0, {"mi": [3, 3, 3, 1.5, 3, 3], "format/valid_rate": VALID})
    written.add("short", 0, {"mi": [3, 1, 1], "format/valid_rate": [1, 1, 1]})
    study = declared("fell", "broke", "bypassed", "dipped", "short")
    found = read_outcomes(study, written.folder.runs(study)).readings[0].values
    by_arm = {run.arm: run for run in found.runs}
    fell = by_arm["fell"].fall
    assert fell is not None
    assert (fell.start, fell.lowest, fell.step, fell.valid) == (3.0, pytest.approx(1.9), 4, 1.0)
    assert by_arm["broke"].fall is not None
    assert by_arm["broke"].fall.lost == pytest.approx(0.1)
    assert by_arm["bypassed"].fall is not None
    assert by_arm["bypassed"].fall.metric == "influence"
    assert {arm for arm, run in by_arm.items() if run.candidate} == {"fell", "bypassed"}
    # What could not be judged is not counted as healthy.
    assert by_arm["short"].fall is None
    assert (counted(found.first).hits, counted(found.first).of) == (2, 4)
    sentences = verdict(study, read_outcomes(study, written.folder.runs(study)), 5)
    assert sentences[-2].startswith("1 further run is in no count: it has too few readings")
    assert sentences[-1] == (
        "Repeat the candidates on fresh seeds with: python -m research hunted --arms fell,bypassed --seeds 7,8"
    )


def test_without_a_candidate_the_rate_has_an_exact_upper_limit(written: WrittenRuns, tmp_path: Path) -> None:
    names = [f"arm{number}" for number in range(10)]
    for name in names:
        written.add(name, 0, {"mi": [3.0] * 6, "format/valid_rate": VALID})
    study = declared(*names)
    outcomes = read_outcomes(study, written.folder.runs(study))
    # Clopper and Pearson for 0 of 10: 1 - 0.025^(1/10).
    assert verdict(study, outcomes, 10)[-1] == "No candidate: in runs like these there is one in at most 30.8%."
    write_results(StudyFolder(tmp_path / "study"), study, outcomes, 10)
    assert "Hunt: each run." in markdown(study, outcomes, [], "")
    assert "Hunt" in (tmp_path / "study" / "study.html").read_text(encoding="utf-8")


def test_repeats_of_candidates_are_not_told_to_be_repeated(written: WrittenRuns) -> None:
    for seed in (7, 8):
        written.add("fell", seed, {"mi": [3, 3, 1, 1, 1, 1], "format/valid_rate": VALID})
    study = declared("fell", seeds=(7, 8))
    said = verdict(study, read_outcomes(study, written.folder.runs(study)), 2)
    assert [sentence for sentence in said if "Repeat" in sentence] == []
    assert said[-1].startswith(
        "Hunt, repeats on fresh seeds alone: 2 of 2 [0.158, 1.000] runs lost 33% of mi or influence while 90%"
    )


def test_repeats_are_not_counted_with_the_runs_that_chose_them(written: WrittenRuns) -> None:
    low, flat = {"mi": [3, 3, 1, 1], "format/valid_rate": VALID}, {"mi": [3] * 4, "format/valid_rate": VALID}
    written.add("fell", 0, low)
    for seed in (7, 8):
        written.add("fell", seed, flat)
    for arm in ("b", "c", "d"):
        written.add(arm, 0, flat)
    study = declared("fell", "b", "c", "d", seeds=(0, 7, 8))
    runs = [run for run in written.folder.runs(study) if run.folder.verdict.exists()]
    said = verdict(study, read_outcomes(study, runs), 6)
    # Together they would be 1 of 6, as if the repeats had been drawn like the others.
    assert [sentence.split(" runs")[0] for sentence in said] == [
        "Hunt: 1 of 4 [0.006, 0.806]",
        "Hunt, repeats on fresh seeds alone: 0 of 2 [0.000, 0.842]",
    ]


def test_a_fall_within_the_noise_of_the_readings_is_no_candidate(written: WrittenRuns) -> None:
    def read(values: Sequence[float], half: float) -> list[Metric]:
        return [Metric("influence", value, 10, value - half, value + half) for value in values]

    falling = (0.3, 0.3, 0.15, 0.15)
    # Two readings each: the error of the difference is half / 1.96, 0.15 lost. Two errors are 0.1 and 0.2.
    written.add("clear", 0, {"influence": read(falling, 0.098), "format/valid_rate": VALID})
    written.add("noise", 0, {"influence": read(falling, 0.196), "format/valid_rate": VALID})
    # MI fell less, but clearly: it decides.
    written.add(
        "mi", 0, {"influence": read(falling, 0.196), "mi": read((3, 3, 1.9, 1.9), 0.1), "format/valid_rate": VALID}
    )
    study = declared("clear", "noise", "mi")
    found = read_outcomes(study, written.folder.runs(study)).readings[0].values
    by_arm = {run.arm: run for run in found.runs}
    assert by_arm["clear"].fall is not None
    assert by_arm["clear"].fall.error == pytest.approx(0.05)
    assert {arm for arm, run in by_arm.items() if run.candidate} == {"clear", "mi"}
    assert by_arm["mi"].fall is not None
    assert by_arm["mi"].fall.metric == "mi"
    assert counted(found.first).of == 3
