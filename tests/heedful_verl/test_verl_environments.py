"""FrozenLake's smallest seedling in a real verl: eight steps with the filter and the diagnostics, episodes in windows.

One session for all tests, with one worker. Runs where verl is installed: make test-verl.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed here: make test-verl")
pytestmark = pytest.mark.verl

from cpu_session import composed, ray_and_queue, trainer_of  # noqa: E402

from conftest import ENVIRONMENT  # noqa: E402
from heedful.auditing import AuditSettings, open_log  # noqa: E402
from heedful.auditing.logs.files import rows_of  # noqa: E402
from heedful.auditing.logs.records import Faults  # noqa: E402
from heedful.auditing.steps import LoggedStep, steps_of  # noqa: E402
from heedful.boundary import to_json  # noqa: E402
from heedful.envs.common.tasks import TaskStream  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.seedlings.grow import load_seedling  # noqa: E402
from heedful.seedlings.recipe import nano  # noqa: E402
from heedful.storage import Rollouts, RunFolder, read_metrics, read_rollouts  # noqa: E402
from heedful_verl.tasks import task_rows, write_tasks  # noqa: E402

STEPS, PROMPTS, MEMBERS = 8, 4, 4
LAKE = FrozenLake(instructions="brief")


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and what verl logged after it."""

    folder: Path
    logged: list[dict[str, Any]]

    @property
    def record(self) -> RunFolder:
        return RunFolder(self.folder / "checkpoints" / "heedful")

    def rollouts(self) -> dict[int, Rollouts]:
        """Step -> the episodes of the record."""
        found = [read_rollouts(path) for path in sorted((self.record.path / "rollouts").glob("*.parquet"))]
        return {each.step: each for each in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("lake")
    _, _, model = load_seedling(nano(), LAKE, to_json(LAKE), Tags(), lambda *progress: None)
    shutil.copytree(str(model), folder / "model")
    write_tasks(folder / "train.parquet", task_rows(LAKE, TaskStream(LAKE, "train", 0).next(STEPS * PROMPTS)))
    held_out = [LAKE, Echo(instructions="brief")]
    for env in held_out:
        write_tasks(folder / f"{env.name}.parquet", task_rows(env, TaskStream(env, "val", 0).next(4)))
    config = composed(overrides(folder, [f"{folder}/{env.name}.parquet" for env in held_out]))
    logged: list[dict[str, Any]] = []
    trackers = SimpleNamespace(log=lambda data, step: logged.append({**data, "step": step}))
    with pytest.MonkeyPatch.context() as patch, ray_and_queue(config, ENVIRONMENT, 1):
        patch.setattr("verl.trainer.ppo.v1.trainer_base.Tracking", lambda **settings: trackers)
        trainer, manager = trainer_of(config)
        trainer.fit(manager)
    return Finished(folder, logged)


def overrides(folder: Path, held_out: list[str]) -> list[str]:
    return f"""
    data.train_files={folder}/train.parquet data.val_files=[{",".join(held_out)}] data.train_batch_size={PROMPTS}
    data.max_response_length=256 actor_rollout_ref.model.path={folder}/model actor_rollout_ref.rollout.n={MEMBERS}
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16
    actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16
    actor_rollout_ref.actor.optim.lr=1e-4 algorithm.adv_estimator=grpo trainer.n_gpus_per_node=1
    trainer.total_training_steps={STEPS} trainer.total_epochs=9 trainer.save_freq=-1 trainer.test_freq={STEPS}
    trainer.val_before_train=False trainer.default_local_dir={folder}/checkpoints
    trainer.rollout_data_dir={folder}/dumps
    trainer.v1.trainer_mode=heedful_sync hydra.searchpath=[pkg://heedful_verl.conf] +heedful=default
    heedful.filter.type=drop_constant heedful.filter.on=outcome heedful.play.context.turns=0
    heedful.play.tokens_per_turn=48 heedful.diagnostics.every=2 heedful.diagnostics.full_every=4
    """.split()


def dumped(run: Finished) -> dict[int, LoggedStep]:
    """Step -> verl's own dump, as the audit reads it."""
    log, faults = open_log(run.folder / "dumps", AuditSettings()), Faults()
    rows = (rows_of(file, faults, lambda more: None, log.reader.columns) for file in log.files.files)
    episodes = (episode for of_file in rows for episode in log.reader.episodes(of_file, faults))
    found = {step.number: step for step in steps_of(episodes, faults)}
    assert faults.count == 0
    return found


def test_the_record_holds_every_step_with_whole_groups(run: Finished) -> None:
    rollouts = run.rollouts()
    assert sorted(rollouts) == list(range(STEPS))
    for each in rollouts.values():
        assert [len(group.trajectories) for group in each.groups] == [MEMBERS] * PROMPTS
        assert each.verdicts is not None
        for group, verdict in zip(each.groups, each.verdicts, strict=True):
            assert verdict.kept == (len({member.outcome for member in group.trajectories}) > 1)
    assert {True, False} == {v.kept for each in rollouts.values() for v in each.verdicts or ()}


def test_the_episodes_are_those_of_the_environment(run: Finished) -> None:
    """Task, member and replies replay an episode: rewards, effects and endings come out again."""
    several = 0
    for each in run.rollouts().values():
        for group in each.groups:
            for told in group.trajectories:
                episode = LAKE.episode()
                shown = episode.start(LAKE.task(told.task.seed), told.member)
                for place, turn in enumerate(told.turns):
                    assert turn.reply.prompt.restarts == (place > 0)
                    assert (shown.opening if place else shown.text) in turn.reply.prompt.text
                    step = episode.step(turn.reply.text)
                    assert (dict(step.rewards), step.valid, step.state) == (dict(turn.rewards), turn.valid, turn.state)
                    shown = step.observation
                assert step.ending is None or step.ending == told.ending
                several += len(told.turns) > 1
    assert several > 10


def test_each_restart_of_a_window_is_a_row_of_verl_and_the_audit_joins_them(run: Finished) -> None:
    """verl's dump holds the kept groups, with the record's rewards, members and parts."""
    logs = dumped(run)
    for step, each in run.rollouts().items():
        assert each.verdicts is not None
        kept = [group for group, verdict in zip(each.groups, each.verdicts, strict=True) if verdict.kept]
        if not kept:
            continue  # nothing was trained, so verl dumped the whole batch
        found, expected = (
            Counter(
                tuple((m.member, len(m.turns), round(m.reward or 0.0, 4)) for m in group.trajectories)
                for group in groups
            )
            for groups in (logs[step + 1].groups, kept)
        )
        assert found == expected


def test_validation_shows_success_by_environment(run: Finished) -> None:
    last = next(each for each in reversed(run.logged) if "val-core/frozen_lake/acc/mean@1" in each)
    for name in ("frozen_lake", "echo"):
        assert 0 <= last[f"val-core/{name}/acc/mean@1"] <= 1
        assert {f"val-aux/{name}/{measure}/mean@1" for measure in ("valid", "closed", "cut", "turns")} <= last.keys()


def test_the_diagnostics_are_measured_at_their_steps_and_reach_verls_trackers(run: Finished) -> None:
    steps = {line.step: line.metrics for line in read_metrics(run.record.metrics)}
    measured = {
        step: metrics["information/first_turn/mi"].value
        for step, metrics in steps.items()
        if metrics.get("information/first_turn/mi")
    }
    assert [step for step, value in measured.items() if value is not None] == [0, 2, 4, 6]
    for line in run.logged:
        if "success/rate" in line:
            assert line["success/rate"] == pytest.approx(steps[line["step"] - 1]["success/rate"].value)
    assert any("success/rate" in line for line in run.logged)
    assert all(metrics["format/valid_rate"].value is not None for metrics in steps.values())


def test_the_loss_reads_what_was_sampled(run: Finished) -> None:
    """verl compares the sampler's probabilities with the actor's: right after a weight sync they are the same."""
    differences = [
        line["training/rollout_probs_diff_max"] for line in run.logged if "training/rollout_probs_diff_max" in line
    ]
    assert len(differences) >= STEPS - 2
    assert max(differences) < 1e-4
