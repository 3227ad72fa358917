"""Evaluation of a model on a real server, with ids and as text alone, and what doctor says of that server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from real_vllm import MODEL_NAME, RealVllm

from heedful import cli
from heedful.policies.servers import Client
from heedful.policies.servers.examination import examine
from heedful.storage import RunFolder, read_rollouts

pytestmark = pytest.mark.usefixtures("first_weights")

BRIEF = ["--env.instructions", "brief", "--sampling.tokens-per-turn", "24", "--search-tasks", "0", "--greedy"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def success(path: str) -> dict[str, dict[str, float]]:
    metrics = json.loads(Path(path).read_text())["metrics"]
    return {kind: metrics[f"eval/val/{kind}/success"] for kind in ("sampled", "greedy", "random")}


def test_a_served_model_has_the_success_that_it_has_in_this_process(vllm: RealVllm, seedling_folder: Path) -> None:
    served = ["--server", vllm.url, "--model-name", MODEL_NAME, "--tokenizer", str(seedling_folder)]
    tasks = ["--tasks", "40", "--samples", "4"]
    assert cli.run(["eval", "echo", *served, *BRIEF, *tasks, "--json", "served.json", "--out", "served"]) == 0
    local = [str(seedling_folder), "echo", *BRIEF[:4], *tasks, "--search-tasks", "0", "--device", "cpu"]
    assert cli.run(["eval", *local, "--json", "local.json"]) == 0
    theirs, ours = success("served.json"), success("local.json")
    # The same tasks and the same weights: greedy replies are equal, sampled ones have other noise.
    assert theirs["greedy"]["value"] == ours["greedy"]["value"]
    assert theirs["random"]["value"] == ours["random"]["value"]
    assert theirs["sampled"]["low"] <= ours["sampled"]["high"]
    assert ours["sampled"]["low"] <= theirs["sampled"]["high"]
    rollouts = read_rollouts(RunFolder(Path("served")).rollouts(0))
    replies = [turn.reply for group in rollouts.groups for member in group.trajectories for turn in member.turns]
    assert all(len(reply.logprobs) == len(reply.ids) > 0 for reply in replies)


def test_the_same_seed_gives_the_same_replies_again(vllm: RealVllm, seedling_folder: Path) -> None:
    served = ["--server", vllm.url, "--model-name", MODEL_NAME, "--tokenizer", str(seedling_folder)]

    def ids(out: str) -> list[tuple[int, ...]]:
        assert cli.run(["eval", "echo", *served, *BRIEF, "--tasks", "6", "--samples", "2", "--out", out]) == 0
        groups = read_rollouts(RunFolder(Path(out)).rollouts(0)).groups
        return [turn.reply.ids for group in groups for member in group.trajectories for turn in member.turns]

    assert ids("first") == ids("second")


def test_text_alone_is_evaluated_without_a_tokenizer(vllm: RealVllm) -> None:
    served = ["--server", f"{vllm.url}/v1", "--model-name", MODEL_NAME]
    assert cli.run(["eval", "echo", *served, *BRIEF, "--tasks", "6", "--samples", "2", "--out", "text"]) == 0
    replies = [
        turn.reply
        for group in read_rollouts(RunFolder(Path("text")).rollouts(0)).groups
        for member in group.trajectories
        for turn in member.turns
    ]
    assert len(replies) == 12
    assert not any(reply.ids or reply.logprobs for reply in replies)
    assert json.loads(Path("text/evaluation.json").read_text())["totals"]["uncounted"] == 0


def test_a_tokenizer_of_another_model_is_refused(
    vllm: RealVllm, tokenizer: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save_pretrained(tmp_path / "other")  # type: ignore[attr-defined]
    served = ["--server", vllm.url, "--model-name", MODEL_NAME, "--tokenizer", "other"]
    assert cli.run(["eval", "echo", *served, *BRIEF]) == 2
    assert "found another one in other" in capsys.readouterr().err


def test_doctor_finds_a_server_that_was_started_as_the_page_says(
    vllm: RealVllm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor", "--server", vllm.url, "--model-name", MODEL_NAME]) == 0
    shown = capsys.readouterr().out
    assert "vLLM 0.32.0" in shown
    assert "lacks" not in shown
    client = Client([vllm.url])
    facts = examine(client, client.servers[0])
    client.close()
    assert facts.generates
    assert facts.processed_logprobs
    assert facts.setting("dtype") == "float32"
    assert facts.setting("device") == "cpu"
    assert facts.windows[MODEL_NAME] == 1024
