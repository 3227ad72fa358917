"""Refill: more prompts are drawn while too few groups vary, and the update is that of the groups that were accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

from tiny_trl import Gradients, Script, arguments, recorded, trainer_of, weights_of, written

from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig
from heedful.measuring.diagnostics_config import DiagnosticsConfig

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

UP, DOWN, FLAT = [0, 1, 0, 0], [1, 0.5, 1, 1], [1, 1, 1, 1]
TASKS = written([UP, FLAT, FLAT, UP, DOWN, FLAT, FLAT, DOWN, UP])


def config(**changes: Any) -> HeedfulConfig:
    off = DiagnosticsConfig(enabled=False)
    return HeedfulConfig(**{"filter": DropConstant(on="reward"), "diagnostics": off, **changes})


def run(model: Path, folder: Path, heedful: HeedfulConfig, tasks: Any = TASKS, **changes: Any) -> tuple[Any, Gradients]:
    noted, script = Gradients(), Script(tasks)
    given = {"num_generations": 4, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, **changes}
    args = arguments(folder, learning_rate=0.01, **given)
    trainer = trainer_of(model, args, script, heedful=heedful, callbacks=[noted], train_dataset=script.dataset())
    trainer.train()
    return trainer, noted


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_the_gradient_is_that_of_the_accepted_groups(loss: str, tiny_model: Path, tmp_path: Path) -> None:
    # Under this seed no task is drawn twice.
    _, found = run(tiny_model, tmp_path / "a", config(sampling_batches=4, seed=1), loss_type=loss)
    rollouts, line = recorded(tmp_path / "a")
    kept = [group for group, verdict in zip(rollouts.groups, rollouts.verdicts, strict=True) if verdict.kept]
    assert line.metrics["filter/refill"].value == "enough"
    assert len(kept) == line.metrics["filter/kept_groups"].value == 3
    assert line.metrics["filter/draws"].value > 1
    shown = [group.trajectories[0].turns[0].reply.prompt.text for group in kept]
    accepted = [next(task for task in TASKS if task.prompt in text) for text in shown]
    _, expected = run(tiny_model, tmp_path / "b", config(filter=KeepAll(on="reward")), accepted, loss_type=loss)
    assert (found.steps[0] - expected.steps[0]).norm() <= 1e-6 * expected.steps[0].norm() > 0


def test_a_refill_ends_with_the_budget_of_batches_or_of_tokens(tiny_model: Path, tmp_path: Path) -> None:
    flat = written([FLAT] * 5)
    for name, changes, draws in (("batches", {"sampling_batches": 3}, 3), ("tokens", {"sampling_tokens": 1}, 1)):
        run(tiny_model, tmp_path / name, config(**{"sampling_batches": 9, **changes}), flat)
        _, line = recorded(tmp_path / name)
        assert line.metrics["filter/refill"].value == "bound"
        assert line.metrics["filter/draws"].value == draws


def test_a_resumed_run_draws_on_where_it_was(tiny_model: Path, tmp_path: Path) -> None:
    saves = {"save_strategy": "steps", "save_steps": 1}
    whole, _ = run(tiny_model, tmp_path / "a", config(sampling_batches=4), max_steps=3, **saves)
    args = arguments(
        tmp_path / "a",
        learning_rate=0.01,
        max_steps=3,
        num_generations=4,
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
    )
    script = Script(TASKS)
    again = trainer_of(
        tiny_model, args, script, heedful=config(sampling_batches=4), callbacks=[], train_dataset=script.dataset()
    )
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert (weights_of(again) == weights_of(whole)).all()


def test_what_a_refill_needs_is_said_before_the_run(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a filter that drops groups"):
        run(tiny_model, tmp_path, config(sampling_batches=2, filter=KeepAll(on="reward")))
