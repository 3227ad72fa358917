"""A study's measurement of gradients: the checkpoints of another arm's run, as metrics of a run of its own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from heedful import cli
from heedful.run.gradients import GradientsSettings
from heedful.storage import read_metrics
from heedful.studies.declaration import Arm, Study, study_from_json, study_to_json, train
from heedful.studies.study_folder import StudyFolder
from research.jobs import GradientsJob

SMALL = (
    "--seedling.steps 30 --seedling.layers 1 --steps 2 --groups 4 --group-size 4 --evaluation.times 0 "
    "--diagnostics.no-enabled "
    "--keep-rollouts none --keep-checkpoints all --checkpoint-every 1 --algorithm.kl 0.01"
)


def test_the_checkpoints_of_another_arm_are_measured_once_each() -> None:
    trained = train("echo", SMALL)
    job = GradientsJob(
        trained.config,
        after="trained",
        checkpoints=(0, 2),
        measurement=GradientsSettings(groups=8, group_size=4, buckets=2),
    )
    study = Study("little", "What?", (Arm("trained", trained), Arm("measured", job)), (0,))
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study
    assert study.arm("measured").after == "trained"
    folders = {arm.name: StudyFolder(Path("out")).run(arm.name, 0).folder for arm in study.arms}
    for arm in study.arms:
        assert cli.run(arm.job.command(folders[arm.name], 0)) == 0
        assert arm.job.done(folders[arm.name])
    lines = list(read_metrics(folders["measured"].metrics))
    assert [line.step for line in lines] == [0, 2]
    assert lines[1].metrics["gradient/all/task_norm"].n == 8
    assert "gradient/all/task_undivided_trend_over_entropy" in lines[0].metrics
    # What is measured is kept with the run, and is not measured again.
    stored = folders["trained"].gradients(2)
    before = stored.stat().st_mtime_ns
    assert cli.run(job.command(folders["measured"], 0)) == 0
    assert stored.stat().st_mtime_ns == before
    # A measurement with other settings is not taken for one of these.
    other = replace(job, checkpoints=(0,), measurement=replace(job.measurement, groups=2))
    assert cli.run(other.command(folders["measured"], 0)) == 0
    assert read_metrics(folders["measured"].metrics)[0].metrics["gradient/all/task_norm"].n == 2


def test_a_shorter_study_measures_at_the_same_places() -> None:
    assert GradientsJob(checkpoints=(0, 40, 80)).with_steps(6).checkpoints == (0, 3, 6)
    assert GradientsJob(checkpoints=(0,)).with_steps(6).checkpoints == (0,)
