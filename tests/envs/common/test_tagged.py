"""A run's own tags: prompts ask for them, and environments read replies that have them."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import pytest

from heedful import cli
from heedful.envs.common.tagged import in_tags
from heedful.envs.toys.echo import Echo
from heedful.models.chat.replies import Tags
from heedful.protocols import Demonstrates, ListsActions

ENV = Echo(turns=2)
SMALL = ("--env.decoys", "2")
BOXED = Tags(answer_open="\\boxed{", answer_close="}")


def test_with_the_usual_tags_an_environment_is_itself() -> None:
    assert in_tags(ENV, Tags()) is ENV


def test_an_environment_asks_for_the_tags_of_the_run_and_reads_them() -> None:
    env = pickle.loads(pickle.dumps(in_tags(ENV, BOXED)))
    episode = env.episode()
    shown = episode.start(env.task(0), 0)
    assert "<think>your reasoning</think>\\boxed{A}" in shown.text
    assert "<answer>" not in shown.text + shown.opening
    asked = env.rows(0)[0][0]
    step = episode.step(f"<think>so</think>\\boxed{{{asked}}}")
    assert (step.actions, step.valid) == ((asked,), True)
    assert "there is no \\boxed{ block" in episode.step(asked).observation.text


@pytest.mark.parametrize("template", ["<|channel|>final<|message|>", "<|turn>", "[THINK]"])
def test_tags_that_a_model_was_taught_stand_in_replies_and_never_in_prompts(template: str) -> None:
    tags = Tags().known_by(template)
    env = in_tags(ENV, tags)
    text, reply = env.demonstrate(env.task(1), random.Random(0))[0]
    assert all(tag in reply for tag in (tags.open, tags.close, tags.answer_open))
    assert not any(tag in text for tag in (tags.open, tags.close, "<think>", *({tags.answer_open} & tags.taught)))
    assert "in this form: " + ("<answer>A</answer>" if tags.answer_open == "<answer>" else "A\n") in text
    episode = env.episode()
    episode.start(env.task(1), 0)
    assert episode.step(reply).valid


@pytest.mark.parametrize(("typed", "of_model"), [(["--tags.open", "<think>"], False), (["--tags.no-force"], True)])
def test_tags_that_are_typed_win_over_those_of_the_model(
    typed: list[str], of_model: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "bandit", "--model", "model", *typed, "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"]["of_model"] is of_model


def test_it_offers_what_the_environment_offers() -> None:
    env = in_tags(ENV, BOXED)
    assert isinstance(env, Demonstrates)
    assert isinstance(env, ListsActions)
    pairs = env.demonstrate(env.task(1), random.Random(0))
    assert all(reply.endswith("}") and "<answer>" not in text + reply for text, reply in pairs)


def test_a_model_is_asked_for_the_tags_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    tags = ["--tags.answer-open", "<box>", "--tags.answer-close", "</box>", "--references", "0", *SMALL]
    recipe = ["--seedling.steps", "60", "--seedling.episodes", "4"]
    command = ["play", "echo", "--by", "seedling", *recipe, "--env.turns", "1", *tags]
    assert cli.run([*command, "--env.instructions", "full", "--sampling.greedy"]) == 0
    said = "".join(capsys.readouterr().out.split())
    assert "<think>yourreasoning</think><box>A</box>" in said
    assert "<answer>" not in said
    assert said.count("</box>") == 2, "the model has learned to answer in them"
