"""Importance weights by hand: truncated and masked, by token and by turn, with their metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from test_learner import STEADY, assert_same, gradient, random_samples, shifted, tiny, weights  # noqa: E402
from test_learner import values as named  # noqa: E402

from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.training.correction import corrected  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.types import TrainingSample  # noqa: E402

LOG2 = math.log(2.0)

SAMPLE = TrainingSample(
    ids=(1, 2, 3, 4, 5),
    trained=(False, True, True, False, True),
    logprobs=(0.0, -1.0, -1.0, 0.0, -1.0),
    advantages=(0.0, 1.0, 1.0, 0.0, 1.0),
    group=0,
    member=0,
    weight=1.0,
)
"""Two turns: the tokens 2 and 3, and the token 5."""

LEARNER = torch.tensor([-1.0 + 2 * LOG2, -1.0 - LOG2, -1.0])
"""Ratios 4, 1/2 and 1. Over the turns: 2 and 1."""


def of(**fields: object) -> Grpo:
    return replace(Grpo(importance_cap=3.0), **fields)  # type: ignore[arg-type]


def values(metrics: object) -> dict[str, float]:
    return {metric.name.removeprefix("policy/importance_"): metric.value for metric in metrics}  # type: ignore[attr-defined]


def test_weights_are_cut_to_cap_and_floor() -> None:
    found = corrected(of(), [SAMPLE], [LEARNER])
    assert found.weights is not None
    assert found.weights[0].tolist() == pytest.approx([3.0, 0.5, 1.0])
    assert found.samples == [SAMPLE]
    floored = corrected(of(importance_floor=0.75), [SAMPLE], [LEARNER])
    assert floored.weights is not None
    assert floored.weights[0].tolist() == pytest.approx([3.0, 0.75, 1.0])
    assert values(floored.metrics)["truncated"] == 2 / 3


def test_masked_tokens_are_no_longer_trained_and_the_others_keep_their_weight() -> None:
    found = corrected(of(importance_floor=0.75, importance_outside="mask"), [SAMPLE], [LEARNER])
    assert found.weights is not None
    assert found.learner is not None
    assert found.weights[0].tolist() == pytest.approx([1.0])
    assert found.learner[0].tolist() == [-1.0]
    (sample,) = found.samples
    assert sample.trained == (False, False, False, False, True)
    assert sample.logprobs == (0.0, 0.0, 0.0, 0.0, -1.0)
    assert sample.advantages == (0.0, 0.0, 0.0, 0.0, 1.0)
    assert sample.ids == SAMPLE.ids
    assert values(found.metrics)["masked"] == 2 / 3


def test_a_turns_weight_is_the_product_over_its_tokens() -> None:
    found = corrected(of(importance_level="turn"), [SAMPLE], [LEARNER])
    assert found.weights is not None
    assert found.weights[0].tolist() == pytest.approx([2.0, 2.0, 1.0])
    masked = corrected(of(importance_cap=1.5, importance_level="turn", importance_outside="mask"), [SAMPLE], [LEARNER])
    assert masked.samples[0].trained == (False, False, False, False, True)


def test_the_metrics_are_means_over_the_trained_tokens() -> None:
    found = values(corrected(of(), [SAMPLE], [LEARNER]).metrics)
    k3 = [4 - 1 - 2 * LOG2, 0.5 - 1 + LOG2, 0.0]
    assert found["kl"] == pytest.approx(sum(k3) / 3)
    assert found["ess"] == pytest.approx((4 + 0.5 + 1) ** 2 / (3 * (16 + 0.25 + 1)))
    assert (found["truncated"], found["masked"]) == (1 / 3, 0.0)


def test_nothing_is_corrected_while_the_two_agree() -> None:
    near = torch.tensor([-1.0009, -1.0, -0.9991])
    found = corrected(of(importance_outside="mask"), [SAMPLE], [near])
    assert (found.samples, found.learner, found.weights) == ([SAMPLE], None, None)
    measured = values(found.metrics)
    assert measured["kl"] == pytest.approx(0.0009**2 / 2 * 2 / 3, rel=0.01)
    assert measured["ess"] == pytest.approx(1.0, abs=1e-6)


def test_a_weight_beyond_all_bounds_is_no_infinite_metric() -> None:
    far = torch.tensor([0.0, -2000.0, -1.0])
    found = values(corrected(of(importance_level="turn"), [SAMPLE], [far]).metrics)
    assert all(map(math.isfinite, found.values()))


MASKED = Grpo(importance_cap=2.0, importance_outside="mask", minibatches=2)


def first_token_off(samples: list[TrainingSample]) -> list[TrainingSample]:
    """The sampler's log-probability of every sample's first trained token lies 3 nats below the learner's."""
    moved = []
    for sample in samples:
        place = sample.trained.index(True)
        logprobs = (*sample.logprobs[:place], sample.logprobs[place] - 3.0, *sample.logprobs[place + 1 :])
        moved.append(replace(sample, logprobs=logprobs))
    return moved


@pytest.mark.parametrize("average", ["sequence", "token"])
def test_a_masked_token_leaves_the_denominators_too(average: str) -> None:
    algorithm = replace(MASKED, average=average, minibatches=1)  # type: ignore[arg-type]
    plain = Learner(tiny(), replace(algorithm, importance_cap=None), STEADY)
    exact = shifted(random_samples(), plain, 0.0)
    without = []
    for sample in exact:
        place = sample.trained.index(True)
        without.append(replace(sample, trained=(*sample.trained[:place], False, *sample.trained[place + 1 :])))
    assert not torch.allclose(gradient(plain, exact), gradient(plain, without)), "the token matters"
    assert_same(gradient(Learner(tiny(), algorithm, STEADY), first_token_off(exact)), gradient(plain, without))


def test_a_batch_of_masked_tokens_alone_changes_nothing_and_says_why() -> None:
    learner = Learner(tiny(), MASKED, STEADY)
    before = weights(learner)
    metrics = learner.update(shifted(random_samples(), learner, 3.0))
    assert torch.equal(weights(learner), before)
    assert named(metrics)["policy/importance_masked"] == 1.0
    assert "all were masked" in next(metric.why for metric in metrics if metric.name == "policy/loss")


def test_a_mini_batch_of_masked_tokens_alone_takes_no_step() -> None:
    learner = Learner(tiny(), MASKED, STEADY)
    samples = random_samples()
    first = (samples[0].group, samples[0].member)
    off, exact = shifted(samples, learner, 3.0), shifted(samples, learner, 0.0)
    mixed = [fine if (fine.group, fine.member) == first else far for fine, far in zip(exact, off, strict=True)]
    learner.update(mixed)
    assert learner.state_dict()["descent"]["steps"] == 1
