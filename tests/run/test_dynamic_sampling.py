"""Dynamic sampling, overlong shaping, task memory and guard within a run: what is stored, resumed, and learned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import (  # noqa: E402
    NO_EVALUATION,
    UNMEASURED,
    Trained,
    same,
    trained,
    without_time,
)

from heedful.algorithms.table import Dapo, Grpo  # noqa: E402
from heedful.filters import KeepAll, Shrunken, SoftWeight, TopK  # noqa: E402
from heedful.measuring.diagnostician import DiagnosticsConfig  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.run.selection import Coverage  # noqa: E402
from heedful.storage import read_rollouts  # noqa: E402
from heedful.training.settings import OptimizerConfig  # noqa: E402

DAPO: dict[str, Any] = {"algorithm": Dapo(), "filter": KeepAll(), "groups": 6, "evaluation": NO_EVALUATION}
POOL: dict[str, Any] = {
    "tasks": 10,
    "coverage": Coverage(rate=0.2, patience=1),
    "filter": Shrunken(like=TopK(k=2), discount=0.8),
    "evaluation": NO_EVALUATION,
    "diagnostics": UNMEASURED,
}


@pytest.fixture(scope="module")
def dapo_run(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(replace(echo_run, **DAPO), tmp_path_factory.mktemp("dapo") / "run")


def test_everything_collected_is_stored_and_counted(dapo_run: Trained) -> None:
    values = dapo_run.watch.values
    assert max(values["filter/draws"]) > 1
    assert set(values["filter/refill"]) <= {"enough", "bound"}
    assert "enough" in values["filter/refill"]
    for step in range(6):
        stored = read_rollouts(dapo_run.folder.rollouts(step))
        assert stored.verdicts is not None
        assert len(stored.groups) == values["filter/collected_groups"][step]
        assert len({group.task.id for group in stored.groups}) == len(stored.groups), "a task twice in one step"
        reasons = [verdict.reason for verdict in stored.verdicts]
        assert set(reasons) <= {"kept", "constant", "surplus"}
        assert reasons.count("kept") == values["filter/kept_groups"][step]
        assert (values["filter/refill"][step] == "enough") == (reasons.count("kept") == 6)
        for group, verdict in zip(stored.groups, stored.verdicts, strict=True):
            varies = len({trajectory.outcome for trajectory in group.trajectories}) > 1
            assert varies == (verdict.reason != "constant")


def test_no_constant_group_is_trained_on_under_keep_all(dapo_run: Trained) -> None:
    assert dapo_run.watch.values["filter/kept_without_signal"] == [0.0] * 6


def test_the_measurements_rest_on_the_first_draw_however_much_was_collected(
    dapo_run: Trained, echo_run: TrainConfig, tmp_path: Path
) -> None:
    read = [row["metrics"]["retrieval/first_turn/chance"] for row in without_time(dapo_run.folder.path)[::4]]
    assert [reading["value"] for reading in read] == [1 / 6] * 2
    plain = trained(replace(echo_run, **{**DAPO, "algorithm": Grpo()}, steps=1), tmp_path / "plain")
    names = ("retrieval/first_turn/accuracy", "information/first_turn/mi", "text/distinct_thoughts")
    first, same_draw = (without_time(run.folder.path)[0]["metrics"] for run in (dapo_run, plain))
    for name in names[:2]:
        assert first[name] == same_draw[name]


def test_overlong_replies_cost_reward_and_nothing_else(echo_run: TrainConfig, tmp_path: Path) -> None:
    shaped = Grpo(overlong_buffer=1.0, overlong_penalty=0.5)
    one = replace(echo_run, steps=1, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    run = trained(replace(one, algorithm=shaped), tmp_path / "run")
    plain = trained(one, tmp_path / "plain").watch.values
    values = run.watch.values
    assert values["reward/overlong"][0] < 0
    assert values["success/rate"][0] == plain["success/rate"][0]
    assert values["filter/kept_groups"][0] == plain["filter/kept_groups"][0]
    assert values["reward/mean"][0] == pytest.approx(plain["reward/mean"][0] + values["reward/overlong"][0])
    for group in read_rollouts(run.folder.rollouts(0)).groups:
        for turn in (turn for trajectory in group.trajectories for turn in trajectory.turns):
            over = 1 if turn.reply.cut else len(turn.reply.ids) / 24
            assert turn.rewards["overlong"] == pytest.approx(-0.5 * over)


def test_a_pool_remembers_its_tasks_and_says_so(echo_run: TrainConfig, tmp_path: Path) -> None:
    run = trained(replace(echo_run, **POOL), tmp_path / "run")
    table = json.loads(run.folder.tasks.read_text())
    assert sum(row["visits"] for row in table) == 6 * 4
    assert len(table) <= 10
    stored = [read_rollouts(run.folder.rollouts(step)) for step in range(6)]
    for row in table:
        seen = [
            (step, group, verdict)
            for step, rollouts in enumerate(stored)
            for group, verdict in zip(rollouts.groups, rollouts.verdicts or (), strict=True)
            if group.task.id == row["task"]
        ]
        assert row["visits"] == len(seen)
        assert row["successes"] == sum(bool(each.success) for _, group, _ in seen for each in group.trajectories)
        assert row["last_trained"] == max((step for step, _, verdict in seen if verdict.kept), default=None)
    values = run.watch.values
    assert values["filter/longest_skip"][-1] == max(row["skips"] for row in table)
    assert values["filter/starved_tasks"][-1] == sum(row["skips"] >= 1 for row in table)
    assert sum(values["filter/readmitted"]) > 0


@pytest.mark.parametrize(
    "changes",
    [{**DAPO, "diagnostics": UNMEASURED}, POOL, {**POOL, "algorithm": Dapo(), "filter": SoftWeight()}],
    ids=["refills of fresh tasks", "a pool, its memory and the guard", "all of it, softly weighted"],
)
def test_a_run_with_a_past_goes_on_from_a_checkpoint_as_if_nothing_had_been(
    echo_run: TrainConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = replace(echo_run, **{**changes, "steps": 3})
    whole = trained(config, tmp_path / "whole")
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    assert middle.version == 2
    rest = trained(config, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert without_time(whole.folder.path)[2:] == without_time(rest.folder.path)
    ends = [checkpoint.checkpoints(run.folder.path / "checkpoints")[-1].state() for run in (whole, rest)]
    assert ends[0] == ends[1]
    if config.tasks is not None:
        assert whole.folder.tasks.read_bytes() == rest.folder.tasks.read_bytes()


def test_soft_weights_change_the_update_and_a_power_of_zero_is_drop_constant(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    config = replace(echo_run, steps=1, groups=8, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    weights = [
        trained(replace(config, filter=filter), tmp_path / str(number)).weights
        for number, filter in enumerate([SoftWeight(), SoftWeight(power=0.0), TopK(k=8)])
    ]
    assert same(weights[1], weights[2])
    assert not same(weights[0], weights[1])


@pytest.mark.proof
def test_dapo_learns_echo(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        echo_run,
        algorithm=Dapo(sampling_batches=2),
        filter=KeepAll(),
        steps=12,
        groups=16,
        group_size=12,
        optimizer=OptimizerConfig(lr=1e-3, betas=(0.9, 0.99), warmup_steps=2),
        evaluation=NO_EVALUATION,
        diagnostics=DiagnosticsConfig(enabled=False),
        checkpoint_every=100,
    )
    values = trained(config, tmp_path / "run").watch.values
    rates = values["success/rate"]
    assert fmean(rates[-4:]) > fmean(rates[:4]) + 0.1, rates
