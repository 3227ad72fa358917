"""Scores through a real server, beside those of the same model in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from real_vllm import MODEL_NAME, RealVllm

from heedful import cli
from heedful.policies.servers import Client, Vllm
from heedful.policies.servers.examination import ServerFacts, examine
from heedful.scorers import ServerScorer

pytestmark = pytest.mark.usefixtures("first_weights")

TOLERANCE = 1e-4
"""Nats, of one sum."""


@pytest.fixture(scope="module")
def client(vllm: RealVllm) -> Iterator[Client]:
    client = Client([vllm.url])
    yield client
    client.close()


@pytest.fixture(scope="module")
def facts(client: Client) -> ServerFacts:
    return examine(client, client.servers[0])


@pytest.fixture(scope="module")
def in_process(seedling_folder: Path) -> object:
    import torch

    from heedful.models.load import load_model
    from heedful.scorers import HFScorer

    return HFScorer(load_model(str(seedling_folder), torch.device("cpu"))[0])


PROMPTS = [tuple(range(5, 5 + length)) for length in (3, 17, 40)]
THOUGHTS = [tuple(range(9, 9 + length)) for length in (1, 6, 33)] + [(7,) * 20]


@pytest.mark.parametrize("dialect", [None, Vllm()], ids=["completions", "generate"])
def test_scores_through_a_server_are_those_of_the_model_in_this_process(
    client: Client, facts: ServerFacts, in_process: object, dialect: Vllm | None
) -> None:
    scorer = ServerScorer(client, MODEL_NAME, facts, dialect=dialect)
    own = [0, 1, 2, 0]
    found = scorer.cross_score(PROMPTS, THOUGHTS, own, 1.0, keep="tokens")
    expected = in_process.cross_score(PROMPTS, THOUGHTS, own, 1.0, keep="tokens")  # type: ignore[attr-defined]
    assert np.abs(np.asarray(found.scores_MN) - np.asarray(expected.scores_MN)).max() < TOLERANCE
    for k in (16, 32):
        assert np.abs(np.asarray(found.heads[k]) - np.asarray(expected.heads[k])).max() < TOLERANCE
    for ours, theirs in zip(found.tokens or (), expected.tokens, strict=True):
        assert np.abs(np.asarray(ours) - np.asarray(theirs)).max() < TOLERANCE
    assert found.method == "server"
    assert 0 < found.noise < 1e-2  # float32, which the server names


def test_a_server_ignores_the_temperature_so_the_scorer_refuses_others_than_1(
    client: Client, facts: ServerFacts
) -> None:
    ids = PROMPTS[1] + THOUGHTS[1]
    dialect = Vllm()
    cold, warm = (
        client.ask(dialect.score(ids, MODEL_NAME, temperature), lambda tree: dialect.scored(tree, ids))
        for temperature in (0.5, 1.5)
    )
    assert cold == pytest.approx(warm, abs=1e-4)
    with pytest.raises(ValueError, match=r"expects temperature 1, found 0\.7"):
        ServerScorer(client, MODEL_NAME, facts).cross_score(PROMPTS, THOUGHTS, [0] * 4, 0.7)


def test_an_audit_through_the_server_equals_one_in_this_process(
    vllm: RealVllm, seedling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = ["--server", vllm.url, "--model-name", MODEL_NAME, "--tokenizer", str(seedling_folder)]
    play = ["--env.instructions", "brief", "--tasks", "12", "--samples", "2", "--search-tasks", "0", "--out", "eval"]
    assert cli.run(["eval", "echo", *served, *play]) == 0
    assert cli.run(["audit", "eval", *served, "--out", "by_server"]) == 0
    assert cli.run(["audit", "eval", "--model", str(seedling_folder), "--out", "in_process"]) == 0

    def metrics(folder: str) -> dict[str, float]:
        tree = json.loads((tmp_path / folder / "metrics.jsonl").read_text().splitlines()[0])["metrics"]
        found = {}
        for name, metric in tree.items():
            kind, _, rest = name.partition("@")
            value = metric.get("value") if isinstance(metric, dict) else metric
            if rest and isinstance(value, float):
                found[f"{kind}/{rest.partition('/')[2]}"] = value
        return found

    by_server, in_process = metrics("by_server"), metrics("in_process")
    assert "information/first_turn/mi" in by_server
    assert "retrieval/first_turn/accuracy" in by_server
    assert "grounding/thought_influence" in by_server
    assert by_server == pytest.approx(in_process, abs=2e-3)
