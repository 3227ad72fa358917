"""`heedful eval`: a run's own numbers again, baselines beside them, and sentences for what cannot be evaluated."""

import json
from pathlib import Path

import pytest

from heedful import cli
from heedful.storage import read_metrics


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
    flags = "--tasks 12 --samples 2 --json e.json"
    assert cli.run(["eval", "echo", *flags.split()]) == 0
    assert "the untrained seedling in echo" in capsys.readouterr().out
    found = json.loads((tmp_path / "e.json").read_text())["metrics"]["eval/val/sampled/success"]
    before = read_metrics(echo_run / "metrics.jsonl")[0].metrics["eval/val/sampled/success"]
    assert found["value"] == before.value


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--tasks", "0"], "tasks must be at least 1, found 0"),
        (["--split", "train"], "expected one of val, test"),
        (["--temperature", "0"], "temperature must be above 0"),
        (["--sampling.greedy"], "both the sampled and the greedy policy are evaluated"),
        (["--steps", "3"], "unknown flag"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_loaded(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.run(["eval", "echo", *flags])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_without_a_subject_it_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval"]) == 2
    assert "Expected a run, an environment, or a model and an environment" in capsys.readouterr().err
