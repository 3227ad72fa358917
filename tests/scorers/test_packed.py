"""Packed thoughts and tries of them: what is read once, and that every way to mix up tokens shows."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful.models.forward.exactness import Unsupported  # noqa: E402
from heedful.scorers import packed, packed_attention, packs, pairs  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from heedful.scorers.packs import plan_packs, reads, worth_sharing  # noqa: E402
from scored_pairs import (  # noqa: E402
    SIZES,
    VOCABULARY,
    assert_noticed,
    case,
    llama,
    naive,
    naive_logprobs,
    score,
    some_ids,
    trusted,
    truth,
    watch_reads,
)


def random_thoughts(rng: random.Random) -> list[tuple[int, ...]]:
    """Distinct thoughts over three tokens: many share prefixes, some are prefixes of others."""
    lengths = [rng.choice((1, 2, 3, 5, 8, 13)) for _ in range(rng.randrange(1, 14))]
    return list(dict.fromkeys(tuple(rng.randrange(3) for _ in range(length)) for length in lengths))


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_pack_reads_and_scores_every_token_of_every_thought_in_its_place(seed: int, share: bool) -> None:
    rng = random.Random(seed)
    thoughts = random_thoughts(rng)
    budget = rng.choice((1, 4, 12, 1000))
    plan = plan_packs(thoughts, budget, share=share)
    assert sorted(row for pack in plan for row in pack.rows) == list(range(len(thoughts)))
    for pack in plan:
        assert len(pack.ids_R) <= budget or len(pack.rows) == 1
        assert np.all(np.diff(pack.targets.rows_E) >= 0)
        for row, scored_T in zip(pack.rows, pack.scored_BT, strict=True):
            targets = scored_T[scored_T >= 0]
            path = pack.targets.rows_E[targets]
            assert tuple(pack.ids_R[path]) == thoughts[row][:-1]
            assert tuple(pack.targets.tokens_E[targets]) == thoughts[row][1:]
            assert pack.depths_R[path].tolist() == list(range(len(thoughts[row]) - 1))
        seen: list[int] = []
        for bucket in pack.buckets:
            for queries, real, keys, start in zip(
                bucket.queries_BQ, bucket.real_BQ, bucket.keys_BK, bucket.starts_B, strict=True
            ):
                own = queries[real]
                seen += own.tolist()
                assert keys[start : start + len(own)].tolist() == own.tolist()
                assert pack.depths_R[keys[: start + len(own)]].tolist() == list(range(start + len(own)))
        assert sorted(seen) == list(range(len(pack.ids_R)))
    if budget == 1000:
        prefixes = {ids[:end] for ids in thoughts for end in range(1, len(ids))}
        expected = len(prefixes) if share else sum(len(ids) - 1 for ids in thoughts)
        assert sum(len(pack.ids_R) for pack in plan) == reads(thoughts, share=share) == expected


def test_packs_are_even_in_size() -> None:
    plan = plan_packs([(row, *range(10)) for row in range(12)], 100, share=False)
    # 12 thoughts of 10 read tokens each: two packs of 60, not 100 and 20.
    assert [len(pack.ids_R) for pack in plan] == [60, 60]


def test_prefixes_are_shared_from_a_quarter_of_the_tokens_spared() -> None:
    # Read are 3 tokens of each of 2 thoughts. One token in common leaves 5 of 6, two leave 4 of 6.
    assert not worth_sharing([(1, 2, 3, 4), (1, 5, 6, 7)])
    assert worth_sharing([(1, 2, 3, 4), (1, 2, 6, 7)])
    assert not worth_sharing([(1,), (2,)])
    assert not worth_sharing([])


def test_a_shared_prefix_is_read_once_and_auto_says_that_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(0)
    prompts = [some_ids(rng, 7) for _ in range(3)]
    stem = some_ids(rng, 10)
    thoughts = [[*stem, *ids] for ids in ([1, 2, 3], [4, 5], [1, 2, 3, 6], [])]
    scorer = HFScorer(model)
    assert scorer.method == "packed"
    read = watch_reads(model, monkeypatch)
    scored = scorer.cross_score(prompts, thoughts, [0] * 4, 1.0)
    assert scored.method == "trie"
    # 3 prompts of 7; behind each the stem, then 1 2 3 and 4; last tokens are not read.
    assert sum(rows * width for rows, width in read) == 3 * 7 + 3 * (10 + 3 + 1)
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-10)
    assert scorer.cross_score(prompts, [[1, 2], [3, 4]], [0, 0], 1.0).method == "packed"


@pytest.mark.parametrize("method", ["packed", "trie"])
@pytest.mark.parametrize(("fused_keys", "scores"), [(1, 1), (10**9, 50), (10**9, 10**9)])
def test_fused_and_plain_attention_whole_or_in_pieces_agree(
    method: str, fused_keys: int, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "_FUSED_KEYS", fused_keys)
    monkeypatch.setattr(packed_attention, "_SCORES", scores)
    scored = score(llama(), *case(), method=method)
    np.testing.assert_allclose(scored.scores_MN, truth(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("budget", [3, 17, 10**6])
@pytest.mark.parametrize("seed", range(2))
def test_tries_of_deep_and_branching_thoughts_score_as_pairs_do(
    seed: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "HEADS", (2,))
    model, rng = llama(), random.Random(seed)
    thoughts = [list(ids) for ids in random_thoughts(rng)]
    prompts = [some_ids(rng, length) for length in (4, 4, 9)]
    scored = score(model, prompts, thoughts, max_tokens=budget, method="trie")
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-10)
    np.testing.assert_allclose(scored.heads[2], naive(model, prompts, thoughts, first=2), rtol=0, atol=1e-10)


def restarted(pack: packs.Pack) -> packs.Pack:
    return dataclasses.replace(pack, depths_R=np.arange(len(pack.ids_R)))


def one_later(pack: packs.Pack) -> packs.Pack:
    return dataclasses.replace(pack, depths_R=pack.depths_R + 1)


def from_zero(pack: packs.Pack) -> packs.Pack:
    return dataclasses.replace(pack, depths_R=pack.depths_R - 7)


def one_thought(pack: packs.Pack) -> packs.Pack:
    """Every token sees all before it in the pack."""
    whole = np.arange(len(pack.ids_R))[None]
    return dataclasses.replace(pack, buckets=[packs.Bucket(whole, whole, np.zeros(1, int), whole >= 0)])


def next_state(pack: packs.Pack) -> packs.Pack:
    """Every token is scored by the state after the one that it follows."""
    rows_E = np.minimum(pack.targets.rows_E + 1, len(pack.ids_R) - 1)
    return dataclasses.replace(pack, targets=packs.Targets(rows_E, pack.targets.tokens_E))


@pytest.mark.parametrize("method", ["packed", "trie"])
@pytest.mark.parametrize("mutate", [restarted, one_later, from_zero, one_thought, next_state])
def test_a_pack_with_tokens_out_of_place_would_be_noticed(
    mutate: Callable[[packs.Pack], packs.Pack], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, method)
    plan = packed.plan_packs
    monkeypatch.setattr(packed, "plan_packs", lambda *ids, **named: [mutate(pack) for pack in plan(*ids, **named)])
    assert_noticed(scorer, expected, prompts, thoughts, own)


@pytest.mark.parametrize("mutate", [restarted, one_later, one_thought])
def test_the_probe_refuses_a_model_that_would_not_see_what_it_should(
    mutate: Callable[[packs.Pack], packs.Pack], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = packed.plan_packs
    monkeypatch.setattr(packed, "plan_packs", lambda *ids, **named: [mutate(pack) for pack in plan(*ids, **named)])
    scorer = HFScorer(llama(torch.float32))
    assert scorer.method == "cached"
    assert scorer.way.startswith("cached; not packed: its log-probabilities differ from those of a plain forward pass")


def test_a_merge_with_its_weights_swapped_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "packed")
    sigmoid = torch.sigmoid
    monkeypatch.setattr(packed_attention.torch, "sigmoid", lambda difference: sigmoid(-difference))
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_a_first_token_scored_by_another_prompt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "packed")
    logprobs = packed.FirstTokens.logprobs
    monkeypatch.setattr(packed.FirstTokens, "logprobs", lambda *asked: np.roll(logprobs(*asked), 1, axis=0))
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_prompts_in_the_wrong_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(4)
    prompts, thoughts = [some_ids(rng, 6) for _ in range(3)], [some_ids(rng, 4) for _ in range(2)]
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "packed")
    np.testing.assert_allclose(
        scorer.cross_score(prompts, thoughts, [0, 0], 1.0).scores_MN, expected, rtol=0, atol=1e-10
    )
    of = packed.PackedAttention.of

    def rolled(cache: Any, part: slice, groups: Any, lengths_P: Any) -> packed_attention.PackedAttention:
        right = of(cache, part, groups, lengths_P)
        prefixes = [(keys.roll(1, dims=0), values.roll(1, dims=0)) for keys, values in right.prefixes]
        return packed_attention.PackedAttention(prefixes, right.groups, right.shift_P)

    monkeypatch.setattr(packed.PackedAttention, "of", rolled)
    assert_noticed(scorer, expected, prompts, thoughts, [0, 0])


@pytest.mark.parametrize("fused_keys", [1, 10**9])
def test_prompts_of_similar_length_are_read_in_one_pass(fused_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "_FUSED_KEYS", fused_keys)
    model, rng = llama(), random.Random(5)
    prompts = [some_ids(rng, length) for length in (9, 40, 7, 9, 1)]
    thoughts = [some_ids(rng, length) for length in (6, 1, 4)]
    scorer = trusted(model, "packed")
    said = scorer.reading(prompts, thoughts)
    read = watch_reads(model, monkeypatch)
    scored = scorer.cross_score(prompts, thoughts, [0] * 3, 1.0)
    # The pass of 40 begins anew: 4 rows x 31 tokens of padding cost more. Behind each prompt 5 and 3 tokens are read.
    assert read == [(4, 9), (4, 8), (1, 40), (1, 8)]
    assert said == 4 * 9 + 40 + 5 * 8
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-10)


def test_padding_that_thoughts_attend_to_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(6)
    prompts, thoughts = [some_ids(rng, length) for length in (3, 9)], [some_ids(rng, 4)]
    scorer, expected = trusted(model, "packed"), naive(model, prompts, thoughts)
    of = packed.PackedAttention.of

    def unmasked(*asked: Any) -> packed_attention.PackedAttention:
        right = of(*asked)
        assert right.mask_P11T is not None
        right.mask_P11T = torch.zeros_like(right.mask_P11T)
        return right

    monkeypatch.setattr(packed.PackedAttention, "of", unmasked)
    assert_noticed(scorer, expected, prompts, thoughts, [0])


def test_a_pass_of_padded_prompts_keeps_to_the_budget_and_to_prompts_without_pictures() -> None:
    prompts = [(1,) * length for length in (5, 4, 6, 5)]
    assert list(packed.similarly_long(prompts, 1000)) == [[1, 0, 3, 2]]
    assert list(packed.similarly_long(prompts, 11)) == [[1, 0], [3], [2]]
    assert list(packed.similarly_long([*prompts, (-1, 2)], 1000)) == [[0, 3], [1], [2], [4]]


def gptj() -> Any:
    """Takes its attention itself."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 128}
    return transformers.GPTJForCausalLM(transformers.GPTJConfig(**sizes, initializer_range=0.3)).double()


