"""`heedful grow`: a model folder that trains, figures before and after, and sentences for what cannot be grown."""

import json
from pathlib import Path

import pytest

from heedful import cli
from heedful.storage import read_metrics

SMALL = "--warm-start.steps 3 --warm-start.episodes 4 --tasks 8 --threads 1 --device cpu --env.instructions brief"


@pytest.fixture
def model(echo_run: Path) -> Path:
    return echo_run / "checkpoints" / "step_000002"


def test_a_loaded_model_is_grown_measured_and_trained(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["grow", "echo", "--model", str(model), *SMALL.split(), "--json", "after.json"]) == 0
    shown = capsys.readouterr().out
    for label in ("Before the warm start", "After the warm start", "before", "after", "random player"):
        assert label in shown
    assert "learning from demonstrations: step 3/3" in shown
    folder = shown.rsplit("--model ", 1)[1].split()[0]
    measured = json.loads(Path("after.json").read_text())
    assert measured["model"] == folder
    assert measured["metrics"]["eval/val/greedy/success"]["n"] == 8

    flags = "--steps 1 --groups 4 --group-size 2 --sampling.tokens-per-turn 24 --evaluation.tasks 8 --threads 1"
    brief = "--device cpu --env.instructions brief --evaluation.samples 1 --evaluation.times 2"
    assert cli.run(["train", "echo", "--model", folder, *flags.split(), *brief.split(), "--out", "run"]) == 0
    first = read_metrics(Path("run/metrics.jsonl"))[0].metrics["eval/val/greedy/success"].value
    assert first == measured["metrics"]["eval/val/greedy/success"]["value"]  # the run begins with the grown weights


def test_a_run_with_the_same_warm_start_reads_it_from_the_cache(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["grow", "echo", "--model", str(model), *SMALL.split(), "--only-after"]) == 0
    assert "Before the warm start" not in capsys.readouterr().out
    flags = "--steps 1 --groups 4 --group-size 2 --sampling.tokens-per-turn 24 --evaluation.times 0 --threads 1"
    warm = "--device cpu --env.instructions brief --warm-start.steps 3 --warm-start.episodes 4"
    assert cli.run(["train", "echo", "--model", str(model), *flags.split(), *warm.split()]) == 0
    assert "learning from demonstrations" not in capsys.readouterr().out


def test_a_seedling_is_not_grown_a_second_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["grow", "echo", "--model", "seedling"]) == 2
    assert "heedful eval echo" in capsys.readouterr().err


def test_an_interrupted_warm_start_says_how_to_go_on() -> None:
    assert "the same command goes on" in cli.KEPT["grow"]


def test_two_different_loras_for_one_warm_start_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--model", "smollm2", "--lora.rank", "2", "--warm-start.lora.rank", "3"]
    assert cli.run(["grow", "echo", *both]) == 2
    assert "found --lora.rank 2 and another one of --warm-start.lora.rank 3" in capsys.readouterr().err
