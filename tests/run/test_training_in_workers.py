"""Runs whose environments live elsewhere - in worker processes, or with a server - are the same run, to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


from test_loop import Trained, assert_the_same_run, trained  # noqa: E402

from heedful.envs.remote.environment import Remote  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.rollout import LockStep  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.storage import read_rollouts  # noqa: E402
from patience import PATIENCE  # noqa: E402
from served import serving  # noqa: E402


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig, seedling_folder: Path) -> TrainConfig:
    return replace(
        echo_run, model=str(seedling_folder), steps=2, evaluation=replace(echo_run.evaluation, times=1, search_tasks=16)
    )


@pytest.fixture(scope="module")
def alone(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(config, tmp_path_factory.mktemp("alone") / "run")


def test_a_run_with_worker_processes_has_the_bytes_of_one_without(
    config: TrainConfig, alone: Trained, tmp_path: Path
) -> None:
    isolated = replace(config, env_workers=2, env_timeout=PATIENCE, collect=LockStep(threads=2))
    assert_the_same_run(alone.folder.path, trained(isolated, tmp_path / "workers").folder.path)


def test_a_run_on_a_server_has_the_episodes_of_one_without(config: TrainConfig, alone: Trained, tmp_path: Path) -> None:
    with serving(Echo(instructions="brief")) as server:
        remote = replace(config, env=Remote(server.url, timeout=PATIENCE))
        there = trained(remote, tmp_path / "remote")
    for step in range(2):
        here = read_rollouts(alone.folder.rollouts(step)).groups
        assert here == read_rollouts(there.folder.rollouts(step)).groups
