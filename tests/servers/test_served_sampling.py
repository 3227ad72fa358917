"""Replies of a real vLLM server: log-probabilities, stops, seeds, collectors, and the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learners import changed, largest_error, own_logprobs, questions  # noqa: E402
from real_vllm import RealVllm  # noqa: E402

from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Sampling, Vllm, Weights  # noqa: E402
from heedful.policies.servers import Client, Draw  # noqa: E402
from heedful.policies.servers import Vllm as Dialect  # noqa: E402
from heedful.policies.vllm.weights_out import FolderOut  # noqa: E402
from heedful.rollout import Asynchronous, Context, LockStep, Request  # noqa: E402


@pytest.fixture(scope="module")
def loaded(seedling_folder: Path) -> Any:
    model, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
    return model, Renderer(tokenizer)


@pytest.fixture(scope="module")
def source(vllm: RealVllm, loaded: Any) -> Iterator[Any]:
    with Vllm((vllm.url,), tolerance=1e-4).open() as opened:
        opened.weights_changed(Weights(loaded[0]))
        yield opened


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_log_probabilities_are_the_learners_at_every_temperature(source: Any, loaded: Any, temperature: float) -> None:
    model, renderer = loaded
    policy = source.policy(renderer, Sampling(temperature=temperature, tokens_per_turn=24), seed=5)
    asked = questions(16)
    replies = policy.respond(asked)
    assert largest_error(model, renderer, asked, replies, temperature) < 1e-4
    assert sum(len(reply.ids) for reply in replies) > 64


def test_the_likeliest_tokens_are_the_learners_and_are_reported_at_temperature_1(source: Any, loaded: Any) -> None:
    model, renderer = loaded
    policy = source.policy(renderer, Sampling(temperature=0.5, greedy=True, tokens_per_turn=12), seed=5)
    asked = questions(4)
    replies = policy.respond(asked)
    assert policy.temperature == 1.0
    assert largest_error(model, renderer, asked, replies, 1.0) < 1e-4
    for conversation, reply in zip(asked, replies, strict=True):
        ids = [*renderer.context_ids(conversation), *reply.ids]
        with torch.inference_mode():
            best_T = model(torch.tensor([ids])).logits[0].argmax(-1)
        assert best_T[-len(reply.ids) - 1 : -1].tolist() == list(reply.ids)


def test_a_stop_is_the_last_id_of_a_reply_and_a_cut_reply_has_none(source: Any, loaded: Any) -> None:
    _, renderer = loaded
    replies = [
        reply
        for tokens in (4, 24)
        for reply in source.policy(renderer, Sampling(tokens_per_turn=tokens), seed=6).respond(questions(16))
    ]
    assert {reply.cut for reply in replies} == {True, False}
    for reply in replies:
        assert renderer.stop_ids.isdisjoint(reply.ids[:-1])
        assert reply.cut == renderer.stop_ids.isdisjoint(reply.ids)


def test_a_reply_depends_on_its_own_seed_and_not_on_the_others_of_the_call(source: Any, loaded: Any) -> None:
    policy = source.policy(loaded[1], Sampling(tokens_per_turn=24), seed=7)
    asked = questions(24)
    together = policy.respond(asked)
    for conversation, reply in zip(asked[:8], together, strict=False):
        (alone,) = policy.respond([conversation])
        assert alone.ids == reply.ids
        assert alone.logprobs == pytest.approx(reply.logprobs, abs=1e-5)
    other = source.policy(loaded[1], Sampling(tokens_per_turn=24), seed=8).respond(asked)
    assert [reply.ids for reply in other] != [reply.ids for reply in together]


@pytest.mark.parametrize("context", [Context(), Context(turns=0)], ids=["history", "window"])
def test_lock_step_and_asynchronous_collection_play_the_same_episodes(
    source: Any, loaded: Any, context: Context
) -> None:
    env = Echo(instructions="brief", turns=3)
    request = Request(env.episode, [env.task(seed) for seed in range(4)], 3, env.turns, context)
    played = []
    for collect in (LockStep(), Asynchronous(threads=4)):
        groups = collect(source.policy(loaded[1], Sampling(tokens_per_turn=16, noise="conversation"), seed=9), request)
        played.append([[turn.reply.ids for turn in t.turns] for group in groups for t in group.trajectories])
    assert played[0] == played[1]
    assert max(map(len, played[0])) > 1, "there are later turns"


def test_old_entries_of_the_prefix_cache_are_used_under_an_old_salt_and_never_under_the_version(
    vllm: RealVllm, loaded: Any, tmp_path: Path
) -> None:
    model, renderer = loaded
    client = Client([vllm.url])
    (server,) = client.servers
    (asked,) = questions(1, words=150)
    ids = renderer.context_ids(asked)
    assert len(ids) > 256, "two whole blocks of the cache on a CPU"
    out, dialect = FolderOut(tmp_path, lambda server: True), Dialect()

    def error(learner: Any, salt: str) -> float:
        draw = Draw(temperature=1.0, greedy=False, most=16, seed=3, salt=salt)
        drawn = dialect.drawn(client.tell(server, dialect.draw(ids, draw, "policy")), 16)
        own = own_logprobs(learner, ids, drawn.ids, 1.0)
        return max(abs(ours - theirs) for ours, theirs in zip(own, drawn.logprobs, strict=True))

    after = changed(model)
    for learner, version in ((model, "stale-1"), (after, "stale-2")):
        out.prepare(Weights(learner), version, 0)
        out.send(client, server, version)  # without a reset of the cache
        if learner is model:
            assert error(model, "stale-1") < 1e-4
    assert error(after, "stale-1") > 1e-3, "keys and values of the weights before"
    assert error(after, "stale-2") < 1e-4
    out.close()
