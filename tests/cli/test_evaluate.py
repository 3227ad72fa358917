"""`heedful eval`: a run's own numbers again, baselines beside them, and sentences for what cannot be evaluated."""

import json
import os
from pathlib import Path

import pytest

from heedful import cli
from heedful.envs.toys.echo import EchoEpisode
from heedful.storage import read_metrics
from heedful.types import Task


def test_a_run_is_evaluated_to_the_very_numbers_it_measured_itself(
    echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", str(echo_run), "--json", "eval.json"]) == 0
    found = json.loads((tmp_path / "eval.json").read_text())
    own = read_metrics(echo_run / "metrics.jsonl")[-1].metrics
    for kind in ("sampled", "greedy", "random", "fixed"):
        name = f"eval/val/{kind}/success"
        assert found["metrics"][name]["value"] == own[name].value
        assert found["metrics"][name]["low"] == own[name].low
        assert found["metrics"][name]["n"] == (24 if kind == "sampled" else 12)
    assert found["version"] == 2
    assert found["metrics"]["eval/val/sampled/any_of_group"]["n"] == 12
    assert len(found["fixed_sequence"]) == 1
    shown = capsys.readouterr().out
    for label in ("sampled, temperature 1", "pass@2", "greedy", "random player", "best fixed sequence: "):
        assert label in shown
    right = found["metrics"]["eval/val/sampled/right"]
    parts = [found["metrics"][f"eval/val/sampled/right_by_{part}"] for part in ("chance", "thought", "prompt", "both")]
    assert right["value"] == pytest.approx(sum(part["value"] for part in parts))
    assert f"sampled thoughts: Of a probability of {right['value']:.2f} of a right first action" in shown
    assert found["metrics"]["eval/val/greedy/right"]["why"].startswith("all first actions are the same")
    for label in ("replies executable", "thoughts closed", "turns per episode"):
        assert label in shown


def test_tasks_samples_split_and_temperature_are_the_users_to_choose(
    echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--checkpoint 1 --split test --tasks 5 --samples 1 --temperature 0.5 --json e.json"
    assert cli.run(["eval", str(echo_run), *flags.split()]) == 0
    found = json.loads((tmp_path / "e.json").read_text())
    assert found["version"] == 1
    assert found["settings"]["sampling"]["temperature"] == 0.5
    assert found["metrics"]["eval/test/sampled/success"]["n"] == 5
    shown = capsys.readouterr().out
    assert "temperature 0.5" in shown
    assert "pass@" not in shown  # one sample per task: the same as sampled


def test_an_environment_alone_evaluates_its_untrained_seedling(
    echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--tasks 12 --samples 2 --seedling.steps 120 --json e.json"
    assert cli.run(["eval", "echo", *flags.split()]) == 0
    assert "the untrained seedling in echo" in capsys.readouterr().out
    found = json.loads((tmp_path / "e.json").read_text())["metrics"]["eval/val/sampled/success"]
    before = read_metrics(echo_run / "metrics.jsonl")[0].metrics["eval/val/sampled/success"]
    assert found["value"] == before.value


def test_an_environment_that_broke_is_told_with_its_first_error_and_is_no_success_where_nothing_was_scored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = EchoEpisode.begin

    def broken(self: EchoEpisode, task: Task, member: int) -> str:
        if member in breaking:
            raise ConnectionError(f"nobody answers {member}")
        return begin(self, task, member)

    monkeypatch.setattr(EchoEpisode, "begin", broken)
    breaking: set[int] = set()
    for member, code, sentence in (
        (1, 0, "4 of 8 sampled episodes broke and were not scored. The first: ConnectionError: nobody answers 1"),
        (0, 1, "4 of 4 greedy episodes broke and were not scored. The first: ConnectionError: nobody answers 0"),
    ):
        breaking.add(member)
        flags = "--tasks 4 --samples 2 --search-tasks 0 --seedling.steps 120 --json e.json"
        assert cli.run(["eval", "echo", *flags.split()]) == code
        assert sentence in capsys.readouterr().out
    why = json.loads(Path("e.json").read_text())["metrics"]["eval/val/sampled/success"]["why"]
    assert why == "no episode was scored; the first error: ConnectionError: nobody answers 0"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--split", "train"], "expected one of val, test"),
        (["--temperature", "0"], "expected a number above 0"),
        (["--sampling.greedy"], "both the sampled and the greedy policy are evaluated"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_loaded(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", "echo", *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_without_a_subject_it_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval"]) == 2
    assert "expected RUN|ENV|MODEL after `heedful eval`. RUN|ENV|MODEL: A run's folder" in capsys.readouterr().err


OWN = """
from dataclasses import dataclass
from heedful.envs.toys.echo import Echo

@dataclass(frozen=True)
class Mine(Echo):
    pass
"""

TINY = [f"--seedling.{knob}" for knob in ("hidden=16", "heads=2", "kv-heads=1", "layers=1", "ffn=16")]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment of one's own, for which a seedling can be grown."""
    (tmp_path / "own_echo.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_echo:Mine"


def test_a_seedling_of_ones_own_environment_is_looked_at_with_the_recipe_that_is_asked_for(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    flags = [*TINY, "--seedling.steps", "2", "--tasks", "4", "--samples", "1", "--search-tasks", "0"]
    assert cli.run(["eval", own, *flags, "--json", "e.json"]) == 0
    assert "the untrained seedling in echo" in capsys.readouterr().out
    settings = json.loads(Path("e.json").read_text())["settings"]
    assert (settings["seedling"]["steps"], settings["seedling"]["hidden"]) == (2, 16)
    assert cli.run(["play", own, "--by", "seedling", *TINY, "--seedling.steps", "2", "--references", "0"]) == 0
    assert "the untrained seedling in echo" in capsys.readouterr().out
    grown = [path for path in Path(os.environ["HEEDFUL_CACHE"]).rglob("config.json") if _hidden(path) == 16]
    assert len(grown) == 1  # both commands looked at one seedling


def _hidden(path: Path) -> int:
    return int(json.loads(path.read_text())["hidden_size"])


def test_a_trained_run_has_no_seedling_to_be_changed(echo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["eval", str(echo_run)], ["play", "--by", str(echo_run)]):
        assert cli.run([*command, "--seedling.steps", "2"]) == 2
        assert "--seedling.steps: unknown flag" in capsys.readouterr().err
