import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from heedful.algorithms.table import ALGORITHMS
from heedful.models.shared_prompts import plan_micro_batches
from heedful.protocols import UsesCritic
from heedful.training.batch import UpdateSettings
from heedful.training.learner import Learner
from heedful.training.optimizer_config import OptimizerConfig
from heedful.types import TrainingSample

VOCABULARY = 13


def sample(prompt: tuple[int, ...], rng: random.Random, group: int, member: int) -> TrainingSample:
    """The prompt, a reply, something to read, another reply."""
    replies = [rng.randint(1, 6), rng.randint(1, 6)]
    glue = rng.randint(1, 4)
    trained = (False,) * len(prompt) + (True,) * replies[0] + (False,) * glue + (True,) * replies[1]
    own = tuple(rng.randrange(VOCABULARY) for _ in range(len(trained) - len(prompt)))
    return TrainingSample(
        ids=prompt + own,
        trained=trained,
        logprobs=tuple(-rng.randint(8, 30) / 8 if one else 0.0 for one in trained),
        advantages=tuple((1.5 if member % 2 else -0.75) if one else 0.0 for one in trained),
        group=group,
        member=member,
        weight=1.0 + group % 2,
    )


def groups(seed: int, *lengths_and_members: tuple[int, int]) -> list[TrainingSample]:
    rng = random.Random(seed)
    samples = []
    for group, (length, members) in enumerate(lengths_and_members):
        prompt = tuple(rng.randrange(VOCABULARY) for _ in range(length))
        samples += [sample(prompt, rng, group, member) for member in range(members)]
    rng.shuffle(samples)
    return samples


CRITIC_FREE = [name for name, row in ALGORITHMS.items() if not isinstance(row().advantage, UsesCritic)]
SAMPLES = groups(0, (24, 4), (24, 3), (31, 4), (20, 1), (5, 4))
"""Two prompts of one length, one of another, one that nobody shares, one that is not worth it."""


def llama(seed: int = 0) -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=1, initializer_range=0.3, **sizes)
        return LlamaForCausalLM(config).double().eval()


def gpt2(seed: int = 0) -> GPT2LMHeadModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2)).double().eval()


@pytest.mark.parametrize("most_tokens", [1, 60, 150, 10_000])
def test_every_sample_lies_in_one_micro_batch_within_the_bound_and_behind_its_own_prompt(most_tokens: int) -> None:
    plans = plan_micro_batches(SAMPLES, most_tokens, share=True)
    assert sorted(place for plan in plans for place in plan.places) == list(range(len(SAMPLES)))
    assert [plan.cost for plan in plans] == sorted((plan.cost for plan in plans), reverse=True)
    for plan in plans:
        rows = [SAMPLES[place] for place in plan.places]
        assert plan.cost <= most_tokens or len(rows) == 1
        if plan.prompts is None:
            assert plan.cost == len(rows) * max(len(row.ids) for row in rows)
            continue
        length, first = plan.prompts.length, plan.prompts.first_rows
        for row, prompt in zip(rows, plan.prompts.of_B, strict=True):
            assert row.ids[:length] == rows[first[prompt]].ids[:length]
            assert not any(row.trained[: length + 1])
        own = max(len(row.ids) for row in rows) - length
        assert plan.cost == len(first) * length + len(rows) * own


def test_a_prompt_is_shared_where_that_is_worth_it() -> None:
    plans = plan_micro_batches(SAMPLES, 10_000, share=True)
    shared = {plan.prompts.length: len(plan.places) for plan in plans if plan.prompts is not None}
    assert shared == {23: 7, 30: 4}  # without the last token of each prompt
    assert all(plan.prompts is None for plan in plan_micro_batches(SAMPLES, 10_000, share=False))


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("name", CRITIC_FREE)
@pytest.mark.parametrize("most_tokens", [60, 10_000])
def test_the_gradient_is_that_of_prompts_read_with_every_sample(
    make: Callable[[int], PreTrainedModel], name: str, most_tokens: int
) -> None:
    model, algorithm = make(0), replace(ALGORITHMS[name](), kl=0.3, entropy=0.05)
    found = []
    for share in (False, True):
        model.zero_grad(set_to_none=True)
        learner = Learner(
            model,
            algorithm,
            OptimizerConfig(),
            UpdateSettings(micro_batch_tokens=most_tokens, share_prompts=share),
            reference=make(1),
        )
        reading = learner.accumulate_gradient(SAMPLES, token_budget=20)
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        found.append((reading.loss, reading.tokens, gradient))
    (loss, tokens, gradient), (shared_loss, shared_tokens, shared_gradient) = found
    assert shared_tokens == tokens
    assert shared_loss == pytest.approx(loss, rel=1e-6)
    assert float((shared_gradient - gradient).norm() / gradient.norm()) < 1e-6  # Llama's norms are in float32


def test_shared_prompts_are_read_once() -> None:
    samples = groups(1, (40, 8))
    read = []
    for share in (False, True):
        model = llama()
        learner = Learner(model, ALGORITHMS["grpo"](), OptimizerConfig(), UpdateSettings(share_prompts=share))
        tokens: list[int] = []
        model.model.register_forward_pre_hook(
            lambda module, args, kwargs, tokens=tokens: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
        )
        learner.accumulate_gradient(samples)
        read.append(sum(tokens))
    own = max(len(one.ids) for one in samples) - 39
    assert read == [8 * (39 + own), 39 + 8 * own]


def test_models_that_do_not_keep_all_keys_read_every_prompt_with_its_row() -> None:
    model = llama()
    model.config.layer_types = ["full_attention", "sliding_attention"]
    learner = Learner(model, ALGORITHMS["grpo"](), OptimizerConfig())
    assert all(micro.prompts is None for micro in learner._cut(SAMPLES, 20, share_prompts=learner._shares))
