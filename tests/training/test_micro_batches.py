import math
import random
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.algorithms.table import Grpo
from heedful.models.forward.shared_prompts import PASS
from heedful.training.batch import cut_micro_batches, pass_tokens
from heedful.training.objective import Scores, token_terms
from heedful.types import TrainingSample


def sample(length: int, member: int = 0) -> TrainingSample:
    trained = tuple(place >= 1 for place in range(length))
    return TrainingSample(
        ids=tuple(range(10 * member + 1, 10 * member + 1 + length)),
        trained=trained,
        logprobs=tuple(-0.5 if one else 0.0 for one in trained),
        advantages=tuple(2.0 if one else 0.0 for one in trained),
        group=0,
        member=member,
        weight=1.0,
    )


def test_two_samples_are_padded_on_the_right() -> None:
    (batch,) = cut_micro_batches([sample(2, 1), sample(3, 2)], [0.25, 0.75], 6)
    assert batch.ids_BT.tolist() == [[21, 22, 23], [11, 12, 0]]
    assert batch.trained_BT.tolist() == [[False, True, True], [False, True, False]]
    assert batch.logprobs_BT.tolist() == [[0, -0.5, -0.5], [0, -0.5, 0]]
    assert batch.advantages_BT.tolist() == [[0, 2, 2], [0, 2, 0]]
    assert batch.weights_B.tolist() == [0.75, 0.25]


def test_penalties_leave_out_a_sample_that_is_not_regularised_however_far_it_is_from_the_reference() -> None:
    (batch,) = cut_micro_batches([sample(2, 1), replace(sample(3, 2), regularised=False)], [0.25, 0.75], 6)
    logprobs_N, entropy_N = torch.full((3,), -0.5, requires_grad=True), torch.ones(3, requires_grad=True)
    algorithm = Grpo(kl=0.1, kl_kind="k3", entropy=0.2)
    terms = token_terms(algorithm, batch, Scores(logprobs_N, entropy_N), reference_N=torch.tensor([200.0, -1.0, -1.0]))
    terms.loss(algorithm.kl, algorithm.entropy).backward()
    assert entropy_N.grad is not None
    assert logprobs_N.grad is not None
    assert entropy_N.grad.tolist() == pytest.approx([0, 0, -0.2 * 0.25])
    pull = 0.1 * (1 - math.exp(-0.5))  # of k3 at a distance of a half
    assert logprobs_N.grad.tolist() == pytest.approx([-2 * 0.75, -2 * 0.75, (-2 + pull) * 0.25])
    (plain,) = cut_micro_batches([sample(2, 1), sample(3, 2)], [0.25, 0.75], 6)
    assert plain.regularised_B is None


@pytest.mark.parametrize("bound", [12, 30, 100, 10_000])
def test_every_sample_lies_in_one_micro_batch_and_none_exceeds_the_bound(bound: int) -> None:
    rng = random.Random(3)
    samples = [sample(rng.randint(2, 12), member) for member in range(40)]
    batches = cut_micro_batches(samples, [float(one.member) for one in samples], bound)
    assert all(batch.ids_BT.numel() <= bound for batch in batches)
    members = torch.cat([batch.weights_B for batch in batches]).tolist()
    assert sorted(members) == list(range(40))
    for batch in batches:
        for ids, trained, weight in zip(batch.ids_BT.tolist(), batch.trained_BT.tolist(), batch.weights_B, strict=True):
            own = samples[int(weight)]
            assert tuple(ids[: len(own.ids)]) == own.ids
            assert sum(trained) == len(own.ids) - 1


def test_a_sample_longer_than_the_bound_stands_alone() -> None:
    batches = cut_micro_batches([sample(5), sample(2), sample(2)], [1.0] * 3, 4)
    assert [tuple(batch.ids_BT.shape) for batch in batches] == [(1, 5), (2, 2)]


def test_a_pass_costs_a_gpu_the_time_of_many_tokens_of_a_small_model() -> None:
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=64, intermediate_size=16, num_hidden_layers=2))
    assert pass_tokens(model, "cpu") == PASS
    assert pass_tokens(model, "cuda:1") == round(2e11 / model.num_parameters())