def test_a_model_whose_attention_cannot_be_exchanged_is_read_from_a_cache_and_says_so() -> None:
    model, (prompts, thoughts, own) = gptj(), case()
    scorer = HFScorer(model)
    scored = scorer.cross_score(prompts, thoughts, own, 1.0)
    assert scorer.method == "cached"
    assert scored.method == "cached; not packed: its attention cannot be exchanged"
    assert scorer.way == scored.method
    # It turns its queries in float32 whatever the dtype of the model.
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"packs for method='trie', found that its attention cannot be exchanged \(GPTJ"
    ):
        score(model, prompts, thoughts, own, method="trie")


def test_a_layer_that_asks_its_attention_for_more_is_read_from_a_cache() -> None:
    model = llama(attn_implementation="eager")
    attention = model.model.layers[1].self_attn
    attention.forward = functools.partial(attention.forward, softcap=30.0)
    scorer = HFScorer(model)
    assert scorer.method == "cached"
    found = "its layers pass arguments to their attention that packs do not support: softcap"
    assert scorer.way == f"cached; not packed: {found}"


def test_a_layer_with_an_attention_of_its_own_is_noticed() -> None:
    model = llama()
    attention = model.model.layers[1].self_attn

    def own(hidden_states: Any, past_key_values: Any = None, **_: Any) -> tuple[Any, None]:
        if past_key_values is not None:
            states = attention.k_proj(hidden_states).unflatten(-1, (2, -1)).transpose(1, 2)
            past_key_values.update(states, states, 1)
        return hidden_states, None

    attention.forward = own
    with torch.no_grad(), pytest.raises(Unsupported, match=r"^1 of its layers have an attention of their own$"):
        packed.refuse_unless_packable(model, model.model)


