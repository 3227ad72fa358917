"""Measuring inside TRL: it changes nothing, and what cannot be measured says why."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
from accelerate.utils import DistributedType
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
from transformers import GenerationConfig

from benchmarks.families.models import built
from heedful.filters import DropConstant
from heedful.integrations.trl import HeedfulConfig
from heedful.integrations.trl.observer import observer_of, why_unreadable
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.scorers.dealt import DealtScorer
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


@pytest.mark.parametrize(("kind", "method"), [("qwen3_5_text", "cached; not packed: "), ("minimax", "plain; not pack")])
def test_a_recurrent_model_is_measured_and_the_record_names_the_way(
    kind: str, method: str, tiny_model: Path, tmp_path: Path
) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4, max_completion_length=12)
    model = built(kind, vocab_size=4096)
    others = {"model": model, "reward_funcs": differing, "train_dataset": prompts("plain")}
    trainer_of(tiny_model, args, heedful=MEASURED, **others).train()
    assert json.loads((tmp_path / "heedful" / "config.json").read_text())["scorer"].startswith(method)
    _, metrics = recorded(tmp_path)
    assert metrics.metrics["information/first_turn/mi"].value is not None


def test_one_process_that_holds_shards_reads_them_as_several_do(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeRO-3 on one GPU, for the sake of its offloading: weights are empty outside of `in_step`."""
    trainer = trainer_of(
        tiny_model, arguments(tmp_path, num_generations=4), Script(written([[0, 1]])), heedful=MEASURED
    )
    monkeypatch.setattr(type(trainer.accelerator), "distributed_type", DistributedType.DEEPSPEED)
    assert isinstance(observer_of(trainer, MEASURED, MEASURED.filter).diagnostician.scorer, DealtScorer)


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


CUTS: dict[str, Any] = {
    "min_p": 0.1,
    "top_h": 0.4,
    "typical_p": 0.9,
    "epsilon_cutoff": 3e-4,
    "eta_cutoff": 3e-4,
    "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 3,
    "encoder_repetition_penalty": 1.2,
    "bad_words_ids": [[7]],
    "sequence_bias": [[[7], -2.0]],
    "suppress_tokens": [7, 8],
    "begin_suppress_tokens": [7],
    "exponential_decay_length_penalty": [4, 1.1],
    "min_length": 30,
    "min_new_tokens": 4,
    "forced_eos_token_id": 1,
    "guidance_scale": 1.5,
}
"""Settings of a `generation_config.json` that `generate` applies where GRPOConfig says nothing of them."""

OVERRULED = {"temperature": 0.6, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "do_sample": False}
"""Settings for which TRL always gives its own value."""

NEUTRAL = {"min_p": 0.0, "typical_p": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "suppress_tokens": []}


def test_what_a_model_says_of_its_own_sampling_cuts_off_thoughts_as_well(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "generation_config.json").write_text(json.dumps({"min_p": 0.05, "top_k": 20, "eos_token_id": 1}))
    args = arguments(tmp_path / "run", num_generations=4, per_device_train_batch_size=8)
    others = {"reward_funcs": differing, "train_dataset": prompts("plain")}
    trainer = trainer_of(folder, args, heedful=MEASURED, **others)
    trainer.train()
    _, metrics = recorded(tmp_path / "run")
    why = "truncated sampling (min_p of the model's generation_config)"
    for name in ("information/first_turn/mi", "retrieval/first_turn/accuracy"):
        assert (metrics.metrics[name].value, metrics.metrics[name].why) == (None, why)
    assert metrics.metrics["reward/mean"].value is not None

    def asked(**settings: Any) -> str:
        trainer.model.generation_config = GenerationConfig(**settings)
        return why_unreadable(trainer)

    assert {name: asked(**{name: value}) for name, value in CUTS.items()} == {
        name: f"truncated sampling ({name} of the model's generation_config)" for name in CUTS
    }
    assert asked(**OVERRULED) == asked(**NEUTRAL) == ""
    trainer.generation_config.min_p = 0.0  # as GRPOConfig(min_p=0.0)
    assert asked(min_p=0.1) == ""
    trainer.generation_config.top_k = None  # then transformers takes 50
    assert asked() == "truncated sampling (top_k of the model's generation_config)"
    trainer.generation_config.top_k, trainer.use_vllm = 0, True  # which samples by GRPOConfig alone
    assert asked(typical_p=0.9) == ""
