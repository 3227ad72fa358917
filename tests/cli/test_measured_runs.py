"""Whole runs on Echo with two turns: measuring changes no weight, and a resume changes no measurement."""

import json
import shutil
from pathlib import Path

import pytest

from heedful import cli
from heedful.storage import RunFolder, read_scores

FLAGS = (
    "--env.turns 2 --seedling.steps 30 --seedling.layers 1 --steps 5 --groups 4 --group-size 4 "
    "--evaluation.times 0 --checkpoint-every 2 "
    "--diagnostics.every 1 --diagnostics.full-every 2"
)


@pytest.fixture(scope="module")
def measured(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(cache))
        assert cli.run(f"train echo --out {folder} {FLAGS}".split()) == 0
    return folder


def readings(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def test_a_run_measured_in_every_scope_has_the_weights_of_one_not_measured_at_all(measured: Path) -> None:
    assert cli.run(f"train echo --out plain {FLAGS} --diagnostics.no-enabled".split()) == 0
    weights = "checkpoints/step_000005/model.safetensors"
    assert (measured / weights).read_bytes() == Path("plain", weights).read_bytes()
    names = set().union(*readings(measured))
    for scope in ("first_turn", "any_turn", "observation", "observation_closed"):
        assert f"information/{scope}/mi" in names
    assert not [name for name in set().union(*readings(Path("plain"))) if name.startswith("information")]


def test_a_resumed_run_measures_the_same_bytes(measured: Path) -> None:
    shutil.copytree(measured, "resumed")
    shutil.rmtree("resumed/checkpoints/step_000005")
    assert cli.run(["train", "--resume", "resumed"]) == 0
    assert readings(Path("resumed")) == readings(measured)
    scores = "scores/step_000004.npz"
    assert Path("resumed", scores).read_bytes() == (measured / scores).read_bytes()


def test_a_full_measurement_stores_words_and_the_verdict_tells_the_cost(measured: Path) -> None:
    stored = read_scores(RunFolder(measured).scores(4))
    assert stored.words
    assert all(len(word.texts_T) == stored.lengths_M[word.row] for word in stored.words)
    sentences = json.loads((measured / "verdict.json").read_text())["sentences"]
    assert any("Diagnosis cost " in sentence for sentence in sentences)


def test_another_model_can_judge(measured: Path) -> None:
    judge = measured / "checkpoints" / "step_000004"
    flags = FLAGS.replace("--steps 5", "--steps 1")
    assert cli.run(f"train echo --out judged {flags} --diagnostics.judge {judge}".split()) == 0
    line = readings(Path("judged"))[0]
    assert "information@step_000004/first_turn/mi" in line
    assert line["information@step_000004/first_turn/gap_per_token"] != line["information/first_turn/gap_per_token"]