def test_a_layer_that_does_not_pass_on_the_pack_is_noticed() -> None:
    model = llama()
    forward = model.model.layers[0].self_attn.forward
    model.model.layers[0].self_attn.forward = lambda *states, packed=None, **named: forward(*states, **named)
    assert HFScorer(model).way == "cached; not packed: 1 of its layers have an attention of their own"


@pytest.mark.parametrize("architecture", ["Qwen3", "Gemma", "Olmo2", "GPTNeoX"])
def test_layers_of_other_layouts_are_read_in_packs_as_well(architecture: str) -> None:
    torch.manual_seed(0)
    sizes = {**SIZES, "num_key_value_heads": 2, **({"head_dim": 8} if architecture in ("Qwen3", "Gemma") else {})}
    config = getattr(transformers, f"{architecture}Config")(**sizes)
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).double()
    prompts, thoughts, own = case()
    scored = HFScorer(model).cross_score(prompts, thoughts, own, 1.0)
    assert scored.method == "packed"
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-9)


def test_half_precision_diagonals_are_near_the_sampler_s_log_probabilities() -> None:
    model, (prompts, thoughts, own) = llama(torch.bfloat16, initializer_range=0.05), case()
    old = np.array(
        [naive_logprobs(model, prompts[column], ids, 1.0).sum() for ids, column in zip(thoughts, own, strict=True)]
    )
    scored = score(model, prompts, thoughts, own, method="packed")
    matched = np.asarray(scored.scores_MN)[np.arange(len(own)), own]
    # Both round to 8 bits, in different orders: the difference of two errors as large as the stated noise.
    assert np.abs(matched - old).max() < 2 * scored.noise
    foreign = np.asarray(scored.scores_MN)[np.arange(len(own)), np.roll(own, 1)]
    assert np.abs(foreign - old).max() > 2 * scored.noise, "the tolerance must tell a wrong prompt"
