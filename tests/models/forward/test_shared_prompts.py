import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
)

from heedful.algorithms.table import ALGORITHMS
from heedful.models.forward.shared_prompts import Plan, cheapest_plans, plan_by_beginning, plan_micro_batches
from heedful.models.forward.token_logits import token_logits
from heedful.protocols import UsesCritic
from heedful.training.batch import UpdateSettings, _pad
from heedful.training.learner import Learner
from heedful.training.settings import OptimizerConfig
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


def after_rules(seed: int, *lengths_and_members: tuple[int, int]) -> list[TrainingSample]:
    """Groups whose prompts begin with the same 40 ids, and go on with as many ids of their own as the lengths say."""
    rng = random.Random(seed)
    rules = tuple(rng.randrange(VOCABULARY) for _ in range(40))
    samples = []
    for group, (length, members) in enumerate(lengths_and_members):
        prompt = (*rules, group, *(rng.randrange(VOCABULARY) for _ in range(length - 1)))
        samples += [sample(prompt, rng, group, member) for member in range(members)]
    rng.shuffle(samples)
    return samples


CRITIC_FREE = [name for name, row in ALGORITHMS.items() if not isinstance(row().advantage, UsesCritic)]
SAMPLES = groups(0, (24, 4), (24, 3), (31, 4), (20, 1), (5, 4))
"""Two prompts of one length, one of another, one that nobody shares, one that is not worth it."""


RULES = after_rules(3, (30, 4), (30, 3), (9, 4), (12, 1), (5, 1))
"""Two long prompts of one length, one that is not worth sharing whole, two that nobody shares. 40 ids are common."""


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


def of_lengths(*lengths: Sequence[int]) -> list[TrainingSample]:
    """Groups behind prompts of 20 shared ids, with one reply of each of these lengths."""
    samples = []
    for group, replies in enumerate(lengths):
        prompt = (group, *[1] * 20)  # the last id is not shared
        for member, length in enumerate(replies):
            trained = (False,) * 21 + (True,) * length
            ids = prompt + (2,) * length
            zeros = (0.0,) * len(ids)
            samples.append(TrainingSample(ids, trained, zeros, zeros, group=group, member=member, weight=1.0))
    return samples


def test_where_a_pass_is_dear_no_more_are_taken_than_the_tokens_are_worth() -> None:
    samples = [one for length in range(6) for one in of_prompt(40 + length, group=length)]
    cheap = cheapest_plans(samples, 10_000, prompts=True, beginning=True)
    assert [plan.passes for plan in cheap] == [2] * 6  # a prompt of each length is a micro-batch
    dear = cheapest_plans(samples, 10_000, prompts=True, beginning=True, per_pass=20_000)
    assert [plan.passes for plan in dear] == [1]
    between = cheapest_plans(samples, 10_000, prompts=True, beginning=True, per_pass=500)
    assert [(plan.passes, plan.prompts and plan.prompts.length) for plan in between] == [(2, 39)]  # the beginning alone
    for plans in (cheap, dear, between):
        assert sorted(place for plan in plans for place in plan.places) == list(range(len(samples)))


