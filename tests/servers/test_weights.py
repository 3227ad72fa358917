"""Weights on their way to a real vLLM server, what the measurement catches, whole runs, and a server that is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learners import changed, largest_error, questions  # noqa: E402
from real_vllm import RealVllm  # noqa: E402

from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Local, Sampling, Vllm, Weights  # noqa: E402
from heedful.policies.servers import Client, Server  # noqa: E402
from heedful.policies.servers.dialects import Call  # noqa: E402
from heedful.policies.servers.examination import ServerFacts  # noqa: E402
from heedful.policies.servers.exchange import exchange  # noqa: E402
from heedful.policies.vllm import WrongWeights  # noqa: E402
from heedful.policies.vllm.source import OpenVllm  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.train import train  # noqa: E402
from heedful.training.lora import Adapters  # noqa: E402
from heedful.training.settings import LoraConfig, OptimizerConfig  # noqa: E402

SAMPLING = Sampling(tokens_per_turn=16)


@pytest.fixture(scope="module")
def loaded(seedling_folder: Path) -> Any:
    model, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
    return model, Renderer(tokenizer)


@contextmanager
def opened(vllm: RealVllm, **fields: Any) -> Iterator[Any]:
    """Patience is short: in these tests the server is there, or has ended for good."""
    with Vllm((vllm.url,), **({"tolerance": 1e-4, "patience": 60.0} | fields)).open() as source:
        yield source


def error_of(source: Any, loaded: Any, learner: Any) -> float:
    """Of replies after a push."""
    asked = questions(8)
    replies = source.policy(loaded[1], SAMPLING, seed=4).respond(asked)
    return largest_error(learner, loaded[1], asked, replies, 1.0)


@pytest.mark.parametrize("sync", ["folder", "broadcast"])
def test_the_server_samples_from_the_newest_weights_after_each_push(vllm: RealVllm, loaded: Any, sync: str) -> None:
    with opened(vllm, sync=sync) as source:
        for version in range(3):
            learner = changed(loaded[0], version)
            (metric,) = source.weights_changed(Weights(learner, version))
            assert metric.value < 1e-4
            assert error_of(source, loaded, learner) < 1e-4


def test_a_broadcast_to_a_server_that_has_forgotten_the_group_begins_with_a_new_one(
    vllm: RealVllm, loaded: Any
) -> None:
    with opened(vllm, sync="broadcast", timeout=30.0) as source, opened(vllm, sync="broadcast") as other:
        source.weights_changed(Weights(loaded[0], 0))
        other.weights_changed(Weights(loaded[0], 0))  # the server's workers are now in the other group
        learner = changed(loaded[0])
        source.weights_changed(Weights(learner, 1))
        assert error_of(source, loaded, learner) < 1e-4


def test_a_tied_output_layer_that_keeps_its_old_weights_is_caught(
    vllm: RealVllm, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenVllm, "_met", lambda self, server, weights: ServerFacts("", "", {"policy": 1024}))
    with opened(vllm) as source, pytest.raises(WrongWeights, match="a tied output layer"):
        source.weights_changed(Weights(changed(loaded[0], 8), 1))  # as stock vLLM reloads on a CPU


def without_reload(client: Client, server: Server, call: Call, timeout: float | None = None) -> Any:
    """`Client.tell`, but workers are not told to load anything."""
    return None if call.path == "/collective_rpc" else exchange(server.http, call, timeout or client.limits.timeout)


def test_old_weights_under_a_new_version_are_caught(
    vllm: RealVllm, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "tell", without_reload)
    with opened(vllm) as source, pytest.raises(WrongWeights, match="does not hold the learner's weights"):
        source.weights_changed(Weights(changed(loaded[0], 9), 1))


def test_another_model_is_caught(vllm: RealVllm, loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "tell", without_reload)
    with opened(vllm) as source, pytest.raises(WrongWeights, match="it serves another model"):
        source.weights_changed(Weights(changed(loaded[0], 10, by=3.0), 1))


def test_another_temperature_is_caught(vllm: RealVllm, loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from heedful.policies.servers import dialects

    right = dialects.Vllm.score

    def wrong(self: Any, ids: Any, model: str, temperature: float = 1.0, salt: str = "") -> Any:
        return right(self, ids, model, 1.0, salt)  # what a server does that ignores the temperature

    monkeypatch.setattr(dialects.Vllm, "score", wrong)
    with opened(vllm) as source, pytest.raises(WrongWeights, match="without the temperature"):
        source.weights_changed(Weights(loaded[0], 1))


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig) -> TrainConfig:
    """A run that learns: 14 steps of 128 episodes."""
    return replace(
        echo_run,
        steps=14,
        groups=16,
        group_size=8,
        optimizer=OptimizerConfig(lr=1e-3, betas=(0.9, 0.99), warmup_steps=2),
        evaluation=EvaluationConfig(times=0),
        diagnostics=DiagnosticsConfig(enabled=False),
        keep_rollouts="none",
        checkpoint_every=100,
    )


def curve(config: TrainConfig, out: Path) -> list[float]:
    """Success in the first, the middle and the last four steps: 512 episodes each, a deviation of .022."""
    run = train(config, out=out, show=False)
    rates = [float(metric.value) for _, metric in run.series("success/rate")]  # type: ignore[arg-type]
    return [fmean(rates[start : start + 4]) for start in (0, 5, 10)]


def test_whole_runs_learn_as_they_do_with_the_local_sampler(
    vllm: RealVllm, config: TrainConfig, tmp_path: Path
) -> None:
    seeds = range(3)
    served = [curve(replace(config, seed=s, policy=Vllm((vllm.url,))), tmp_path / f"served-{s}") for s in seeds]
    local = [curve(replace(config, seed=s, policy=Local()), tmp_path / f"local-{s}") for s in seeds]
    print("success through the server", served, "and locally", local)
    for place in range(3):
        ours, theirs = [[one[place] for one in each] for each in (served, local)]
        noise = ((stdev(ours) ** 2 + stdev(theirs) ** 2) / len(seeds)) ** 0.5
        assert abs(fmean(ours) - fmean(theirs)) < 4 * max(noise, 0.022 * (2 / len(seeds)) ** 0.5), (served, local)
    assert fmean(one[-1] for one in served) > fmean(one[0] for one in served) + 0.1, (served, local)


def restart(vllm: RealVllm) -> None:
    """Kill every process of the server with signal 9, and start it again with its first weights."""
    assert vllm.process is not None
    os.killpg(vllm.process.pid, signal.SIGKILL)
    vllm.process.wait(60)
    vllm.start()


def test_a_server_that_is_killed_in_mid_step_costs_time_and_nothing_else(
    vllm: RealVllm, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = Vllm((vllm.url,), patience=1200.0)
    short = replace(config, steps=3, groups=6, group_size=4, policy=sampler, keep_rollouts="all")
    straight = train(short, out=tmp_path / "straight", show=False)
    asked = threading.Semaphore(short.groups * short.group_size + short.groups)  # in the middle of the second step
    exchange, killed = Client.ask, threading.Event()
    # Adapters, which the next test needs, are a matter of flags. Here they change nothing.
    vllm.flags = (*vllm.flags, "--enable-lora", "--max-lora-rank", "8")
    vllm.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"

    def ask(self: Client, *given: Any, **named: Any) -> Any:
        of_a_conversation = named.get("only") is None  # and not a probe of the weights, or a question about the server
        if of_a_conversation and not asked.acquire(blocking=False) and not killed.is_set():
            killed.set()
            threading.Thread(target=restart, args=(vllm,), daemon=True).start()
        return exchange(self, *given, **named)

    monkeypatch.setattr(Client, "ask", ask)
    run = train(short, out=tmp_path / "run", show=False)
    assert killed.is_set()
    for step in range(3):
        there, here = (
            [
                [turn.reply.ids for turn in trajectory.turns]
                for group in each.rollouts(step).groups
                for trajectory in group.trajectories
            ]
            for each in (straight, run)
        )
        assert there == here, f"the episodes of step {step}"


def test_adapters_are_loaded_under_a_name_of_their_own_and_lost_ones_are_loaded_again(
    vllm: RealVllm, loaded: Any, seedling_folder: Path
) -> None:
    pytest.importorskip("peft")
    if "--enable-lora" not in vllm.flags:
        pytest.skip("the server was started without adapters; run the whole file")
    learner, _ = load_model(str(seedling_folder), torch.device("cpu"))
    adapters = Adapters(learner, LoraConfig(rank=4), seed=0)
    generator = torch.Generator().manual_seed(0)
    with opened(vllm) as source:
        source.weights_changed(Weights(loaded[0]))  # an adapter is added to the weights that the server started with
    with opened(vllm, sync="adapters") as source:
        for version in range(3):
            with torch.no_grad():
                for name, parameter in learner.named_parameters():
                    if ".lora_B." in name:
                        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
            (metric,) = source.weights_changed(Weights(learner, version, lambda: adapters))
            assert metric.value < 1e-4
            assert error_of(source, loaded, learner) < 1e-4
        (server,) = source._client.servers
        unload(source._client, server, source._label)  # as after a restart
        assert error_of(source, loaded, learner) < 1e-4


def unload(client: Client, server: Server, name: str) -> None:
    from heedful.policies.servers.dialects import Call

    client.tell(server, Call("/v1/unload_lora_adapter", {"lora_name": name}, plain=True))
