"""Probes: a model is read once for all who ask, and again when its weights have changed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.models.forward import exactness  # noqa: E402
from heedful.models.forward.exactness import Probe  # noqa: E402
from heedful.models.forward.token_logits import keeps_prompts  # noqa: E402
from heedful.policies.next_logits import obstacle_to_kv_cache  # noqa: E402
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
    assert obstacle_to_kv_cache(model) == ""
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
