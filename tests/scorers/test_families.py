"""The scorer on families of models of today: exact beyond windows and chunks, by the fastest exact way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.families.models import FAMILIES, LONGER, VOCABULARY, WINDOW, built  # noqa: E402
from heedful.models.forward.token_logits import keeps_prompts  # noqa: E402
from heedful.policies.growing import way_of  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from scored_pairs import naive  # noqa: E402

READ_AS = {
    "mistral": "cached",
    "gemma3_text": "cached",
    "gemma3n_text": "cached",
    "gpt_oss": "cached",
    "llama4_text": "cached",
    "qwen3_5_text": "cached",
    "falcon_h1": "cached",
    "nemotron_h": "cached",
    "zamba2": "cached",
    "mamba2": "cached",
    "jamba": "by_token",
    "mamba": "by_token",
    "deepseek_v32": "cached",
    "minimax": "plain",
    "recurrent_gemma": "plain",
}
SHARES = {"mistral", "gemma3_text", "gemma3n_text", "gpt_oss", "llama4_text"}
"""The families whose learner computes a prompt once for several rows."""


def pairs() -> tuple[list[list[int]], list[list[int]]]:
    """Prompts beyond a window of 80. Thoughts beyond chunks of 64, of one token and of two."""
    rng = random.Random(0)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in (90, 90, 3)]
    return prompts, [[rng.randrange(VOCABULARY) for _ in range(length)] for length in (70, 9, 1, 2)]


def largest_error(model: Any) -> tuple[float, HFScorer]:
    """The largest difference of a score from that of a plain forward pass, in nats."""
    prompts, thoughts = pairs()
    scorer = HFScorer(model)
    expected_MN = naive(model, prompts, thoughts)
    found_MN = np.concatenate(
        [scorer.cross_score(prompts, part, [0] * len(part), 1.0).scores_MN for part in (thoughts[:3], thoughts[3:])]
    )
    return float(np.abs(found_MN - expected_MN).max()), scorer


@pytest.mark.parametrize("kind", READ_AS)
def test_a_family_is_scored_exactly_by_its_fastest_exact_way(kind: str) -> None:
    model = built(kind, window=LONGER if FAMILIES[kind].longer else WINDOW)
    error, scorer = largest_error(model)
    assert error < 1e-4
    assert scorer.method == READ_AS[kind]
    assert keeps_prompts(model) == (kind in SHARES)


@pytest.mark.parametrize("kind", ["llama", "qwen3_5_text"])
def test_a_stray_window_that_no_layer_uses_changes_nothing(kind: str) -> None:
    model = built(kind, sliding_window=WINDOW)
    assert largest_error(model)[0] < 1e-4


def test_a_thought_of_a_recurrent_model_is_read_by_token_only_where_that_is_cheaper() -> None:
    model, (prompts, thoughts) = built("mamba"), pairs()
    scorer = HFScorer(model)
    long, own = [[*prompts[0], *prompts[1]]], [0] * 16
    many = [[row, *thoughts[1]] for row in range(16)]
    for given, rows, method in ((long, many, "by_token"), (prompts, thoughts[:1], "plain")):
        scored = scorer.cross_score(given, rows, own[: len(rows)], 1.0)
        assert scored.method.startswith(f"{method}; not packed: ")
        np.testing.assert_allclose(scored.scores_MN, naive(model, given, rows), rtol=0, atol=1e-4)


def test_the_reason_against_packs_names_what_an_attention_with_sinks_needs() -> None:
    way = HFScorer(built("gpt_oss", layer_types=["full_attention"] * 4)).way
    assert way == "cached; not packed: its layers pass arguments to their attention that packs do not support: s_aux"


def test_the_sentence_of_a_model_ends_with_one_full_stop() -> None:
    with pytest.warns(UserWarning, match=r"since it fails with ValueError: .*'>\. Each token is sampled from a whole"):
        way_of(built("minimax"))


@pytest.mark.parametrize(("kind", "way"), [("gemma3", "STATES"), ("mamba", "SINGLES"), ("qwen3_moe", "BUFFERS")])
def test_the_sampler_takes_the_same_way_in_half_precision(kind: str, way: str) -> None:
    model = built(kind, vocab_size=400) if kind == "gemma3" else built(kind)
    assert way_of(model.bfloat16())[0].name == way
