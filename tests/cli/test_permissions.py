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
from heedful.boundary import ConfigurationError, from_json, to_json, trust_needed, trusting
from heedful.envs.remote.environment import Remote
from heedful.run.config import TrainConfig
from heedful_envs.code.environment import Code

THEIR_SERVER = "http://127.0.0.1:9"

ASKED = {
    "a key for a retrieval server": (
        {"env": {"type": "search_qa", "questions": "QUESTIONS", "url": THEIR_SERVER, "key_env": "MY_KEY"}}, "MY_KEY",
    ),
    "a file for an environment server": (
        {"env": {"type": "remote", "url": THEIR_SERVER, "token_file": "/home/me/.netrc"}}, "/home/me/.netrc",
    ),
    "the token for an environment server": ({"env": {"type": "remote", "url": THEIR_SERVER}}, THEIR_SERVER),
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
        if settings.get("env") == {"type": "remote", "url": THEIR_SERVER}:
            monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "the-secret")
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


def test_what_is_typed_needs_no_further_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "the-secret")
    typed = ["train", "remote", "--env.url", "http://127.0.0.1:8", "--env.token-file", "my_token", "--print-config"]
    assert cli.run(typed) == 0
    assert "my_token" in capsys.readouterr().out


def test_a_server_is_permitted_for_its_secret_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a secret there is nothing to permit, and a server permits no module that its address begins with."""
    monkeypatch.delenv("HEEDFUL_ENV_TOKEN", raising=False)
    assert from_json(Remote, {"url": "http://127.0.0.1:7"}).url == "http://127.0.0.1:7"
    monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "the-secret")
    with pytest.raises(ConfigurationError, match="HEEDFUL_ENV_TOKEN"):
        from_json(Remote, {"url": "http://127.0.0.1:6"})
    assert from_json(Code, {"sandbox": "strict"}).sandbox == "strict"


def test_a_study_grants_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"type": "train", "config": {"env": {"type": "remote", "token_file": "their_choice"}}}
    flags = {"type": "train", "preset": "echo", "flags": "--env code --env.sandbox off --trust sandbox=off"}
    for number, each in enumerate((job, flags)):
        study = {"name": "theirs", "question": "?", "arms": [{"name": "a", "job": each}], "seeds": [0]}
        (tmp_path / f"{number}.json").write_text(json.dumps(study))
        assert cli.run(["study", str(tmp_path / f"{number}.json")]) == 2
        assert "trust" in capsys.readouterr().err
