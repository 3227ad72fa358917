"""`HeedfulCallback`: one line that watches a run of TRL by its logs, and changes nothing of it."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import pyarrow.parquet
import torch
from test_trl_alarms import collapsing_at
from tiny_trl import Script, arguments, differing, filtering, lora, prompts, trainer_of, weights_of, written
from trl import RLOOConfig

from heedful.auditing import AuditSettings, audit
from heedful.auditing.pipeline import Pipeline
from heedful.auditing.scalars import scalar_rows
from heedful.diagnostics.alarms.watch import Alarms
from heedful.integrations.trl import HeedfulCallback
from heedful.integrations.trl.logged import Beside
from heedful.storage import read_metrics
from heedful.types import Metric
from heedful.watching.sinks import Measured

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

TRAINED, EVALUATED = written([[1, 0], [0, 1], [1, 1], [0, 0]]), written([[0.25, 0.25], [0.5, 0.7]], seed=5)


def trainer_with(
    callback: HeedfulCallback, model: Path, folder: Path, script: Script | None = None, **changes: Any
) -> Any:
    """A run of four steps on a script, evaluated at every second one."""
    script = script or Script([*TRAINED, *EVALUATED])
    chosen: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 4, "num_generations": 2}
    chosen |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2}
    data = {"train_dataset": Script(TRAINED).dataset(), "eval_dataset": Script(EVALUATED).dataset()}
    args = arguments(folder, **(chosen | changes))
    return trainer_of(model, args, rollout_func=script, callbacks=[callback], **data)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "heedful-watch" / "metrics.jsonl").read_bytes().splitlines()


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that was never killed."""
    folder = tmp_path_factory.mktemp("callback")
    trainer = trainer_with(HeedfulCallback(), tiny_model, folder, eval_on_start=True)
    trainer.train()
    trainer.save_state()
    return folder


def test_each_step_has_its_rows_and_its_scalars(whole: Path) -> None:
    steps = {line.step: line.metrics for line in read_metrics(whole / "heedful-watch" / "metrics.jsonl")}
    history = json.loads((whole / "trainer_state.json").read_text())["log_history"]
    trained = {entry["step"]: entry["reward"] for entry in history if "reward" in entry}
    evaluated = {entry["step"]: entry["eval_reward"] for entry in history if "eval_reward" in entry}
    assert [*steps] == [0, 1, 2, 3, 4]
    assert {step: steps[step]["reward/mean"].value for step in trained} == pytest.approx(trained)
    assert {step: steps[step]["trainer/reward"].value for step in trained} == trained
    assert {step: steps[step]["trainer/validation"].value for step in evaluated} == evaluated
    assert "reward/mean" not in steps[0]  # before the first step there are rows of an evaluation alone


def test_rows_that_an_evaluation_wrote_over_are_kept(whole: Path) -> None:
    def rewards(file: Path) -> float:
        return float(sum(pyarrow.parquet.read_table(file)["score"].to_pylist()))

    kept = whole / "heedful-watch" / "completions"
    assert sorted(file.name for file in kept.iterdir()) == ["completions_00002.parquet", "completions_00004.parquet"]
    assert rewards(kept / "completions_00002.parquet") == 2
    assert rewards(whole / "completions" / "completions_00002.parquet") != 2


def test_the_lines_are_those_of_an_audit_where_no_evaluation_came_between(whole: Path, tmp_path: Path) -> None:
    kept = tmp_path / "completions"
    shutil.copytree(whole / "completions", kept)
    (kept / "completions_00000.parquet").unlink()
    shutil.copytree(whole / "heedful-watch" / "completions", kept, dirs_exist_ok=True)
    found = audit(kept, scalars=[whole / "trainer_state.json"], out=tmp_path / "audit", show=False)
    assert (found.path / "metrics.jsonl").read_bytes().splitlines() == lines_of(whole)


def test_a_step_without_a_new_batch_after_an_evaluation_has_scalars_alone(tiny_model: Path, tmp_path: Path) -> None:
    batch = {"steps_per_generation": 2, "per_device_train_batch_size": 2}  # its second half is logged at step 2
    trainer_with(HeedfulCallback(), tiny_model, tmp_path, max_steps=4, eval_steps=1, **batch).train()
    steps = read_metrics(tmp_path / "heedful-watch" / "metrics.jsonl")
    assert ["reward/mean" in step.metrics for step in steps] == [True, False, True, False]
    assert ["trainer/reward" in step.metrics for step in steps] == [True, False, True, False]
    assert ["trainer/loss" in step.metrics for step in steps] == [True] * 4


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_a_share_of_constant_batches_is_not_taken_for_one_of_groups(
    scale: str, tiny_model: Path, tmp_path: Path
) -> None:
    trainer_with(HeedfulCallback(), tiny_model, tmp_path, scale_rewards=scale, max_steps=2).train()
    steps = [step.metrics for step in read_metrics(tmp_path / "heedful-watch" / "metrics.jsonl")]
    assert [step["signal/mixed"].value for step in steps] == [0.5, 0.0]
    assert ["trainer/zero_std" in step for step in steps] == [scale == "group"] * 2


def test_the_folder_says_how_the_run_is_and_the_terminal_stays_quiet(whole: Path) -> None:
    status = json.loads((whole / "heedful-watch" / "status.json").read_text())
    assert (status["health"], status["step"], status["ended"]) == ("healthy", 4, "The training has ended.")
    assert (whole / "heedful-watch" / "report.html").is_file()
    record = json.loads((whole / "heedful-watch" / "audit.json").read_text())
    assert record["name"] == whole.name
    assert record["scalars"][0]["keys"]["trainer/validation"] == "eval_reward"
    assert record["found"] == ["Reward columns: score.", "TRL completions: 4 files, 4 steps, 16 episodes in 8 groups."]
    with pytest.raises(ValueError, match=r"found others under completions_00002.parquet"):
        audit(whole / "completions", out=whole / "heedful-watch", show=False)  # the rows of an evaluation are there


