"""Alarms inside TRL: told once, and a collapse ends the training if asked to."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

from tiny_trl import Script, arguments, filtering, trainer_of, written

from heedful.diagnostics.alarms.watch import Alarm, Alarms, StepAlarms
from webhook_receiver import receiving

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SPREAD = [[0, 1], [1, 0]]


def collapsing_at(step: int) -> Any:
    """An alarm of a collapse at one step, whatever was measured."""

    def observe(alarms: Alarms, at: int, metrics: Any, of_update: bool = False) -> StepAlarms:
        raised = (Alarm("template_collapse", at, "thoughts grew alike", "Read some.", severity="collapse"),)
        return StepAlarms(at, (), raised if at == step else ())

    return observe


def trained(policy: str, tiny_model: Path, folder: Path, **settings: Any) -> Any:
    args = arguments(folder, max_steps=4, per_device_train_batch_size=4, num_generations=2)
    heedful = filtering(on_collapse=policy, **settings)
    trainer = trainer_of(tiny_model, args, Script(written(SPREAD)), heedful=heedful)
    trainer.train()
    return trainer


def test_a_collapse_ends_the_training_after_its_step_and_is_saved(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Alarms, "observe", collapsing_at(1))
    with caplog.at_level(logging.WARNING, logger="heedful"):
        trainer = trained("stop", tiny_model, tmp_path)
    assert trainer.state.global_step == 2
    assert (tmp_path / "checkpoint-2" / "heedful.json").is_file()
    said = [record.message for record in caplog.records if record.name == "heedful"]
    assert said == ["Alarm template_collapse at step 1: thoughts grew alike. Read some."]


def test_a_collapse_is_only_told_unless_it_is_to_end_the_training(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Alarms, "observe", collapsing_at(1))
    assert trained("warn", tiny_model, tmp_path).state.global_step == 4


def test_a_webhook_gets_each_alarm_and_the_record_has_a_status(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Alarms, "observe", collapsing_at(1))
    with receiving() as receiver:
        monkeypatch.setenv("HOOK", receiver.url)
        trained("warn", tiny_model, tmp_path, webhook="HOOK", record=True)
    ((_, body),) = receiver.bodies
    assert (body["heedful"]["run"], body["heedful"]["alarm"]) == (tmp_path.name, "template_collapse")
    assert json.loads((tmp_path / "heedful" / "status.json").read_text())["step"] == 3
