"""Probes: a model is read once for all who ask, and again when its weights have changed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful.models.forward import exactness  # noqa: E402
from heedful.models.forward.exactness import Probe  # noqa: E402
from heedful.models.forward.token_logits import keeps_prompts  # noqa: E402
from heedful.policies.growing import way_of  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from tiny_models import llama  # noqa: E402

FIRST = 9  # three thoughts under three prompts
AGAIN = 1


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plain forward passes so far."""
    found: list[Any] = []
    plain = exactness._plain_logprobs

    def counted(*given: Any) -> Any:
        found.append(given)
        return plain(*given)

    monkeypatch.setattr(exactness, "_plain_logprobs", counted)
    return found


def test_sampler_learner_and_scorer_share_what_was_read(passes: list[Any]) -> None:
    model = llama(50)
    assert keeps_prompts(model)
    assert len(passes) == FIRST
    assert way_of(model)[1] == ""
    assert HFScorer(model).method == "packed"
    assert len(passes) == FIRST + 2 * AGAIN
    assert HFScorer(llama(50)).method == "packed"
    assert len(passes) == 2 * FIRST + 2 * AGAIN, "another model is read anew"


def test_other_weights_are_read_anew(passes: list[Any]) -> None:
    model = llama(50)
    before = Probe.of(model)
    assert Probe.of(model) is before
    with torch.no_grad():
        model.get_input_embeddings().weight[0] *= 1.001
        model.get_output_embeddings().weight *= 1.001
    after = Probe.of(model)
    assert after.logprobs[0][0].tolist() != before.logprobs[0][0].tolist()
    assert len(passes) == 2 * FIRST + 2 * AGAIN


def test_a_model_that_gives_nan_is_read_each_time(passes: list[Any]) -> None:
    model = llama(50)
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    assert not Probe.of(model).finite
    assert not Probe.of(model).finite
    assert len(passes) == 2 * FIRST + AGAIN


def test_a_way_that_loses_a_window_of_80_tokens_is_found_out_with_66_tokens() -> None:
    config = transformers.Gemma3TextConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, sliding_window=80, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.Gemma3ForCausalLM(config).eval()
    held = [(module, module.sliding_window) for module in model.modules() if hasattr(module, "sliding_window")]
    probe = Probe.of(model)

    def without_window() -> list[list[Any]]:
        narrowed, model.config.sliding_window = model.config.sliding_window, 200
        assert narrowed == 8
        try:
            return [[exactness._plain_logprobs(model, p, thought) for p in probe.prompts] for thought in probe.thoughts]
        finally:
            model.config.sliding_window = narrowed

    assert "differ from those of a plain forward pass" in probe.obstacle(without_window)
    assert model.config.sliding_window == 80
    assert held
    assert all(module.sliding_window == window for module, window in held)


def test_the_probe_reads_beyond_a_window_that_modules_hold() -> None:
    config = transformers.GPTNeoConfig(
        vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=100, max_position_embeddings=400,
    )  # fmt: skip
    assert len(Probe.of(transformers.GPTNeoForCausalLM(config).eval()).prompts[-1]) > 100
