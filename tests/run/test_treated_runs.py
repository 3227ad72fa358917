"""Treatments within a run: helped tasks are trained on and never evaluated, and a resumed run treats alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import NO_EVALUATION, UNMEASURED, Trained, same, silent, trained, without_time  # noqa: E402

from heedful.algorithms.table import Ppo  # noqa: E402
from heedful.envs.common.tasks import evaluation_tasks  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.report.record import read_run  # noqa: E402
from heedful.report.triage import triage_of  # noqa: E402
from heedful.run import checkpoint, parts  # noqa: E402
from heedful.run.config import AttributionConfig, TrainConfig  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.storage import read_metrics, read_rollouts  # noqa: E402
from heedful.training.replay import Success, replayed  # noqa: E402
from heedful.types import HELPED, PROBE  # noqa: E402
from patience import PATIENCE  # noqa: E402


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig, seedling_folder: Path) -> TrainConfig:
    """The seedling of one turn plays three, so that it fails most tasks and begins them with help."""
    return replace(
        echo_run,
        model=str(seedling_folder),
        env=Echo(turns=3, instructions="brief"),
        tasks=8,
        steps=4,
        evaluation=replace(echo_run.evaluation, tasks=4, search_tasks=0),
        filter=KeepAll(),
        diagnostics=UNMEASURED,
        treat=("skip", "exclude", "help"),
    )


@pytest.fixture(scope="module")
def run(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(config, tmp_path_factory.mktemp("treated") / "run")


def test_failed_tasks_begin_with_help_in_training_and_never_in_evaluations(run: Trained, config: TrainConfig) -> None:
    stored = [read_rollouts(run.folder.rollouts(step)).groups for step in range(4)]
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
    asked = [task.id for task in evaluation_tasks(config.env, "val", 4)]
    for version in (0, 2, 4):
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
    isolated = replace(config, env_workers=1, env_timeout=PATIENCE, evaluation=NO_EVALUATION, checkpoint_every=4)
    there = trained(isolated, tmp_path / "workers")
    assert same(run.weights, there.weights)
    for step in range(4):
        assert run.folder.rollouts(step).read_bytes() == there.folder.rollouts(step).read_bytes()


def test_the_report_says_what_was_treated_and_how(run: Trained, config: TrainConfig) -> None:
    from heedful.boundary import to_json

    helped = run.watch.values["treat/helped"]
    for dealt, how in ((True, ", dealt to other tasks by chance"), (False, "")):
        run.folder.config.write_text(json.dumps(to_json(replace(config, treat_dealt=dealt))))
        (said,) = [note for note in triage_of(read_run(run.folder))["notes"] if note.startswith("Treated")]
        assert said.startswith(f"Treated{how}: in a step ")
        assert f"and {sum(helped) / len(helped):.1f} groups began with" in said


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tasks": None}, "every step draws fresh tasks; give a pool with --tasks N"),
        ({"treat": (), "treat_dealt": True}, "there are none; give --treat skip,exclude,help"),
        ({"treat": ("replay",), "algorithm": Ppo()}, "no episode of the step, so a critic has not valued it"),
        ({"treat": ("replay",), "attribution": AttributionConfig(every=1)}, "so --attribution cannot split it"),
    ],
)
def test_treatments_without_a_pool_or_without_any_are_refused(
    config: TrainConfig, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        replace(config, **changes)


@pytest.fixture(scope="module")
def replaying(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Trained]:
    """Pairs of two turns: a task that succeeded once fails again."""
    again = replace(
        config,
        env=Echo(turns=2, instructions="brief"),
        tasks=4,
        group_size=2,
        steps=8,
        treat=("replay",),
        evaluation=NO_EVALUATION,
    )
    return again, trained(again, tmp_path_factory.mktemp("replaying") / "run")


def test_a_replay_changes_the_update_and_nothing_that_is_played_or_read_before(
    replaying: tuple[TrainConfig, Trained], tmp_path: Path
) -> None:
    config, run = replaying
    count, ratio = run.watch.values["treat/replayed"], run.watch.values["treat/replay_ratio"]
    first = next(step for step, replayed in enumerate(count) if replayed)
    plain = trained(replace(config, treat=(), steps=first + 1), tmp_path / "plain")
    for step in range(first + 1):
        assert run.folder.rollouts(step).read_bytes() == plain.folder.rollouts(step).read_bytes()
    there, here = ([line.metrics for line in read_metrics(each.folder.metrics)][first] for each in (run, plain))
    names = [name for name in here if name.split("/")[0] in ("success", "signal", "filter", "behaviour")]
    assert len(names) > 10
    assert [there[name] for name in names] == [here[name] for name in names]
    assert there["policy/loss"] != here["policy/loss"]
    ages = [age for age in run.watch.values["treat/replay_age"] if age is not None]
    assert ages
    assert all(1 <= age < 8 for age in ages)
    assert all(0 < value <= 2 for value in ratio if value is not None)


def test_a_success_has_the_ratio_one_under_the_policy_that_sampled_it_and_an_update_makes_it_likelier(
    replaying: tuple[TrainConfig, Trained],
) -> None:
    config, run = replaying
    groups = [each for each in read_rollouts(run.folder.rollouts(0)).groups if Success.of(each, 0.5)]
    replays = {place: success for place, group in enumerate(groups) if (success := Success.of(group, 0.5))}
    learner = assemble(config, silent, None).learner
    samples, told = replayed(replays, groups, learner.logprobs)
    assert told[2].value == pytest.approx(1.0, abs=1e-3)
    before = learner.logprobs(samples)
    learner.update(samples)
    after = learner.logprobs(samples)
    assert sum(map(sum, after)) > sum(map(sum, before))


def test_a_run_that_replays_goes_on_from_a_checkpoint_as_if_nothing_had_been(
    replaying: tuple[TrainConfig, Trained], tmp_path: Path
) -> None:
    config, run = replaying
    middle = checkpoint.checkpoints(run.folder.path / "checkpoints")[0]
    rest = trained(config, tmp_path / "rest", middle)
    assert same(run.weights, rest.weights)
    assert any(run.watch.values["treat/replayed"][middle.version :])
    ends = [checkpoint.checkpoints(each.folder.path / "checkpoints")[-1].state() for each in (run, rest)]
    assert ends[0] == ends[1]


def test_a_success_with_pictures_is_refused(
    replaying: tuple[TrainConfig, Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "vision_of", lambda model: object())
    with pytest.raises(ValueError, match="--treat replay stores token ids alone, and LlamaForCausalLM sees"):
        assemble(replaying[0], silent, None)