def test_a_resumed_run_has_the_lines_of_the_one_that_was_never_killed(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    class Killed(Exception):
        """The run ends here."""

    class Killing(Script):
        def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
            if trainer.model.training and trainer.state.global_step == 3:  # after the line of step 3
                raise Killed
            return super().__call__(prompts, trainer)

    saving = {"save_strategy": "steps", "save_steps": 2, "eval_on_start": True}
    with pytest.raises(Killed):
        trainer_with(HeedfulCallback(), tiny_model, tmp_path, Killing([*TRAINED, *EVALUATED]), **saving).train()
    trainer_with(HeedfulCallback(), tiny_model, tmp_path, **saving).train(resume_from_checkpoint=True)
    assert lines_of(tmp_path) == lines_of(whole)
    assert not (tmp_path / "heedful-watch-2").exists()


def test_measuring_changes_nothing_of_the_training(tiny_model: Path, tmp_path: Path) -> None:
    # Sampled completions and dropout: any random number that a measurement drew from TRL's would show.
    weights, history = [], []
    callback = HeedfulCallback(AuditSettings(tags=("<think>", "!")), score=True)
    for name, callbacks in (("without", []), ("with", [callback])):
        args = arguments(
            tmp_path / name,
            max_steps=2,
            num_generations=2,
            per_device_train_batch_size=4,
            learning_rate=0.05,
            disable_dropout=False,
            max_completion_length=8,
        )
        others = {"reward_funcs": differing, "train_dataset": prompts("plain"), "peft_config": lora()}
        trainer = trainer_of(tiny_model, args, callbacks=callbacks, **others)
        trainer.train()
        weights.append(weights_of(trainer))
        history.append([(line.get("loss"), line.get("reward")) for line in trainer.state.log_history])
    assert history[0] == history[1]
    assert torch.equal(*weights)
    read = read_metrics(tmp_path / "with" / "heedful-watch" / "metrics.jsonl")
    assert [line.metrics["information@next/first_turn/mi"].n for line in read] == [4, 4]


def test_a_collapse_ends_the_training_after_the_next_step_and_is_saved(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Alarms, "observe", collapsing_at(2))
    callback = HeedfulCallback(on_collapse="stop")
    trainer = trainer_with(callback, tiny_model, tmp_path, max_steps=6, eval_strategy="no")
    trainer.train()
    assert trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3" / "heedful-watch.json").is_file()
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert said[0] == "Alarm template_collapse at step 2: thoughts grew alike. Read some."
    assert json.loads((tmp_path / "heedful-watch" / "status.json").read_text())["ended"]


def test_an_error_in_the_watch_warns_once_and_the_training_goes_on(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Pipeline, "add", broken)
    trainer = trainer_with(HeedfulCallback(), tiny_model, tmp_path, eval_strategy="no")
    with pytest.warns(RuntimeWarning, match="no longer watches") as warned:
        trainer.train()
    assert trainer.state.global_step == 4
    assert len([one for one in warned if "no longer watches" in str(one.message)]) == 1
    assert "no such thing" in json.loads((tmp_path / "heedful-watch" / "status.json").read_text())["ended"]


def test_readings_go_into_the_run_that_trl_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, float]] = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(log=logged.append))
    sink = Beside(["wandb", "tensorboard"])
    sink.begin(tmp_path)
    for number, replayed in ((1, True), (2, False)):  # the first one is there from the run before
        metrics = [Metric("signal/mixed", 0.5), Metric("reward/mean", None, why="none"), Metric("trainer/kl", 0.1)]
        sink.step(Measured(number, metrics, replayed=replayed))
    sink.close()
    assert logged == [{"train/global_step": 2, "train/signal/mixed": 0.5}]
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert [(row.step, dict(row.values)) for row in scalar_rows(events)] == [(2, {"train/signal/mixed": 0.5})]


def test_the_callback_is_refused_where_it_could_not_watch(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"expected a GRPOTrainer.* found one with RLOOConfig"):
        HeedfulCallback().on_init_end(RLOOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[]), None, None)
    with pytest.raises(ValueError, match=r"expected settings without a model, a server and join"):
        HeedfulCallback(AuditSettings(join=2))
    with pytest.raises(ValueError, match=r"found top_p in the arguments"):
        trainer_with(HeedfulCallback(score=True), tiny_model, tmp_path, top_p=0.9)
    late = trainer_of(tiny_model, arguments(tmp_path), Script(TRAINED))
    late.add_callback(HeedfulCallback())
    with pytest.raises(ValueError, match=r"expected TRL's log of completions, found it off"):
        late.train()
    monkeypatch.setattr("heedful.integrations.trl.logged.sharded", lambda kind: "FSDP")
    with pytest.raises(ValueError, match=r"found it sharded \(FSDP\).*heedful watch .* --model CHECKPOINT"):
        trainer_with(HeedfulCallback(score=True), tiny_model, tmp_path)


def test_beside_our_own_trainer_it_says_that_it_has_no_part(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4)
    trainer = trainer_of(tiny_model, args, Script(TRAINED), heedful=filtering(), callbacks=[HeedfulCallback()])
    with pytest.warns(RuntimeWarning, match="HeedfulGRPOTrainer measures them itself"):
        trainer.train()
