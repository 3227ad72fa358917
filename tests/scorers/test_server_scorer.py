"""Scores through a server: those of the model, the guard of the temperature, and the stated noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fake_server import FakeServer, ModelBrain, fake_server
from heedful.policies.servers import Client, Limits, Vllm
from heedful.policies.servers.examination import ServerFacts
from heedful.protocols import WindowExceeded
from heedful.scorers import HFScorer, ServerScorer, pairs
from tiny_models import llama

PROMPTS = [(5, 6), (7, 8, 9, 10), (11,)]
THOUGHTS = [(12, 13, 14), (), (15,), (12, 13, 14)]
OWN = [0, 1, 2, 1]


@pytest.fixture(scope="module")
def model() -> Any:
    return llama(40, window=64).float()


@pytest.fixture(scope="module")
def server(model: Any) -> Iterator[FakeServer]:
    with fake_server(ModelBrain(model), window=64) as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    server.calls.clear()
    client = Client([server.url], Limits(connections=2, pause=0.01))
    yield client
    client.close()


def facts(**settings: Any) -> ServerFacts:
    known = {"dtype": "float32", "logprobs_mode": "processed_logprobs"} | settings
    return ServerFacts("http://x", "0.32.0", {"policy": 64}, True, known)


@pytest.mark.parametrize("dialect", [None, Vllm()], ids=["completions", "generate"])
def test_the_scores_are_those_of_the_model_in_this_process(
    client: Client, model: Any, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "HEADS", (2,))
    found = ServerScorer(client, "policy", facts(), dialect=dialect).cross_score(
        PROMPTS, THOUGHTS, OWN, 1.0, keep="tokens"
    )
    expected = HFScorer(model).cross_score(PROMPTS, THOUGHTS, OWN, 1.0, keep="tokens")
    assert np.asarray(found.scores_MN) == pytest.approx(np.asarray(expected.scores_MN), abs=1e-4)
    assert np.asarray(found.heads[2]) == pytest.approx(np.asarray(expected.heads[2]), abs=1e-4)
    assert found.tokens is not None
    assert expected.tokens is not None
    for ours, theirs in zip(found.tokens, expected.tokens, strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(theirs), abs=1e-4)
    assert (found.lengths_M, found.own_M, found.method) == ([3, 0, 1, 3], OWN, "server")


def test_each_distinct_pair_is_one_request(client: Client, server: FakeServer) -> None:
    ServerScorer(client, "policy", facts()).cross_score(PROMPTS, THOUGHTS, OWN, 1.0)
    sent = [tuple(body["prompt"]) for body in server.bodies("/v1/completions")]
    assert sorted(sent) == sorted(prompt + thought for prompt in PROMPTS for thought in {(12, 13, 14), (15,)})


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_another_temperature_is_refused_before_anything_is_asked(
    client: Client, server: FakeServer, temperature: float
) -> None:
    with pytest.raises(ValueError, match=f"expects temperature 1, found {temperature:g}"):
        ServerScorer(client, "policy", facts()).cross_score(PROMPTS, THOUGHTS, OWN, temperature)
    assert server.calls == []


def test_a_server_that_reports_logits_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="reports raw_logits"):
        ServerScorer(client, "policy", facts(logprobs_mode="raw_logits"))


def test_pairs_that_leave_no_room_for_the_servers_own_token_are_refused(client: Client) -> None:
    scorer = ServerScorer(client, "policy", facts())
    scorer.cross_score([(5,) * 60], [(6,) * 3], [0], 1.0)
    with pytest.raises(WindowExceeded, match="window of 64 tokens with one to spare, found 64"):
        scorer.cross_score([(5,) * 60], [(6,) * 4], [0], 1.0)


def test_the_noise_is_that_of_the_servers_dtype_and_coarse_where_it_is_unknown(client: Client) -> None:
    noises = [
        ServerScorer(client, "policy", facts(dtype=dtype)).cross_score(PROMPTS, THOUGHTS, OWN, 1.0).noise
        for dtype in ("float32", "float16", "bfloat16", "")
    ]
    assert noises[0] < 1e-4 < noises[1] < noises[2] == noises[3]
