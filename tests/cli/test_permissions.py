"""Settings that a file of somebody else may hold and may not decide: secrets, and the sandbox that is left out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import heedful
from heedful import cli
from heedful.boundary import from_json, to_json, trust_needed, trusting
from heedful.run.config import TrainConfig

THEIR_SERVER = "http://127.0.0.1:9"

ASKED = {
    "a key for a retrieval server": (
        {"env": {"type": "search_qa", "questions": "QUESTIONS", "url": THEIR_SERVER, "key_env": "MY_KEY"}}, "MY_KEY",
    ),
    "a key for a server that samples": (
        {"policy": {"type": "vllm", "url": [THEIR_SERVER], "api_key_env": "MY_KEY"}}, "MY_KEY",
    ),
    "programs without a sandbox": ({"env": {"type": "code", "sandbox": "off"}}, "sandbox=off"),
}  # fmt: skip
"""What a file asks for: the settings, and the word after --trust that permits them."""

Theirs = Callable[[dict[str, Any]], Path]


@pytest.fixture
def theirs(echo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Theirs:
    """Makes a run folder of somebody else with these settings."""
    monkeypatch.setattr("heedful.boundary.trust._held", set())  # what other tests of this process have written
    monkeypatch.setenv("MY_KEY", "the-secret")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "Who?", "answer": "me"}\n')

    def make(settings: dict[str, Any]) -> Path:
        folder = tmp_path / "theirs"
        shutil.copytree(echo_run, folder)
        tree = json.loads((folder / "config.json").read_text()) | settings
        text = json.dumps(tree).replace('"QUESTIONS"', json.dumps(str(questions)))
        (folder / "config.json").write_text(text)
        return folder

    return make


@pytest.mark.parametrize("case", ASKED)
def test_a_file_does_not_decide_it(case: str, theirs: Theirs, capsys: pytest.CaptureFixture[str]) -> None:
    settings, word = ASKED[case]
    folder = str(theirs(settings))
    for command in (["eval", folder], ["play", "--by", folder], ["train", "--resume", folder], ["gradients", folder]):
        assert cli.run(command) == 2
        said = capsys.readouterr().err
        assert f"--trust {word}" in said
        assert "a file does not decide" in said


@pytest.mark.parametrize("case", ASKED)
def test_the_word_of_the_refusal_permits_it(case: str, theirs: Theirs) -> None:
    settings, word = ASKED[case]
    folder = theirs(settings)
    with pytest.raises(ValueError, match="a file does not decide"):
        heedful.Run.open(folder)
    config = heedful.Run.open(folder, trust=[word]).config
    with trusting([word]):
        assert trust_needed(config) == [word]
        assert from_json(TrainConfig, to_json(config)) == config


def test_what_is_typed_needs_no_further_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "code", "--env.sandbox", "off", "--print-config"]) == 0
    assert '"off"' in capsys.readouterr().out


def test_a_study_grants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heedful.boundary.trust._held", set())
    job = {"type": "train", "config": {"env": {"type": "code", "sandbox": "off"}}}
    flags = {"type": "train", "preset": "echo", "flags": "--env code --env.sandbox off --trust sandbox=off"}
    for number, each in enumerate((job, flags)):
        study = {"name": "theirs", "question": "?", "arms": [{"name": "a", "job": each}], "seeds": [0]}
        (tmp_path / f"{number}.json").write_text(json.dumps(study))
        assert cli.run(["study", str(tmp_path / f"{number}.json")]) == 2
        assert "trust" in capsys.readouterr().err
