"""Steps of which the filter keeps nothing: no update at all, and the run goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
from tiny_trl import Script, arguments, filtering, trainer_of, weights_of, written
from transformers import TrainerCallback

from heedful.storage import RunFolder, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SPREAD, CONSTANT = [[0, 1], [1, 0]], [[1, 1], [0, 0]]


class States(TrainerCallback):
    """Weights and optimiser moments after every step."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []
        self.moments: list[list[torch.Tensor]] = []

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        self.weights.append(torch.cat([parameter.detach().clone().flatten() for parameter in model.parameters()]))
        states = optimizer.state_dict()["state"].values()
        self.moments.append([value.clone() for state in states for value in state.values() if torch.is_tensor(value)])


@pytest.mark.parametrize("optimizer", ["adamw_torch", "sgd"])
def test_an_empty_step_leaves_weights_and_moments_as_they_are_to_the_last_bit(
    optimizer: str, tiny_model: Path, tmp_path: Path
) -> None:
    states = States()
    args = arguments(
        tmp_path,
        max_steps=3,
        num_generations=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        beta=0.1,
        optim=optimizer,
        optim_args="momentum=0.9" if optimizer == "sgd" else None,
        learning_rate=1e-2,
        weight_decay=0.1,
        max_grad_norm=1.0,
        save_strategy="steps",
        save_steps=1,
    )
    script = Script(written([*SPREAD, *CONSTANT, *SPREAD]))
    trainer = trainer_of(tiny_model, args, script, heedful=filtering(record=True), callbacks=[states])
    trainer.train()
    assert torch.equal(states.weights[0], states.weights[1])
    assert states.moments[0]
    assert all(torch.equal(before, after) for before, after in zip(*states.moments[:2], strict=True))
    assert not torch.equal(states.weights[1], states.weights[2])
    history = trainer.state.log_history
    assert [line["filter/empty"] for line in history[:3]] == [0, 1, 0]
    assert [line["grad_norm"] > 0 for line in history[:3]] == [True, False, True]
    assert ["entropy" in line for line in history[:3]] == [True, False, True]
    assert all(math.isfinite(line["loss"]) for line in history[:3])
    assert (tmp_path / "checkpoint-2" / "heedful.json").exists()
    lines = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    assert [line.metrics["filter/kept_groups"].value for line in lines] == [2, 0, 2]


def test_an_empty_step_leaves_the_controller_of_the_entropy_bonus_alone(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(
        tmp_path,
        max_steps=2,
        num_generations=2,
        per_device_train_batch_size=4,
        use_adaptive_entropy=True,
        entropy_coef=0.1,
        entropy_coef_delta=0.01,
        entropy_target=1.0,
    )
    trainer = trainer_of(tiny_model, args, Script(written([*SPREAD, *CONSTANT])), heedful=filtering())
    trainer.train()
    # The entropy of random weights is above the target, so the first step lowers the coefficient; nothing was seen of
    # it in the second one.
    assert trainer.entropy_coef == pytest.approx(0.09)
    assert trainer._last_world_entropy > 3


def test_a_window_of_idle_rows_alone_is_no_update_either(tiny_model: Path, tmp_path: Path) -> None:
    # 2 kept rows in 4 windows of one micro-batch each: two windows have one, two have none.
    states = States()
    args = arguments(
        tmp_path,
        max_steps=4,
        num_generations=2,
        per_device_train_batch_size=2,
        steps_per_generation=4,
        learning_rate=1e-2,
        optim="adamw_torch",
        weight_decay=0.1,
    )
    script = Script(written([[0, 1], [1, 1], [0, 0], [1, 1]]))
    trainer = trainer_of(tiny_model, args, script, heedful=filtering(), callbacks=[states])
    before = weights_of(trainer)
    trainer.train()
    pairs = zip([before, *states.weights], states.weights, strict=False)
    moved = [not torch.equal(earlier, later) for earlier, later in pairs]
    assert sorted(moved) == [False, False, True, True]
    assert [line["grad_norm"] > 0 for line in trainer.state.log_history[:4]] == moved
    assert ["entropy" in line for line in trainer.state.log_history[:4]] == moved


def test_where_an_engine_updates_by_itself_it_is_said(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4)
    trainer = trainer_of(tiny_model, args, Script(written(SPREAD)), heedful=filtering())
    trainer.is_deepspeed_enabled = True
    with pytest.warns(UserWarning, match="DeepSpeed updates the weights by itself"):
        trainer._chosen_filter()