@pytest.mark.parametrize("per_pass", [101, 300, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("most_tokens", [400, 1_000, 10_000])
def test_no_other_way_to_share_costs_less_with_its_passes(per_pass: int, most_tokens: int) -> None:
    def price(plans: Sequence[Plan]) -> int:
        return sum(plan.cost + per_pass * plan.passes for plan in plans)

    chosen = cheapest_plans(RULES, most_tokens, prompts=True, beginning=True, per_pass=per_pass)
    assert all(plan.cost <= most_tokens or len(plan.places) == 1 for plan in chosen)
    assert price(chosen) <= price(plan_micro_batches(RULES, most_tokens, share=False))
    assert price(chosen) <= price(plan_micro_batches(RULES, most_tokens, share=True))
    assert price(chosen) <= price(plan_by_beginning(RULES, most_tokens))


def of_prompt(length: int, group: int) -> list[TrainingSample]:
    """Eight replies of 10 ids behind one prompt of `length` ids, which begins with 39 ids that all prompts share."""
    ids = (*[1] * 39, *[2 + group] * (length - 39), *[1] * 10)
    zeros = (0.0,) * len(ids)
    trained = (False,) * length + (True,) * 10
    return [TrainingSample(ids, trained, zeros, zeros, group=group, member=member, weight=1.0) for member in range(8)]


def test_short_members_are_not_padded_to_the_long_ones_of_their_group() -> None:
    samples = of_lengths([399, 9, 9, 9], [399, 9, 9, 9])
    plans = plan_micro_batches(samples, 10_000, share=True)
    # 400 tokens for each of two rows, 10 for each of six, and both prompts twice. Whole groups would cost 3,240.
    assert [plan.cost for plan in plans] == [2 * 20 + 2 * 400, 2 * 20 + 6 * 10]
    assert [len(plan.places) for plan in plans] == [2, 6]


@pytest.mark.parametrize("seed", range(30))
def test_no_cut_of_the_rows_by_length_costs_less(seed: int) -> None:
    rng = random.Random(seed)
    samples = of_lengths(*[[rng.randint(1, 150) for _ in range(rng.randint(2, 4))] for _ in range(3)])
    most = rng.choice([60, 200, 500, 5000])
    plans = plan_micro_batches(samples, most, share=True)
    rows = sorted(samples, key=lambda sample: (-len(sample.ids), sample.group))

    def cost(first: int, last: int) -> float:
        cut = rows[first:last]
        tokens = 20 * len({row.group for row in cut}) + len(cut) * (len(cut[0].ids) - 20)
        return tokens + 100 if tokens <= most or len(cut) == 1 else math.inf

    inner = range(1, len(rows))
    least = min(
        sum(cost(*pair) for pair in pairwise([0, *cuts, len(rows)]))
        for count in range(len(rows))
        for cuts in combinations(inner, count)
    )
    assert sum(plan.cost + 100 for plan in plans) == least


@pytest.mark.parametrize(
    ("make", "name", "most_tokens"),
    [*((llama, name, 60) for name in CRITIC_FREE), (llama, "grpo", 10_000), (gpt2, "grpo", 60), (gpt2, "dapo", 10_000)],
)
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


@pytest.mark.parametrize("most_tokens", [1, 90, 300, 10_000])
def test_samples_behind_a_common_beginning_lie_in_one_micro_batch_within_the_bound(most_tokens: int) -> None:
    samples = [*RULES, *groups(4, (20, 1), (3, 2))]  # the last three begin with other ids, or with too few
    plans = plan_by_beginning(samples, most_tokens)
    assert sorted(place for plan in plans for place in plan.places) == list(range(len(samples)))
    assert [plan.cost for plan in plans] == sorted((plan.cost for plan in plans), reverse=True)
    for plan in plans:
        rows = [samples[place] for place in plan.places]
        assert plan.cost <= most_tokens or len(rows) == 1
        if plan.prompts is None:
            assert all(row.ids[:40] != RULES[0].ids[:40] for row in rows)
            continue
        length, beginning = plan.prompts.length, plan.prompts.beginning
        first = [rows[index] for index in plan.prompts.first_rows]
        assert {row.ids[:40] for row in rows} == {RULES[0].ids[:40]}
        assert all(row.ids[:beginning] == rows[0].ids[:beginning] for row in rows)
        for row, prompt in zip(rows, plan.prompts.of_B, strict=True):
            assert row.ids[:length] == first[prompt].ids[:length]
            assert not any(row.trained[: length + 1])
        own = max(len(row.ids) for row in rows) - length
        assert plan.cost == beginning + len(first) * (length - beginning) + len(rows) * own


def test_a_common_beginning_is_shared_across_groups_and_long_prompts_behind_it() -> None:
    plans = plan_by_beginning(RULES, 10_000)
    assert {(one.prompts.length, one.prompts.beginning, len(one.places)) for one in plans if one.prompts} == {
        (69, 40, 7),  # both long prompts without their last token, behind the rules
        (40, 0, 6),  # all others behind the rules alone
    }


def test_beginnings_are_shared_only_where_a_third_of_the_tokens_is_saved() -> None:
    shared, by_prompt = (
        sum(plan.cost for plan in found)
        for found in (plan_by_beginning(RULES, 300), plan_micro_batches(RULES, 300, share=True))
    )
    assert shared > 2 / 3 * by_prompt
    assert cheapest_plans(RULES, 300, prompts=True, beginning=True) == plan_micro_batches(RULES, 300, share=True)
    alone = after_rules(5, *[(6, 1)] * 12)
    assert cheapest_plans(alone, 300, prompts=True, beginning=True) == plan_by_beginning(alone, 300)
    assert cheapest_plans(alone, 300, prompts=True, beginning=False) == plan_micro_batches(alone, 300, share=True)


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("most_tokens", [150, 10_000])
def test_the_gradient_flows_back_through_a_common_beginning_from_every_row(
    make: Callable[[int], PreTrainedModel], most_tokens: int
) -> None:
    model, found = make(0), []
    logits_of = token_logits(model)
    for plans in (plan_micro_batches(RULES, 10_000, share=False), plan_by_beginning(RULES, most_tokens)):
        model.zero_grad(set_to_none=True)
        logits: dict[int, torch.Tensor] = {}
        for plan in plans:
            batch = _pad([(RULES[place], 1.0, place) for place in plan.places], plan.prompts, "cpu")
            logits_NV = logits_of(batch.ids_BT, batch.trained_BT, plan.prompts)
            counts_B = [sum(RULES[place].trained) for place in plan.places]
            logits |= dict(zip(plan.places, logits_NV.split(counts_B), strict=True))
            logits_NV.log_softmax(-1)[:, 0].sum().backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        found.append((torch.cat([logits[place] for place in range(len(RULES))]).detach(), gradient))
    (logits_NV, gradient), (shared_NV, shared_gradient) = found
    assert float((shared_NV - logits_NV).abs().max()) < 1e-5
    assert float((shared_gradient - gradient).norm() / gradient.norm()) < 1e-6


@pytest.mark.parametrize(("samples", "common"), [(after_rules(6, *[(7, 2)] * 6), 40), (groups(1, (40, 8)), 39)])
def test_an_update_reads_what_samples_share_once_and_is_the_update_without(
    samples: list[TrainingSample], common: int
) -> None:
    """Groups behind the same rules, and one group behind its prompt."""
    found, read = [], []
    for share in (False, True):
        model = llama()
        tokens: list[int] = []
        model.model.register_forward_pre_hook(
            lambda module, args, kwargs, tokens=tokens: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
        )
        settings = UpdateSettings(micro_batch_tokens=10_000, share_prompts=share)
        learner = Learner(model, ALGORITHMS["grpo"](), OptimizerConfig(), settings, reference=llama(1))
        tokens.clear()
        reading = learner.accumulate_gradient(samples, token_budget=20)
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        found.append((reading.loss, gradient))
        read.append(sum(tokens))
    (loss, gradient), (shared_loss, shared_gradient) = found
    assert shared_loss == pytest.approx(loss, rel=1e-6)
    assert float((shared_gradient - gradient).norm() / gradient.norm()) < 1e-6
    own = max(len(one.ids) for one in samples) - common
    assert read == [len(samples) * (common + own), common + len(samples) * own]


def test_models_that_do_not_keep_all_keys_read_every_prompt_with_its_row() -> None:
    model = MambaForCausalLM(
        MambaConfig(vocab_size=llama().config.vocab_size, hidden_size=16, state_size=4, num_hidden_layers=1)
    )
    learner = Learner(model, ALGORITHMS["grpo"](), OptimizerConfig())
    assert all(micro.prompts is None for micro in learner.cut(SAMPLES, 20))
