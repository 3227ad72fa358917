"""Policies over servers: what is asked, what is taken, and that no failure in between changes an episode."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.families.models import built  # noqa: E402
from fake_server import GENERATE, FakeServer, Fault, ModelBrain, fake_server  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Sampling, Vllm, Weights  # noqa: E402
from heedful.policies.servers import Limits, ServerUnreachable  # noqa: E402
from heedful.policies.vllm import WrongWeights  # noqa: E402
from heedful.policies.vllm import source as source_module  # noqa: E402
from heedful.protocols import AnswersSubsets, ContinuousBatching  # noqa: E402
from heedful.rollout import Asynchronous, Context, LockStep, Request  # noqa: E402
from heedful.types import Conversation, Group, Message  # noqa: E402
from patience import PATIENCE, comes  # noqa: E402

SAMPLING = Sampling(tokens_per_turn=8, noise="conversation")
ENV = Echo(instructions="brief")
TASKS = [ENV.task(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def loaded(seedling_folder: Path) -> Any:
    model, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
    return model, Renderer(tokenizer)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source_module, "Limits", lambda most, timeout, patience: Limits(most, timeout, patience, pause=0.01)
    )


@contextmanager
def served(loaded: Any, count: int = 1) -> Iterator[list[FakeServer]]:
    """Servers that start with the model of the tests."""
    with fake_server(ModelBrain(loaded[0])) as first:
        if count == 1:
            yield [first]
            return
        with served(loaded, count - 1) as others:
            yield [first, *others]


@contextmanager
def opened(servers: list[FakeServer], model: Any, version: int = 0, **fields: Any) -> Iterator[Any]:
    """The source over these servers, with weights handed over."""
    fields = {"timeout": 60.0, "patience": 60.0, "connections": 4} | fields
    with Vllm(tuple(server.url for server in servers), **fields).open(note=lambda sentence: None) as source:
        source.metrics = source.weights_changed(Weights(model, version))
        yield source


def changed(model: Any, by: float = 0.02) -> Any:
    """A copy with noise on all weights."""
    import copy

    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(by * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return other


def episodes(source: Any, renderer: Any, collect: Any = LockStep(), context: Context = Context()) -> list[Group]:  # noqa: B008
    policy = source.policy(renderer, SAMPLING, seed=3)
    return collect(policy, Request(ENV.episode, TASKS, 2, ENV.turns, context))


def prefer(server: FakeServer, source: Any) -> None:
    """The first request goes to this server, however quickly they answer: the others count one as open."""
    for each in source._client.servers:
        each.open += each.url != server.url


def test_a_reply_is_what_the_server_sampled_for_the_conversations_own_seed(loaded: Any) -> None:
    model, renderer = loaded
    with served(loaded) as [server], opened([server], model) as source:
        policy = source.policy(renderer, SAMPLING, seed=3)
        (reply,) = policy.respond([Conversation("a/0", (Message("user", "Echo this: b"),), turn=2)])
        body = server.bodies()[-1]
        ids, logprobs = server.brain(body["token_ids"], body["sampling_params"])
        assert (list(reply.ids), list(reply.logprobs)) == (ids, pytest.approx(logprobs))
        assert reply.entropies == ()
        assert body["model"] == "policy"
        assert body["cache_salt"] == server.version
        assert set(body["sampling_params"]["stop_token_ids"]) == renderer.stop_ids
        assert (policy.version, policy.temperature, policy.parallel) == (0, 1.0, 4)
        assert isinstance(policy, AnswersSubsets)
        assert not isinstance(policy, ContinuousBatching)
        greedy = source.policy(renderer, replace(SAMPLING, greedy=True, temperature=0.5), seed=3)
        assert greedy.temperature == 1.0, "servers report the likeliest tokens at temperature 1"


def test_every_collector_and_any_number_of_servers_play_the_same_episodes(loaded: Any) -> None:
    model, renderer = loaded
    with served(loaded, 2) as servers:
        with opened(servers[:1], model) as source:
            alone = episodes(source, renderer)
            at_once = episodes(source, renderer, Asynchronous(threads=4))
        with opened(servers, model) as source:
            prefer(servers[1], source)
            shared = episodes(source, renderer, Asynchronous(threads=4))
    assert alone == at_once == shared
    assert len(servers[1].bodies()) > 4, "the second server has answered, too"


def test_windows_of_history_are_read_by_the_server_as_they_are(loaded: Any) -> None:
    model, renderer = loaded
    with served(loaded) as [server], opened([server], model) as source:
        groups = episodes(source, renderer, context=Context(turns=0))
        asked = {tuple(body["token_ids"]) for body in server.bodies()}
        for group in groups:
            for trajectory in group.trajectories:
                for turn in range(len(trajectory.turns)):
                    assert trajectory.context_ids(turn) in asked


def test_a_context_that_fills_the_window_gets_an_empty_cut_reply_without_a_request(loaded: Any) -> None:
    model, renderer = loaded
    with fake_server(ModelBrain(model), window=70) as server, opened([server], model) as source:
        policy = source.policy(renderer, SAMPLING, seed=3)
        before = len(server.bodies())
        replies = policy.respond([Conversation("a/0", (Message("user", "b " * 200),))])
        assert (replies[0].ids, replies[0].cut) == ((), True)
        assert len(server.bodies()) == before


@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_in_between_the_episodes_are_those_of_a_run_without_failures(loaded: Any, seed: int) -> None:
    model, renderer = loaded
    rng = random.Random(seed)
    trained = changed(model)
    kinds = [
        *(Fault("status", status=status) for status in (429, 500, 502, 503, 504)),
        *(Fault(kind) for kind in ("refuse", "cut", "garbage", "restart")),
        *(Fault("mute"), Fault("version", body="another-7"), Fault("span", body="another-8")),
        Fault("status", status=500, body="EngineCore encountered an issue"),
    ]
    collect = rng.choice([LockStep(), Asynchronous(threads=4)])
    with served(loaded, rng.choice([1, 2])) as servers, opened(servers, trained, version=3) as source:
        expected = episodes(source, renderer)
        turns = sum(len(trajectory.turns) for group in expected for trajectory in group.trajectories)
        with opened(servers, trained, version=4, timeout=8.0) as failing:
            pushes = sum(len(server.bodies()) for server in servers)
            for server in servers:
                # At most two of a kind in a row for one request: more of them rightly end the run.
                server.faults += rng.sample(kinds, 6)
            found = episodes(failing, renderer, collect)
            assert sum(len(server.bodies()) for server in servers) - pushes > turns, "something has failed"
        assert [replace_version(group, 3) for group in found] == expected


def test_a_reply_into_which_a_restart_falls_is_sampled_again(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, renderer = loaded
    with served(loaded) as [server], opened([server], changed(model), version=3) as source:
        expected = episodes(source, renderer)
        sample, restarts = ModelBrain.__call__, [server.restart]

        def interrupted(brain: ModelBrain, *asked: Any) -> Any:
            if restarts:
                restarts.pop()()
            return sample(brain, *asked)

        monkeypatch.setattr(ModelBrain, "__call__", interrupted)
        assert episodes(source, renderer) == expected
        assert source._client.repeats["stale"] >= 1


def replace_version(group: Group, version: int) -> Group:
    return replace(group, trajectories=tuple(replace(each, policy_version=version) for each in group.trajectories))


def test_a_run_begins_with_a_push_of_everything_and_measures_it(loaded: Any) -> None:
    model, _ = loaded
    trained = changed(model)
    with served(loaded) as [server], opened([server], trained, version=5) as source:
        (metric,) = source.metrics
        assert metric.name == "sampler/probe_error"
        assert metric.value < 1e-5
        assert metric.n == 4 * 64
        assert server.version.endswith("-5")
        # The first request asks whether the endpoint is switched on.
        order = [path for path in server.paths() if path in ("/collective_rpc", "/update_weight_version", GENERATE)]
        assert order == [GENERATE, "/collective_rpc", "/update_weight_version", *[GENERATE] * 4]
        assert torch.equal(server.brain.model.lm_head.weight, trained.lm_head.weight)


def test_the_folder_of_a_version_is_deleted_when_the_next_one_is_written_and_at_the_end(
    loaded: Any, tmp_path: Path
) -> None:
    with served(loaded) as [server], opened([server], loaded[0], folder=str(tmp_path)) as source:
        (first,) = tmp_path.iterdir()
        source.weights_changed(Weights(loaded[0], 1))
        (second,) = tmp_path.iterdir()
        assert first.name.endswith("-0")
        assert second.name.endswith("-1")
    assert not list(tmp_path.iterdir())


def test_a_server_with_old_weights_is_caught_by_measurement(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelBrain, "load", lambda self, folder: None)  # it answers 200 and loads nothing
    caught = pytest.raises(WrongWeights, match="does not hold the learner's weights")
    with served(loaded) as [server], caught, opened([server], changed(loaded[0])):
        pass


def test_a_server_that_ignores_the_temperature_is_caught_by_measurement(loaded: Any) -> None:
    with served(loaded) as [server]:
        server.brain.raw_logprobs = True
        with pytest.raises(WrongWeights, match="--logprobs-mode processed_logprobs"), opened([server], loaded[0]):
            pass


def info(**model_config: str) -> dict[str, Any]:
    return {"info": {"model_config": {"dtype": "torch.float32"} | model_config}}


@pytest.mark.parametrize(
    ("started", "sync", "sentence"),
    [
        (info(dtype="torch.bfloat16"), "folder", "--dtype float32"),
        (info(logprobs_mode="raw_logprobs"), "folder", "--logprobs-mode processed"),
        ({"dev": False}, "folder", "VLLM_SERVER_DEV_MODE=1"),
        ({}, "broadcast", "--weight-transfer-config"),
        ({"listed": {}}, "folder", "window of at least 8 tokens, found no model"),
        ({"listed": {"policy": 1}}, "folder", "window of at least 8 tokens, found one of 1"),
    ],
)
def test_a_server_that_was_started_otherwise_is_refused_with_what_it_lacks(
    loaded: Any, started: dict[str, Any], sync: str, sentence: str
) -> None:
    with served(loaded) as [server]:
        vars(server).update(started)
        with pytest.raises(ValueError, match=sentence), opened([server], loaded[0], sync=sync):
            pass


@pytest.mark.parametrize("window", [-4, True])
def test_a_window_that_is_no_size_counts_as_not_told(loaded: Any, window: Any) -> None:
    with served(loaded) as [server]:
        server.listed = {"policy": window}
        with opened([server], loaded[0]) as source:
            assert source.metrics


def test_a_push_that_fails_is_repeated_whole_once(loaded: Any) -> None:
    with served(loaded) as [server]:
        server.faults += [Fault("status", "/update_weight_version", status=500)]
        with opened([server], loaded[0]):
            assert server.paths().count("/collective_rpc") == 2
        server.faults += [Fault("status", "/collective_rpc", status=500, body="out of memory")] * 2
        with pytest.raises(ServerUnreachable, match="out of memory"), opened([server], loaded[0]):
            pass
        assert not server.bodies()[8:], "nothing is sampled or scored with half a push"


def test_a_server_that_fails_its_push_is_left_out_until_the_next_one(loaded: Any) -> None:
    model, renderer = loaded
    with served(loaded, 2) as servers, opened(servers, model) as source:
        expected = episodes(source, renderer)
        servers[1].faults += [Fault("refuse", "/collective_rpc")] * 99
        source.weights_changed(Weights(model, 1))
        servers[1].faults.clear()
        before = len(servers[1].bodies())
        assert [replace_version(group, 0) for group in episodes(source, renderer)] == expected
        assert len(servers[1].bodies()) == before
        source.weights_changed(Weights(model, 2))
        prefer(servers[1], source)
        episodes(source, renderer)
        assert len(servers[1].bodies()) > before + 4, "more than its four probes"


def test_where_all_servers_fail_the_first_one_is_named_whichever_was_the_first_to_fail(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(loaded, 2) as servers, opened(servers, loaded[0]) as source:

        def push(server: Any) -> None:
            assert server.url == servers[1].url or comes(lambda: source._client.servers[1].lost)
            raise ServerUnreachable(f"{server.url} is away")

        monkeypatch.setattr(source, "_push", push)
        with pytest.raises(ServerUnreachable, match=f"{servers[0].url} is away"):
            source.weights_changed(Weights(loaded[0], 1))


def test_a_server_that_names_no_version_is_not_taken_for_a_shared_one(loaded: Any) -> None:
    model, renderer = loaded
    with served(loaded) as [server], opened([server], model) as source:
        server.faults += [Fault("version", body="")] * 100
        with pytest.raises(ServerUnreachable, match=r"`weight_versions`\) with a reply, found none") as caught:
            source.policy(renderer, SAMPLING, seed=3).respond([Conversation("a/0", (Message("user", "b"),))])
        assert "share the server" not in str(caught.value)


def test_what_a_server_cannot_do_is_refused() -> None:
    assert Vllm().sampling(Sampling()).noise == "conversation"
    for sampling in (Sampling(noise="batch"), Sampling(precision="double")):
        with pytest.raises(ValueError, match="--sampler vllm samples each conversation by itself"):
            Vllm().sampling(sampling)
    for url in ((), ("file:///tmp/weights",), ("http://a", "http://a/"), ("http://a?key=x",)):
        with pytest.raises(ValueError, match=r"^Expected the URL of "):
            Vllm(url)


def test_adapters_have_a_name_per_version_and_are_loaded_again_when_they_are_lost(
    loaded: Any, seedling_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    from heedful.training.lora import Adapters
    from heedful.training.settings import LoraConfig

    learner, _ = load_model(str(seedling_folder), torch.device("cpu"))
    adapters = Adapters(learner, LoraConfig(rank=2), seed=0)  # they add nothing before the first update
    with served(loaded) as [server]:
        url = (server.url,)
        with Vllm(url, sync="adapters", patience=5.0).open(note=lambda sentence: None) as source:
            for version in (0, 1):
                source.weights_changed(Weights(learner, version, lambda: adapters))
                (name,) = server.adapters
                assert name.endswith(f"-{version}")
                written = {file.name for file in Path(server.adapters[name]).iterdir()}
                assert written == {"adapter_config.json", "adapter_model.safetensors"}
            assert "/collective_rpc" not in server.paths()
            before = episodes(source, loaded[1])
            assert {body["model"] for body in server.bodies()[-3:]} == {name}
            server.restart()
            assert not server.adapters
            assert episodes(source, loaded[1]) == before
            assert name in server.adapters
    with (
        served(loaded) as [server],
        pytest.raises(ValueError, match=r"needs LoRA \(--lora.rank\)"),
        opened([server], loaded[0], sync="adapters"),
    ):
        pass


def test_an_interrupt_waits_for_no_answer(loaded: Any) -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def once_asked() -> None:
        if comes(lambda: len(server.calls) > before):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    earlier = signal.signal(signal.SIGALRM, interrupt)
    try:
        with served(loaded) as [server], opened([server], loaded[0], timeout=5 * PATIENCE) as source:
            policy = source.policy(loaded[1], SAMPLING, seed=3)
            server.delay, before = 4 * PATIENCE, len(server.calls)
            asked = [Conversation(f"a/{number}", (Message("user", "b"),)) for number in range(3)]
            began = time.monotonic()
            threading.Thread(target=once_asked).start()
            with pytest.raises(KeyboardInterrupt):
                policy.respond(asked)
            source.close()
            server.delay = 0.0
    finally:
        signal.signal(signal.SIGALRM, earlier)
    assert time.monotonic() - began < 2 * PATIENCE
    assert comes(lambda: not any(thread.name.startswith("request") for thread in threading.enumerate()))


@pytest.mark.parametrize("pushed", [False, True])
def test_an_id_that_the_learner_does_not_have_is_refused(loaded: Any, pushed: bool) -> None:
    """In a probe, and in a reply after probes that were right."""
    model, renderer = loaded
    vocabulary = model.config.vocab_size

    class Beyond(ModelBrain):
        on = not pushed

        def __call__(self, ids: Any, sampling: dict[str, Any]) -> tuple[list[int], list[float]]:
            found, logprobs = super().__call__(ids, sampling)
            return ([*found[:-1], vocabulary] if self.on else found), logprobs

    brain, sentence = Beyond(model), f"ids below {vocabulary:,}, the learner's vocabulary"
    with fake_server(brain) as server:
        if not pushed:
            with pytest.raises(ServerUnreachable, match=sentence), opened([server], model):
                pass
            return
        with opened([server], model) as source:
            brain.on = True
            with pytest.raises(ServerUnreachable, match=sentence):
                episodes(source, renderer)


def test_a_server_with_another_window_is_caught_also_where_the_scored_probes_are_shorter(tokenizer: Any) -> None:
    """A push brings weights, and no window."""
    model, wide = (built("gemma3_text", window, vocab_size=len(tokenizer)) for window in (80, 200))
    with fake_server(ModelBrain(model)) as server, opened([server], model) as source:
        assert source.metrics[0].value < 1e-5
        assert source.metrics[0].n == 4 * 64 + 1
    raised = pytest.raises(WrongWeights, match="on 5 probes")
    with fake_server(ModelBrain(wide)) as server, raised, opened([server], model):
        pass
