"""Every method of the scorer against plain forward passes, on architectures that not every method can read."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tiny_architectures as tiny  # noqa: E402
from heedful.scorers import cached  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from scored_pairs import case, llama, naive, score, some_ids  # noqa: E402

READ_AS = {
    "deepseek_v2": "cached",
    "deepseek_v3": "cached",
    "minicpm3": "cached",
    "glm4_moe_lite": "cached",
    "gpt_oss": "cached",
    "openai-gpt": "plain",
    "llama": "packed",
    "qwen2": "packed",
    "gpt2": "packed",
}


@pytest.fixture(scope="module", params=READ_AS)
def built(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    """The name, the model, and its naive scores of `long_case`."""
    model = tiny.built(request.param)
    prompts, thoughts, _ = long_case()
    return request.param, model, naive(model, prompts, thoughts)


def long_case() -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Also a prompt that is long enough for the fused kernel of a CPU."""
    prompts, thoughts, own = case()
    return [*prompts, some_ids(random.Random(1), 70)], thoughts, own


def test_scores_are_those_of_plain_forward_passes_and_the_method_is_named(built: tuple[str, Any, Any]) -> None:
    name, model, expected_MN = built
    scored = score(model, *long_case())
    np.testing.assert_allclose(scored.scores_MN, expected_MN, rtol=0, atol=1e-4)
    assert scored.method.split(";")[0] == READ_AS[name]
    assert ("not packed: it" in scored.method) == (READ_AS[name] != "packed")


@pytest.mark.parametrize("method", ["packed", "trie", "cached", "plain"])
def test_a_method_that_is_asked_for_is_exact_or_refused_with_a_sentence(
    built: tuple[str, Any, Any], method: str
) -> None:
    name, model, expected_MN = built
    prompts, thoughts, own = long_case()
    slowest_first = ["plain", "cached", "packed"]
    exact = slowest_first[: slowest_first.index(READ_AS[name]) + 1]
    if method.replace("trie", "packed") not in exact:
        with pytest.raises(ValueError, match=f"for method='{method}', found that it.*pass method='auto'"):
            score(model, prompts, thoughts, own, method=method)
        return
    scored = score(model, prompts, thoughts, own, method=method)
    np.testing.assert_allclose(scored.scores_MN, expected_MN, rtol=0, atol=1e-4)
    assert scored.method == method


def test_a_model_that_takes_a_cache_and_keeps_none_is_scored_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(torch.float32), case()
    forward = model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda **named: forward(**{**named, "use_cache": False}))
    scored = score(model, prompts, thoughts, own)
    nothing = "it keeps no state of what it has read"
    assert scored.method == f"plain; not packed: {nothing}; not cached: {nothing}; not by_token: {nothing}"
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=f"found that {nothing}"):
        score(model, prompts, thoughts, own, method="cached")


def test_a_cache_with_other_positions_fails_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(torch.float32), case()
    forward = model.model.forward

    def from_zero(*ids: Any, **named: Any) -> Any:
        if named.get("past_key_values") is not None and named["past_key_values"].get_seq_length():
            named["position_ids"] = torch.arange(named["input_ids"].shape[1])[None]
        return forward(*ids, **named)

    monkeypatch.setattr(model.model, "forward", from_zero)
    with pytest.raises(ValueError, match=r"its log-probabilities differ from those of a plain forward pass by .* nats"):
        score(model, prompts, thoughts, own, method="cached")


def test_a_model_that_reads_later_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama(torch.float32)
    forward = model.model.forward

    def leaking(*ids: Any, **named: Any) -> Any:
        output = forward(*ids, **named)
        output.last_hidden_state = output.last_hidden_state + output.last_hidden_state.mean(1, keepdim=True)
        return output

    monkeypatch.setattr(model.model, "forward", leaking)
    for method in ("auto", "plain"):
        with pytest.raises(ValueError, match="causal language model, found that its log-probabilities depend on later"):
            score(model, [[1]], [[2, 3]], method=method)


def test_the_probe_runs_once_and_lack_of_memory_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = llama(), []
    score_cached = cached.score_cached
    monkeypatch.setattr(
        cached, "score_cached", lambda *given, **named: (calls.append(1), score_cached(*given, **named))
    )
    scorer = HFScorer(model, method="cached")
    for _ in range(3):
        scorer.cross_score([[1]], [[2, 3]], [0], 1.0)
    assert len(calls) == 1 + 3

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cached, "score_cached", full)
    with pytest.raises(torch.OutOfMemoryError):
        score(model, [[1]], [[2, 3]], method="cached")


def outcome(model: Any) -> str:
    """How a model is scored: `exact` (packed), `fallback`, `refused` with a sentence, or `wrong`."""
    prompts, thoughts, own = case()
    try:
        scored = score(model, prompts, thoughts, own)
    except ValueError as refused:
        return "refused" if str(refused).startswith(("Expected a causal model", "HFScorer expected")) else "wrong"
    error = np.abs(scored.scores_MN - naive(model, prompts, thoughts)).max()
    # Prompts of 12 tokens and thoughts of 18 are longer than the probe's, so their rounding is too.
    if not error <= max(1e-4, 4 * scored.noise):
        return "wrong"
    return "exact" if scored.method in ("packed", "trie") else "fallback"


@pytest.mark.proof
def test_no_architecture_of_transformers_is_scored_wrongly(
    record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, list[str]] = {kind: [] for kind in ("exact", "fallback", "refused", "wrong", "not built")}
    for kind in tiny.names():
        try:
            model = tiny.built(kind)
        except tiny.NOT_BUILT:
            found["not built"].append(kind)
        else:
            found[outcome(model)].append(kind)
    tried = sum(map(len, found.values())) - len(found["not built"])
    record_property("cases", tried)
    with capsys.disabled():
        print(f"\n{tried} architectures; " + "; ".join(f"{len(v)} {k}: {' '.join(v)}" for k, v in found.items()))
    assert found["wrong"] == []
    assert len(found["exact"]) > 20
    assert len(found["fallback"]) > 5
