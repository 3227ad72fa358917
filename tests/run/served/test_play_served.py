"""`heedful play ENV --by URL`: one episode of a served model, with ids or as text alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fake_server import ModelBrain, counting, fake_server
from heedful import cli
from heedful.run.served.model import open_served
from tool_toy import Dictionary


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Answers:
    __call__ = staticmethod(counting)

    def text(self, messages: list[dict[str, str]]) -> str:
        return "<think>any letter</think><answer>A</answer>"


def test_a_served_model_plays_an_episode_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Answers()) as server:
        assert cli.run(["play", "echo", "--by", server.url, "--model-name", "policy", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert f"policy at {server.url}: task echo-" in shown
    assert "any letter" in shown
    assert "ended: " in shown
    assert "log p / token" not in shown  # nothing is known of ids


def test_with_a_tokenizer_its_certainty_is_shown(seedling_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForCausalLM

    brain = ModelBrain(AutoModelForCausalLM.from_pretrained(seedling_folder).eval())
    served = ["--model-name", "policy", "--tokenizer", str(seedling_folder)]
    with fake_server(brain) as server:
        flags = ["--env.instructions", "brief", "--sampling.tokens-per-turn", "12", "--sampling.greedy"]
        assert cli.run(["play", "echo", "--by", server.url, *served, *flags]) == 0
        assert server.bodies("/v1/completions")[0]["temperature"] == 0
    assert "log p / token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["play", "echo", "--by", "http://127.0.0.1:1"], "A served model needs an environment and its name"),
        (["play", "echo", "--model-name", "policy"], "--model-name and --tokenizer are for a served model"),
    ],
)
def test_what_is_missing_is_a_sentence(line: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line) == 2
    assert sentence in capsys.readouterr().err


def test_text_alone_is_refused_where_replies_are_calls() -> None:
    settings = cast(Any, SimpleNamespace(env=Dictionary(actions="tool_calls")))
    with (
        pytest.raises(ValueError, match="Expected --tokenizer, since the replies are tool calls"),
        open_served("http://127.0.0.1:1", "model", None, settings, print),
    ):
        pass
