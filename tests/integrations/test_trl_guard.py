"""Which TRL is accepted: what is private to it and touched here, and what is said of another release."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
import trl
from tiny_trl import Script, arguments, filtering, trainer_of, written

from heedful.filters import DropConstant, RandomSubset, Shrunken, SoftWeight
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer, Probe, compatibility

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ALL = compatibility.PRIVATE | compatibility.PRIVATE_OF_ROLLOUTS | compatibility.PRIVATE_OF_PROBE


def test_the_release_that_is_installed_is_one_that_the_tests_know() -> None:
    assert trl.__version__.startswith(tuple(f"{series}." for series in compatibility.TESTED))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compatibility.check(ALL)


def test_private_methods_that_are_overridden_are_all_checked() -> None:
    own = {name for name, value in vars(HeedfulGRPOTrainer).items() if callable(value) and not name.startswith("__")}
    of_trl = {name for name in own if hasattr(trl.GRPOTrainer, name)}
    assert {name for name in of_trl if name.startswith("_")} == set(compatibility.PRIVATE)
    assert {name for name in of_trl if not name.startswith("_")} == {"compute_loss", "train"}


def test_a_generation_gives_prompts_completions_and_masks_in_this_order(tiny_model: Path, tmp_path: Path) -> None:
    script = Script(written([[0, 1]]))
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=2)
    trainer = trainer_of(tiny_model, args, script)
    prompt = script.dataset()[0]["prompt"]
    generated = trl.GRPOTrainer._generate(trainer, [prompt, prompt])
    rows = script([prompt, prompt], trainer)
    assert generated[:3] == (rows["prompt_ids"], rows["completion_ids"], None)


@pytest.mark.parametrize("version", ["1.13.1", "1.17.0", "2.0.0", "1.160.0"])
def test_an_unknown_release_that_looks_the_same_gets_a_sentence(version: str) -> None:
    with pytest.warns(UserWarning, match=f"tested with trl 1.14, 1.15, 1.16, found {version}"):
        compatibility.check(ALL, version)


@pytest.mark.parametrize("name", list(ALL))
def test_a_private_method_that_changed_is_found_before_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(self: Any, somewhat: Any, different: Any) -> None: ...

    monkeypatch.setattr(trl.GRPOTrainer, name, changed)
    with pytest.raises(ValueError, match=rf"{name} is gone or take.* other parameters. Install trl==1.16.\*"):
        compatibility.check(ALL)


def test_a_forwarded_method_may_take_more_than_heedful_gives_but_not_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def newer(
        self: Any, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: Any, new: Any = 0, **_: Any
    ) -> Any: ...

    def poorer(
        self: Any, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: Any, pixel_values: Any
    ) -> Any: ...

    monkeypatch.setattr(trl.GRPOTrainer, compatibility.FORWARDED, newer)
    compatibility.check(ALL)
    monkeypatch.setattr(trl.GRPOTrainer, compatibility.FORWARDED, poorer)
    with pytest.raises(ValueError, match=f"in which {compatibility.FORWARDED} is gone or take.* other parameters"):
        compatibility.check(ALL)


def test_a_private_method_that_is_gone_stops_trainer_and_probe_when_they_are_made(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=2)
    script = Script(written([[0, 1]]))
    plain = trainer_of(tiny_model, args, script)
    monkeypatch.delattr(trl.GRPOTrainer, "_generate")
    monkeypatch.delattr(trl.GRPOTrainer, "_tokenize_prompts")
    with pytest.raises(ValueError, match="_generate is gone"):
        trainer_of(tiny_model, args, script, heedful=filtering())
    with pytest.raises(ValueError, match="_tokenize_prompts is gone"):
        Probe().attach(plain)


def test_an_attribute_that_is_gone_stops_the_trainer_when_it_is_made(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "PRIVATE_ATTRIBUTES", ("_metrics", "_records"))
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=2)
    with pytest.raises(ValueError, match="in which _records is gone"):
        trainer_of(tiny_model, args, Script(written([[0, 1]])), heedful=filtering())


def test_a_filter_of_trls_own_makes_ours_step_aside(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4)
    setattr(args, compatibility.FILTER_OF_TRL, "top_p")
    with pytest.warns(UserWarning, match="TRL filters by itself .* is disabled. The diagnostics continue"):
        trainer = trainer_of(tiny_model, args, Script(written([[1, 1], [0, 1]])), heedful=filtering())
    trainer.train()
    assert trainer.state.log_history[0]["filter/kept_ratio"] == 1
    assert trainer.state.log_history[0]["signal/mixed"] == 0.5
    (batch,) = trainer._buffered_inputs
    assert len(batch["advantages"]) == 4


@pytest.mark.parametrize("chosen", [None, False, ""])
def test_a_filter_of_trls_own_that_is_off_leaves_ours_on(chosen: Any, tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4)
    setattr(args, compatibility.FILTER_OF_TRL, chosen)
    ours = filtering(DropConstant(on="reward"))
    trainer = trainer_of(tiny_model, args, Script(written([[1, 1], [0, 1]])), heedful=ours)
    trainer.train()
    (batch,) = trainer._buffered_inputs
    assert len(batch["advantages"]) == 2
    assert torch.isfinite(batch["advantages"]).all()


@pytest.mark.parametrize("soft", [SoftWeight(), RandomSubset(like=SoftWeight()), Shrunken(like=SoftWeight())], ids=repr)
def test_a_filter_that_weighs_softly_is_refused_when_it_is_configured(soft: Any) -> None:
    with pytest.raises(ValueError, match=rf"{type(soft).__name__} gives soft weights .* Choose a filter"):
        HeedfulConfig(filter=soft)
    assert HeedfulConfig(filter=Shrunken()).filter == Shrunken()
