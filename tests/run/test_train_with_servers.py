"""Whole runs over a fake server: the weights go out before every step, and a dead server costs time alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import UNMEASURED, same, trained  # noqa: E402

from fake_server import FakeServer, Fault, ModelBrain, fake_server  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.algorithms.table import ALGORITHMS  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Local, Vllm  # noqa: E402
from heedful.policies.servers import Limits, ServerUnreachable  # noqa: E402
from heedful.policies.vllm import WrongWeights, source  # noqa: E402
from heedful.rollout import Asynchronous  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import EvaluationConfig, TrainConfig  # noqa: E402


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "Limits", lambda most, timeout, patience: Limits(most, timeout, patience, pause=0.01))


@pytest.fixture
def server(seedling_folder: Path) -> Iterator[FakeServer]:
    with fake_server(ModelBrain(load_model(str(seedling_folder), torch.device("cpu"))[0])) as served:
        yield served


@pytest.fixture
def config(echo_run: TrainConfig, server: FakeServer) -> TrainConfig:
    """Two steps on Echo with replies of the fake server."""
    return replace(
        echo_run,
        policy=Vllm((server.url,), patience=3.0, connections=8),
        steps=2,
        groups=3,
        group_size=3,
        filter=KeepAll(),
        sampling=replace(echo_run.sampling, tokens_per_turn=10),
        evaluation=EvaluationConfig(tasks=4, samples=1, times=2, search_tasks=0),
        diagnostics=UNMEASURED,
        checkpoint_every=10,
    )


def test_a_run_over_a_server_hands_the_weights_over_before_each_step_and_trains_on_its_replies(
    config: TrainConfig, server: FakeServer, tmp_path: Path
) -> None:
    run = trained(config, tmp_path / "run")
    assert server.paths().count("/collective_rpc") == 3
    assert len({body["cache_salt"] for body in server.bodies() if "cache_salt" in body}) == 3
    assert max(run.watch.values["sampler/probe_error"]) < 1e-4
    assert max(run.watch.values["policy/logprob_error"]) < 1e-3
    assert run.watch.values["policy/importance_truncated"] == [0.0, 0.0]
    assert max(run.watch.values["policy/importance_kl"]) < 1e-7


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_on_replies_of_a_server(config: TrainConfig, tmp_path: Path, name: str) -> None:
    one = replace(config, evaluation=EvaluationConfig(times=0), algorithm=ALGORITHMS[name](), steps=1, groups=2)
    run = trained(one, tmp_path / "run")
    assert run.watch.values["policy/logprob_error"][0] < 1e-3
    assert run.watch.values["policy/gradient_norm"][0] is not None


def test_lock_step_and_asynchronous_collection_train_on_the_same_episodes(config: TrainConfig, tmp_path: Path) -> None:
    unevaluated = replace(config, evaluation=EvaluationConfig(times=0), steps=1)
    lock_step = trained(unevaluated, tmp_path / "lock_step")
    asynchronous = trained(replace(unevaluated, collect=Asynchronous(threads=4)), tmp_path / "async")
    assert same(lock_step.weights, asynchronous.weights)


def test_a_server_that_stays_away_ends_the_run_with_a_sentence_and_all_steps_saved(
    config: TrainConfig, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, evaluation=EvaluationConfig(times=0))
    straight = trained(config, tmp_path / "straight")
    server.restart()
    calls = iter(["step 0", "step 1"])
    play = type(config.collect).__call__

    def collect(collector: object, policy: object, request: object) -> object:
        if next(calls) == "step 1":
            server.faults += [Fault("refuse")] * 100_000
        return play(collector, policy, request)

    monkeypatch.setattr(type(config.collect), "__call__", collect)
    failing = replace(config, policy=replace(config.policy, patience=0.2))
    with pytest.raises(ServerUnreachable, match=r"patience is 0\.2 s"):
        trained(failing, tmp_path / "run")
    server.faults.clear()
    monkeypatch.undo()
    (saved,) = checkpoint.checkpoints(tmp_path / "run" / "checkpoints")
    assert saved.version == 1
    rest = trained(config, tmp_path / "rest", saved)
    assert same(rest.weights, straight.weights), "as if nothing had happened"


def test_a_server_that_keeps_its_first_weights_stops_the_run_after_the_first_update(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelBrain, "load", lambda self, folder: None)
    with pytest.raises(WrongWeights, match="does not hold the learner's weights"):
        trained(replace(config, evaluation=EvaluationConfig(times=0)), tmp_path / "run")
    (saved,) = checkpoint.checkpoints(tmp_path / "run" / "checkpoints")
    assert saved.version == 1


def test_the_words_typed_choose_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    both = "train echo --sampler vllm --sampler.url http://a:1,http://b:2 --sampler.sync broadcast --print-config"
    assert cli.run(both.split()) == 0
    typed = capsys.readouterr().out
    assert cli.run(both.replace("--sampler", "--policy").split()) == 0
    assert capsys.readouterr().out == typed
    assert '"http://b:2"' in typed
    assert cli.run(["train", "echo", "--sampler", "vllm", "--sampling.precision", "double"]) == 2
    assert "--sampler vllm samples each conversation by itself" in capsys.readouterr().err


def test_servers_are_corrected_by_default_and_the_local_sampler_is_not(config: TrainConfig) -> None:
    assert config.learning.importance_cap == 2.0
    assert replace(config, algorithm=replace(config.algorithm, importance_cap=5.0)).learning.importance_cap == 5.0
    assert replace(config, policy=Local()).learning.importance_cap is None
