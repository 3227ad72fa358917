"""LoRA: only the additions move, switched off they are not there, merged they are an ordinary model; and it learns."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


from benchmarks.families.models import built  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.algorithms.table import Grpo, Ppo  # noqa: E402
from heedful.boundary import to_json  # noqa: E402
from heedful.models.forward.token_logits import token_logits  # noqa: E402
from heedful.models.load import read_model  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.storage import RunFolder, read_metrics, write_whole  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.lora import Adapters  # noqa: E402
from heedful.training.settings import LoraConfig, OptimizerConfig  # noqa: E402
from training_worker import BUDGET, OPTIMIZER, samples, tiny  # noqa: E402

IDS = torch.arange(12)[None] % 13


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def moved(adapters: Adapters) -> Adapters:
    """Additions that add something."""
    generator = torch.Generator().manual_seed(3)
    for parameter in adapters.model.parameters():
        if parameter.requires_grad:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 10)
    return adapters


def test_at_first_nothing_is_added_and_everything_else_is_frozen() -> None:
    plain, model = tiny(torch.float32), tiny(torch.float32)
    Adapters(model, LoraConfig(rank=2), seed=0)
    assert torch.equal(logits(model), logits(plain))
    trained = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    # Seven linear layers in each of two decoder layers, an A and a B in each; the output head has none.
    assert len(trained) == 2 * 7 * 2
    assert trained["model.layers.0.mlp.gate_proj.lora_A.default.weight"] == (2, 16)
    assert trained["model.layers.0.mlp.gate_proj.lora_B.default.weight"] == (24, 2)
    assert all(".lora_" in name for name in trained)


def test_the_first_additions_depend_on_the_seed_and_on_no_global_generator() -> None:
    def drawn(seed: int, state: int) -> torch.Tensor:
        torch.manual_seed(state)
        model = tiny(torch.float32)
        before = torch.random.get_rng_state()
        Adapters(model, LoraConfig(rank=2), seed)
        assert torch.equal(torch.random.get_rng_state(), before)
        return torch.cat([p.flatten() for name, p in model.named_parameters() if ".lora_A." in name])

    assert torch.equal(drawn(0, 1), drawn(0, 2))
    assert not torch.equal(drawn(0, 1), drawn(1, 1))
    assert float(drawn(0, 1).detach().abs().max()) <= 1 / 16**0.5  # kaiming, uniform, with a = sqrt 5


def test_an_addition_is_alpha_over_rank_times_b_a() -> None:
    model = tiny(torch.float64)
    weight = model.model.layers[1].self_attn.q_proj.weight.detach().clone()
    adapters = moved(Adapters(model, LoraConfig(rank=2, alpha=3, targets=("q_proj",)), seed=0))
    layer = model.model.layers[1].self_attn.q_proj
    added = layer.lora_B.default.weight.detach() @ layer.lora_A.default.weight.detach() * 1.5
    merged = adapters.merged()["model.layers.1.self_attn.q_proj.weight"]
    assert torch.allclose(merged, weight + added, atol=1e-7)
    assert LoraConfig(rank=4).scaled_by == 8


def test_switched_off_the_model_is_what_it_was_and_then_learns_on() -> None:
    plain, model = tiny(torch.float32), tiny(torch.float32)
    adapters = moved(Adapters(model, LoraConfig(rank=2), seed=0))
    added = logits(model)
    with adapters.off():
        assert torch.equal(logits(model), logits(plain))
    assert torch.equal(logits(model), added)
    assert not torch.equal(added, logits(plain))
    assert sum(p.requires_grad for p in model.parameters()) == 28


def test_the_reference_is_the_model_without_additions() -> None:
    model, other = (tiny(torch.float64) for _ in range(2))
    adapters = moved(Adapters(model, LoraConfig(rank=2), seed=0))
    moved(Adapters(other, LoraConfig(rank=2), seed=0))
    found = []
    for policy, reference in ((model, adapters.without(token_logits(model))), (other, tiny(torch.float64))):
        learner = Learner(
            policy, replace(Grpo(), kl=0.5), OPTIMIZER, UpdateSettings(micro_batch_tokens=40), reference=reference
        )
        reading = learner.accumulate_gradient(samples(), token_budget=BUDGET)
        gradients = [p.grad.flatten() for p in policy.parameters() if p.requires_grad]
        found.append((reading.loss, torch.cat(gradients)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-6)
    assert bool(found[0][1].any())


def test_an_update_moves_the_additions_alone() -> None:
    model = tiny(torch.float32)
    Adapters(model, LoraConfig(rank=2), seed=0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    Learner(model, Grpo(), OPTIMIZER).update(samples(), token_budget=BUDGET)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if ".lora_B." in name}  # A has a gradient as soon as B is not zero


def test_additions_to_bfloat16_weights_are_float32(tmp_path: Path) -> None:
    model = tiny(torch.bfloat16)
    adapters = moved(Adapters(model, LoraConfig(rank=2), seed=0))
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    adapters.save_pretrained(tmp_path)
    assert read_model(tmp_path, torch.bfloat16, "").dtype == torch.bfloat16
    again = Adapters(tiny(torch.bfloat16), LoraConfig(rank=2), seed=1)
    again.load(tmp_path)
    assert torch.equal(logits(again.model), logits(model))


@pytest.mark.parametrize("tied", [False, True])
def test_saved_it_is_an_ordinary_model_and_peft_reads_the_additions(tied: bool, tmp_path: Path) -> None:
    model = tiny(torch.float32, tied=tied)
    adapters = moved(Adapters(model, LoraConfig(rank=2), seed=0))
    adapters.save_pretrained(tmp_path)
    merged = read_model(tmp_path, torch.float32, "")
    assert not any("lora" in name for name in merged.state_dict())
    assert torch.allclose(logits(merged), logits(model), atol=1e-5)
    on_base = peft.PeftModel.from_pretrained(tiny(torch.float32, tied=tied), tmp_path / "adapter")
    assert torch.equal(logits(on_base.eval()), logits(model))


@pytest.mark.parametrize("kind", ["qwen3_moe", "phimoe", "deepseek_v4"])
def test_a_mixture_of_experts_may_have_additions(kind: str, tmp_path: Path) -> None:
    """peft 0.21 wraps both weights of Qwen's experts, and would wrap Phi's router and DeepSeek's grouped layers."""
    model = built(kind)
    before = logits(model)
    adapters = moved(Adapters(model, LoraConfig(rank=2), seed=0))
    adapters.save_pretrained(tmp_path)
    assert torch.allclose(logits(read_model(tmp_path, torch.float32, "")), logits(model), atol=1e-5)
    with adapters.off():
        assert torch.equal(logits(model), before)


