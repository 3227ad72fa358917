"""Gradient checkpointing: layers run twice, the gradient is the same, and nothing else notices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful import cli  # noqa: E402
from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.lora import Adapters  # noqa: E402
from heedful.training.settings import LoraConfig  # noqa: E402
from training_worker import BUDGET, OPTIMIZER, samples, tiny  # noqa: E402


def passes(model: Any) -> Counter[str]:
    """Counts the passes through each decoder layer from now on."""
    counted: Counter[str] = Counter()
    for number, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_hook(lambda *_, number=number: counted.update([f"layer {number}"]))
    model.model.norm.register_forward_hook(lambda *_: counted.update(["norm"]))
    return counted


def kept_bytes(learner: Learner) -> int:
    """What autograd keeps for the backward pass of one batch, parameters aside."""
    own = {parameter.data_ptr() for parameter in learner.model.parameters()}
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += 0 if tensor.data_ptr() in own else tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.accumulate_gradient(samples(), token_budget=BUDGET)
    return kept


def learner_of(model: Any, *, recompute: bool) -> Learner:
    # Without sharing prompts, so that both read the same rows in the same passes.
    algorithm = replace(Grpo(), kl=0.2, entropy=0.1)
    return Learner(
        model,
        algorithm,
        OPTIMIZER,
        UpdateSettings(recompute=recompute, share_prompts=False),
        reference=tiny(torch.float32, 1),
    )


def test_the_gradient_is_bit_equal_and_every_layer_ran_twice() -> None:
    found = []
    for recompute in (False, True):
        model = tiny(torch.float32)
        learner, counted = learner_of(model, recompute=recompute), passes(model)
        reading = learner.accumulate_gradient(samples(), token_budget=BUDGET)
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        found.append((gradient, reading, counted))
        assert not any(module.training for module in model.modules())
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert found[0][2] == {"layer 0": 1, "layer 1": 1, "norm": 1}
    assert found[1][2] == {"layer 0": 2, "layer 1": 2, "norm": 1}


def test_fewer_bytes_are_kept_for_the_backward_pass() -> None:
    kept, recomputed = (kept_bytes(learner_of(tiny(torch.float32), recompute=one)) for one in (False, True))
    assert recomputed < 0.6 * kept


def test_updates_are_bit_equal() -> None:
    weights = []
    for recompute in (False, True):
        learner = learner_of(tiny(torch.float32), recompute=recompute)
        for _ in range(2):
            learner.update(samples(), token_budget=BUDGET)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in learner.model.parameters()]))
    assert torch.equal(*weights)


def test_what_takes_no_gradient_runs_once_and_keeps_its_cache() -> None:
    model = tiny(torch.float32)
    learner_of(model, recompute=True)
    counted = passes(model)
    with torch.no_grad():
        output = model(input_ids=torch.arange(5)[None], use_cache=True)
    assert counted == {"layer 0": 1, "layer 1": 1, "norm": 1}
    assert output.past_key_values.get_seq_length() == 5


def test_additions_to_frozen_weights_have_the_same_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        model = tiny(torch.float32)
        Adapters(model, LoraConfig(rank=2), seed=0)
        learner_of(model, recompute=recompute).accumulate_gradient(samples(), token_budget=BUDGET)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))
    assert torch.equal(*gradients)
    assert bool(gradients[0].any())


def test_a_model_that_drops_out_is_refused() -> None:
    model = tiny(torch.float32)
    model.config.attention_dropout = 0.1
    with pytest.raises(ValueError, match=r"a model without dropout, found attention_dropout 0\.1 in its config\.json"):
        learner_of(model, recompute=True)


def test_a_model_whose_layers_take_no_part_is_refused() -> None:
    model = tiny(torch.float32)
    model.model.layers = torch.nn.ModuleList()
    model.config.num_hidden_layers = 0
    with pytest.raises(ValueError, match="expects decoder layers that can be computed again, but LlamaForCausalLM"):
        learner_of(model, recompute=True)


def test_the_flag_reaches_the_learner(tmp_path: Path, echo_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from heedful.boundary import to_json
    from heedful.run import parts

    asked = []

    class Asked(Learner):
        def __init__(self, *given: Any, **named: Any) -> None:
            asked.append(next(one for one in given if isinstance(one, UpdateSettings)).recompute)
            super().__init__(*given, **named)

    monkeypatch.setattr(parts, "Learner", Asked)
    quick = replace(echo_run, steps=1, evaluation=replace(echo_run.evaluation, times=0))
    (tmp_path / "config.json").write_text(json.dumps(to_json(quick)))
    flags = ["--config", str(tmp_path / "config.json"), "--gradient-checkpointing", "--out", str(tmp_path / "run")]
    assert cli.run(["train", "echo", *flags]) == 0
    assert asked == [True]
