"""Measuring inside TRL: it changes nothing, and what cannot be measured says why."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
from tiny_trl import (
    MEASURED,
    Script,
    arguments,
    differing,
    filtering,
    lora,
    prompts,
    recorded,
    trainer_of,
    weights_of,
    written,
)

from heedful.filters import DropConstant
from heedful.integrations.trl import HeedfulConfig
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.storage import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_completions_without_a_thought_are_no_reason_to_end_a_run(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=2, num_generations=2, per_device_train_batch_size=4)
    trainer = trainer_of(tiny_model, args, Script(written([[1, 1], [0, 1], [1, 0], [0, 1]])), heedful=MEASURED)
    trainer.train()
    _, metrics = recorded(tmp_path, 1)
    assert metrics.metrics["information/first_turn/mi"].value is None
    assert metrics.metrics["information/first_turn/mi"].why == "no thought to score"
    assert RunFolder(tmp_path / "heedful").score_steps() == []
    assert metrics.metrics["reward/mean"].value == 0.5


def test_measuring_changes_nothing_of_the_training(tiny_model: Path, tmp_path: Path) -> None:
    # Sampled completions and dropout: any random number that a measurement drew from TRL's would show.
    weights, rewards = [], []
    for name, diagnostics in (("with", DiagnosticsConfig(every=1, full_every=2)), ("without", None)):
        heedful = (
            HeedfulConfig(filter=DropConstant(on="reward"), diagnostics=diagnostics) if diagnostics else filtering()
        )
        args = arguments(
            tmp_path / name,
            max_steps=3,
            num_generations=4,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=0.05,
            disable_dropout=False,
            gradient_checkpointing=True,
            max_completion_length=12,
        )
        others = {"reward_funcs": differing, "train_dataset": prompts("plain"), "peft_config": lora()}
        trainer = trainer_of(tiny_model, args, heedful=heedful, **others)
        trainer.train()
        weights.append(weights_of(trainer))
        rewards.append([line["reward"] for line in trainer.state.log_history if "reward" in line])
    assert RunFolder(tmp_path / "with" / "heedful").score_steps() == [0, 2]
    assert rewards[0] == rewards[1]
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({"top_k": 20}, "top_k"),
        ({"top_p": 0.9}, "top_p"),
        ({"min_p": 0.1}, "min_p"),
        ({"generation_kwargs": {"typical_p": 0.8}}, "typical_p"),
        ({"generation_kwargs": {"top_p": 1.0}}, None),
    ],
    ids=["top_k", "top_p", "min_p", "typical_p", "neutral"],
)
def test_thoughts_of_a_truncated_sampler_are_not_scored_and_the_reason_is_given(
    changes: dict[str, Any], cut: str | None, tiny_model: Path, tmp_path: Path
) -> None:
    args = arguments(tmp_path, num_generations=4, per_device_train_batch_size=8, **changes)
    others = {"reward_funcs": differing, "train_dataset": prompts("plain")}
    trainer_of(tiny_model, args, heedful=MEASURED, **others).train()
    _, metrics = recorded(tmp_path)
    mi = metrics.metrics["information/first_turn/mi"]
    if cut is None:
        assert mi.value is not None
    else:
        assert (mi.value, mi.why) == (None, f"truncated sampling ({cut})")
    assert metrics.metrics["reward/mean"].value is not None
    assert not math.isnan(metrics.metrics["reward/mean"].value)