def test_what_was_saved_comes_back_to_the_bit_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = tiny(torch.float32)
    moved(Adapters(model, LoraConfig(rank=2), seed=0)).save_pretrained(tmp_path)
    again = Adapters(tiny(torch.float32), LoraConfig(rank=2), seed=1)
    again.load(tmp_path)
    assert torch.equal(logits(again.model), logits(model))
    with pytest.raises(ValueError, match=r"fit the model and lora.rank of this run, found 28 others"):
        Adapters(tiny(torch.float32), LoraConfig(rank=3), seed=0).load(tmp_path)
    with pytest.raises(ValueError, match=r"found no such file. Leave out --lora.rank if you typed it. If not, delete"):
        again.load(tmp_path / "elsewhere")


def test_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lora.targets \(nose_proj\) to name linear layers of LlamaForCausalLM"):
        Adapters(tiny(torch.float32), LoraConfig(rank=2, targets=("nose_proj",)), seed=0)
    with pytest.raises(ValueError, match="1 or more different items"):
        LoraConfig(rank=1, targets=())


@pytest.mark.parametrize(("target", "tied"), [("lm_head", True), ("embed_tokens", True), ("embed_tokens", False)])
def test_embeddings_and_a_head_that_shares_their_weights_are_refused(target: str, tied: bool) -> None:
    with pytest.raises(ValueError, match=rf"lora.targets \(.*{target}.*\) to name linear layers with weights of their"):
        Adapters(tiny(torch.float32, tied=tied), LoraConfig(rank=2, targets=("q_proj", target)), seed=0)


