"""A study that ranks a pool and trains on its parts: what each run draws from, and the order of the runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from heedful import cli
from heedful.envs.common.tasks import TaskStream
from heedful.run.config import TrainConfig
from heedful.storage import RunFolder, read_metrics
from heedful.studies.declaration import Arm, Study, narrowed, settings, study_from_json, study_to_json
from heedful.studies.study_folder import StudyFolder
from research.jobs import GradientsJob, PartJob, RankingJob
from research.ranking import read_ranking

SMALL = (
    "--seedling.steps 30 --seedling.layers 1 --steps 2 --groups 4 --group-size 4 --evaluation.times 0 "
    "--diagnostics.no-enabled "
    "--keep-rollouts none --evaluation.at-once 16 --filter keep_all"
)


@pytest.fixture
def study() -> Study:
    config = settings("echo", SMALL)
    ranking = RankingJob(config, tasks=16, passes=3)
    arms = (Arm("ranking", ranking), Arm("top", PartJob(config, part=4)), Arm("any", PartJob(config)))
    return Study("parts", "What?", arms, (0,))


def done(study: Study, arm: str) -> RunFolder:
    """The run of seed 0 of an arm, as its process would do it."""
    folder = StudyFolder(Path("out")).run(arm, 0).folder
    assert cli.run(study.arm(arm).job.command(folder, 0)) == 0
    assert study.arm(arm).job.done(folder)
    return folder


def test_a_part_is_trained_on_the_tasks_that_the_ranking_gave_it_and_on_no_others(study: Study) -> None:
    ranking = done(study, "ranking")
    tasks = read_ranking(ranking.path / "ranking.json")
    assert [len(task.values) for task in tasks] == [3] * 16
    assert sorted(task.part or 0 for task in tasks) == sorted([1, 2, 3, 4] * 4)
    assert "ranking/half_spearman" in list(read_metrics(ranking.metrics))[-1].metrics
    top = json.loads(done(study, "top").config.read_text())
    assert set(top["task_seeds"]) == {task.seed for task in tasks if task.part == 4}
    some = json.loads(done(study, "any").config.read_text())
    assert len(some["task_seeds"]) == 4
    assert set(some["task_seeds"]) <= {task.seed for task in tasks}
    seen = json.loads((Path("out/top/s0/tasks.json")).read_text())
    assert {row["task"] for row in seen} == {task.id for task in tasks if task.part == 4}
    other = PartJob(settings("echo", f"{SMALL} --env.symbols 5"), part=1)  # knobs that the ranking did not have
    with pytest.raises(ValueError, match="was drawn by another environment or with other knobs"):
        other.command(StudyFolder(Path("out")).run("top", 0).folder, 0)


def test_passes_are_independent_and_a_killed_ranking_goes_on_to_the_same(study: Study) -> None:
    whole = read_ranking(done(study, "ranking").path / "ranking.json")
    assert any(task.values[0] != task.values[1] for task in whole)
    folder = StudyFolder(Path("out")).run("ranking", 0).folder
    lines = folder.metrics.read_text().splitlines()
    folder.metrics.write_text(lines[0] + "\n")  # killed after the file of a later pass was written
    folder.report.unlink()
    assert read_ranking(done(study, "ranking").path / "ranking.json") == whole


def test_a_declaration_with_both_jobs_is_read_back_and_a_chosen_arm_brings_what_it_reads(study: Study) -> None:
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study
    assert [arm.name for arm in narrowed(study, arms=("top",)).arms] == ["ranking", "top"]
    measured = replace(study, arms=(*study.arms, Arm("last", GradientsJob(after="top"))))
    assert [arm.name for arm in narrowed(measured, arms=("last",)).arms] == ["ranking", "top", "last"]
    with pytest.raises(ValueError, match="nowhere is compared or read, but no arm has that name"):
        Study("parts", "What?", (Arm("top", PartJob(after="nowhere")),), (0,))


def test_a_pool_can_be_listed_by_its_seeds() -> None:
    env = settings("echo").env
    tasks = TaskStream(env, "train", 0).next(6)
    seeds = [task.seed for task in tasks]
    stream = TaskStream(env, "train", 7, seeds)
    assert stream.pool == tuple(tasks)
    assert {task.id for task in stream.next(6)} == {task.id for task in tasks}
    held_out = TaskStream(env, "val", 0).next(1)[0]
    with pytest.raises(ValueError, match=f"found seed {held_out.seed}, whose task .* is of 'val'. Leave it out"):
        TaskStream(env, "train", 0, [*seeds, held_out.seed])
    with pytest.raises(ValueError, match="Expected seeds of distinct tasks"):
        TaskStream(env, "train", 0, [seeds[0], seeds[0]])
    with pytest.raises(ValueError, match="give one of them"):
        TrainConfig(tasks=100, task_seeds=tuple(range(100)))
    with pytest.raises(ValueError, match="must hold at least the 16 groups of one step, found 6"):
        TrainConfig(task_seeds=tuple(seeds))
