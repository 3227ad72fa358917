"""Treatments within a run: helped tasks are trained on and never evaluated, and a resumed run treats alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import NO_EVALUATION, UNMEASURED, Trained, same, trained, without_time  # noqa: E402

from heedful.envs.common.helped import HELPED  # noqa: E402
from heedful.envs.common.tasks import evaluation_tasks  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.report.record import read_run  # noqa: E402
from heedful.report.triage import triage_of  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.storage import read_rollouts  # noqa: E402
from heedful.types import PROBE  # noqa: E402
from patience import PATIENCE  # noqa: E402


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig, seedling_folder: Path) -> TrainConfig:
    """The seedling of one turn plays three, so that it fails most tasks and begins them with help."""
    return replace(
        echo_run,
        model=str(seedling_folder),
        env=Echo(turns=3, instructions="brief"),
        tasks=8,
        filter=KeepAll(),
        diagnostics=UNMEASURED,
        treat=("skip", "exclude", "help"),
    )


@pytest.fixture(scope="module")
def run(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(config, tmp_path_factory.mktemp("treated") / "run")


def test_failed_tasks_begin_with_help_in_training_and_never_in_evaluations(run: Trained, config: TrainConfig) -> None:
    stored = [read_rollouts(run.folder.rollouts(step)).groups for step in range(6)]
    helped = [[group for group in groups if HELPED in group.task.tags] for groups in stored]
    assert [len(groups) for groups in helped] == run.watch.values["treat/helped"]
    assert sum(map(len, helped)) > 4
    for with_help in helped:
        for group in with_help:
            turns = group.task.id.split("+h")[1]
            assert PROBE not in group.task.tags
            assert group.task.split == "train"
            assert all(len(trajectory.turns) <= 3 - int(turns) for trajectory in group.trajectories)
    for step, groups in enumerate(stored):
        names = [group.task.id.split("+h")[0] for group in groups]
        assert len(set(names)) == 4, step
        assert sum(PROBE in group.task.tags for group in groups) == 1
    asked = [task.id for task in evaluation_tasks(config.env, "val", 8)]
    for version in (0, 3, 6):
        held_out = read_rollouts(run.folder.rollouts(version, "val_sampled")).groups
        assert [group.task.id for group in held_out] == asked
        for group in held_out:
            first = config.env.episode().start(group.task, 0).text
            assert all(first in trajectory.turns[0].reply.prompt.text for trajectory in group.trajectories)


def test_a_treated_run_goes_on_from_a_checkpoint_as_if_nothing_had_been(
    run: Trained, config: TrainConfig, tmp_path: Path
) -> None:
    middle = checkpoint.checkpoints(run.folder.path / "checkpoints")[0]
    rest = trained(config, tmp_path / "rest", middle)
    assert same(run.weights, rest.weights)
    assert without_time(run.folder.path)[middle.version :] == without_time(rest.folder.path)
    ends = [checkpoint.checkpoints(each.folder.path / "checkpoints")[-1].state() for each in (run, rest)]
    assert ends[0] == ends[1]
    assert any("+h" in name for name in ends[0]["memory"])


def test_a_treated_run_in_worker_processes_has_the_same_bytes(
    run: Trained, config: TrainConfig, tmp_path: Path
) -> None:
    isolated = replace(config, env_workers=1, env_timeout=PATIENCE, evaluation=NO_EVALUATION, checkpoint_every=6)
    there = trained(isolated, tmp_path / "workers")
    assert same(run.weights, there.weights)
    for step in range(6):
        assert run.folder.rollouts(step).read_bytes() == there.folder.rollouts(step).read_bytes()


def test_the_report_says_what_was_treated_and_how(run: Trained, config: TrainConfig) -> None:
    from heedful.boundary import to_json

    run.folder.config.write_text(json.dumps(to_json(config)))
    notes = triage_of(read_run(run.folder))["notes"]
    (said,) = [note for note in notes if note.startswith("Treated")]
    helped = run.watch.values["treat/helped"]
    assert f"and {sum(helped) / len(helped):.1f} groups began with" in said


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tasks": None}, "every step draws fresh tasks; give a pool with --tasks N"),
        ({"treat": (), "treat_dealt": True}, "there are none; give --treat skip,exclude,help"),
    ],
)
def test_treatments_without_a_pool_or_without_any_are_refused(
    config: TrainConfig, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        replace(config, **changes)