def test_a_head_of_its_own_weights_may_have_additions(tmp_path: Path) -> None:
    adapters = moved(Adapters(tiny(torch.float32), LoraConfig(rank=2, targets=("q_proj", "lm_head")), seed=0))
    adapters.save_pretrained(tmp_path)
    assert torch.allclose(logits(read_model(tmp_path, torch.float32, "")), logits(adapters.model), atol=1e-5)


def test_without_peft_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without_peft(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "peft":
            raise ImportError("No module named 'peft'")
        return found(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(ImportError, match=r"LoRA \(--lora.rank\) needs peft.*pip install 'heedful\[lora\]'"):
        Adapters(tiny(torch.float32), LoraConfig(rank=2), seed=0)


def lora_run(echo_run: TrainConfig, **changes: Any) -> TrainConfig:
    config = replace(
        echo_run,
        steps=4,
        lora=LoraConfig(rank=4),
        evaluation=EvaluationConfig(tasks=16, samples=2, times=2),
        diagnostics=DiagnosticsConfig(share=None, every=2, full_every=4),
    )
    return replace(config, **changes)


def run(config: TrainConfig, folder: Path) -> list[dict[str, Any]]:
    """The metrics of each step but for times."""
    write_whole(folder.with_suffix(".json"), json.dumps(to_json(config)))
    assert cli.run(["train", "echo", "--config", str(folder.with_suffix(".json")), "--out", str(folder)]) == 0
    return readings(folder)


def readings(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: metric for name, metric in line.metrics.items() if not name.startswith("time/")}
        for line in read_metrics(RunFolder(folder).metrics)
    ]


def test_a_killed_run_with_additions_and_a_reference_resumes_with_the_same_bytes(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    whole = run(lora_run(echo_run, algorithm=Grpo(kl=0.1)), tmp_path / "whole")
    (tmp_path / "whole" / "checkpoints" / "step_000004").rename(tmp_path / "last")
    assert cli.run(["train", "--resume", str(tmp_path / "whole")]) == 0
    assert readings(tmp_path / "whole") == whole
    for file in ("model.safetensors", "adapter/adapter_model.safetensors", "adapter/adapter_config.json"):
        again = tmp_path / "whole" / "checkpoints" / "step_000004" / file
        assert again.read_bytes() == (tmp_path / "last" / file).read_bytes()
    assert whole[2]["policy/kl_to_reference"].value > 0
    assert all(line["policy/logprob_error"].value < 1e-4 for line in whole[:4])


def test_ppo_trains_additions_to_the_policy_and_to_its_critic(echo_run: TrainConfig, tmp_path: Path) -> None:
    lines = run(lora_run(echo_run, steps=2, algorithm=Ppo()), tmp_path / "ppo")
    assert all(line["critic/gradient_norm"].value > 0 for line in lines[:2])
    assert all(line["policy/gradient_norm"].value > 0 for line in lines[:2])


@pytest.mark.proof
def test_the_additions_alone_learn_echo(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = lora_run(
        echo_run,
        steps=16,
        groups=12,
        group_size=12,
        lora=LoraConfig(rank=16, alpha=16),
        optimizer=OptimizerConfig(lr=5e-3, betas=(0.9, 0.99), warmup_steps=2),
        evaluation=EvaluationConfig(times=0),
        diagnostics=DiagnosticsConfig(enabled=False),
        checkpoint_every=100,
    )
    rates = [line["success/rate"].value for line in run(config, tmp_path / "learns")]
    # 576 episodes each: a standard error of .029 for the difference.
    assert fmean(rates[-4:]) > fmean(rates[:4]) + 0.1, rates
