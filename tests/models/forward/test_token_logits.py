import math

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import tiny_architectures as tiny
from heedful.models.forward.exactness import body_and_head
from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.forward.token_logits import keeps_prompts, token_logits

SIZES = {
    "vocab_size": 11,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]])
TRAINED = torch.tensor([[False, False, True, False, True], [False, True, True, False, False]])

PLAIN = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=16, n_layer=1, n_head=2)),
}
SHAPED = {
    "gemma2, soft-capped": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=0.5)),
    "cohere, scaled": lambda: CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.3)),
}


def counted(model: PreTrainedModel) -> list[int]:
    """The rows that the output head computes from here on."""
    rows: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda *call: rows.append(call[2].shape[:-1].numel()))
    return rows


@pytest.mark.parametrize("name", [*PLAIN, *SHAPED])
def test_the_logits_are_those_of_each_unpadded_sequence_by_itself(name: str) -> None:
    torch.manual_seed(0)
    model = (PLAIN | SHAPED)[name]().double().eval()
    with torch.no_grad():
        logits_NV = token_logits(model)(IDS, TRAINED)
        whole = [model(input_ids=IDS[:1]).logits[0, [1, 3]], model(input_ids=IDS[1:, :3]).logits[0, [0, 1]]]
    torch.testing.assert_close(logits_NV, torch.cat(whole), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*PLAIN, *SHAPED])
def test_a_head_runs_only_where_a_trained_token_is_predicted(name: str) -> None:
    torch.manual_seed(0)
    model = (PLAIN | SHAPED)[name]().eval()
    logits = token_logits(model)
    rows = counted(model)
    logits(IDS, TRAINED)
    assert rows == [4]


@pytest.mark.parametrize("name", list(SHAPED))
def test_a_cap_and_a_scale_are_found_whatever_the_weights_are(name: str) -> None:
    model = SHAPED[name]().eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()  # all logits are 0, with and without a cap
    _, head = body_and_head(model)
    assert head is not None
    expected = {"gemma2, soft-capped": 0.5 * math.tanh(4.0), "cohere, scaled": 2 * 0.3}[name]
    assert float(head.change(torch.tensor(2.0))) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "deepseek_v2", "deepseek_v3", "minicpm3", "glm4_moe_lite"])
def test_a_prompt_that_is_computed_once_gives_the_logits_of_whole_rows(kind: str) -> None:
    model = tiny.built(kind)
    assert keeps_prompts(model)
    ids_BT = torch.tensor([[5, 6, 7, 8, 1, 2, 3], [5, 6, 7, 8, 4, 9, 0]])
    trained_BT = torch.tensor([[False] * 4 + [True] * 3, [False] * 4 + [True] * 2 + [False]])
    with torch.no_grad():
        whole_NV = token_logits(model)(ids_BT, trained_BT)
        shared_NV = token_logits(model)(ids_BT, trained_BT, SharedPrompts(3, (0, 0)))
    torch.testing.assert_close(shared_NV, whole_NV, rtol=0, atol=1e-4)


def test_a_model_that_keeps_no_cache_computes_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not keeps_prompts(tiny.built("openai-gpt"))
    model = tiny.built("llama")
    forward = model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda *ids, past_key_values=None, **named: forward(*ids, **named))
    assert not keeps_prompts(model)
