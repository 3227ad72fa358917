"""Derivatives of log-probabilities of a model's tokens: added up over rows, or token by token along one direction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.models.forward.token_logits import token_logits
from heedful.training.batch import MicroBatch
from heedful.training.gradients.adamw import Tensors
from heedful.training.learner import Learner
from heedful.training.objective import Scores, scores_of
from heedful.types import TrainingSample

REACH = 2e-4
"""How far the central difference goes, as a part of the norm of the weights."""


class Slopes(NamedTuple):
    """The derivatives along a direction of the scores of a sample's trained tokens, `[T]`."""

    logprobs_T: torch.Tensor
    entropy_T: torch.Tensor


def weighted_gradient(learner: Learner, samples: Sequence[TrainingSample], weights_B: Sequence[float]) -> Tensors:
    """The gradient of the sum over samples of a weight times the log-probabilities of its trained tokens."""
    parameters = learner.parameters
    total = [torch.zeros_like(one, dtype=torch.promote_types(one.dtype, torch.float32)) for one in parameters]
    asked = [(sample, weight) for sample, weight in zip(samples, weights_B, strict=True) if weight]
    for micro in learner.cut_up([sample for sample, _ in asked], [weight for _, weight in asked]):
        counts_B = torch.tensor(
            [sum(asked[place][0].trained) for place in micro.places_B], device=micro.weights_B.device
        )
        scores_N = learner.scores(micro).logprobs_N
        target = (micro.weights_B.repeat_interleave(counts_B).to(scores_N.dtype) * scores_N).sum()
        for one, found in zip(total, torch.autograd.grad(target, parameters, materialize_grads=True), strict=True):
            one += found
    return total


@torch.no_grad()
def score_sums(learner: Learner, samples: Sequence[TrainingSample]) -> list[float]:
    """For each sample the summed log-probabilities of its trained tokens, in nats."""
    sums = [0.0] * len(samples)
    for micro in learner.cut_up(samples, [0.0] * len(samples)):
        counts = [sum(samples[place].trained) for place in micro.places_B]
        for place, logprobs_T in zip(micro.places_B, learner.scores(micro).logprobs_N.split(counts), strict=True):
            sums[place] = float(logprobs_T.double().sum())
    return sums


def slopes(learner: Learner, samples: Sequence[TrainingSample], direction: Tensors) -> list[Slopes]:
    """For each sample the derivatives of its trained tokens' scores along `direction` (one tensor per parameter).

    One pass in forward mode. Where a layer has none: a central difference of two passes in float64, whose step is
    `REACH` of the norm of the weights.
    """
    try:
        return _by_sample(learner, samples, lambda micro: _forward_mode(learner, micro, direction))
    except (NotImplementedError, RuntimeError) as error:
        if "forward" not in str(error).lower():
            raise
    return central_slopes(learner, samples, direction)


def central_slopes(learner: Learner, samples: Sequence[TrainingSample], direction: Tensors) -> list[Slopes]:
    """The same by a central difference in float64."""
    wide = cast("torch.nn.Module", copy.deepcopy(learner.model)).double()
    rows = _Rows(wide, learner.settings.temperature)
    names = [name for name, parameter in rows.named_parameters() if parameter.requires_grad]
    weights = {name: parameter.detach() for name, parameter in rows.named_parameters() if parameter.requires_grad}
    norms = [
        float(torch.linalg.vector_norm(torch.cat([one.double().flatten() for one in each])))
        for each in (list(weights.values()), direction)
    ]
    if not norms[1]:
        return [Slopes(torch.zeros(sum(one.trained)), torch.zeros(sum(one.trained))) for one in samples]
    reach = REACH * norms[0] / norms[1]

    @torch.no_grad()
    def read(micro: MicroBatch) -> Scores:
        ends = []
        for sign in (1, -1):
            moved = {
                name: weights[name] + sign * reach * way.double() for name, way in zip(names, direction, strict=True)
            }
            ends.append(cast(Scores, functional_call(rows, moved, (micro,))))
        (up, up_entropy), (down, down_entropy) = ends
        assert up_entropy is not None
        assert down_entropy is not None
        return Scores((up - down) / (2 * reach), (up_entropy - down_entropy) / (2 * reach))

    return _by_sample(learner, samples, read)


class _Rows(torch.nn.Module):
    """A model as a module whose output is the scores of a micro-batch's trained tokens."""

    def __init__(self, model: torch.nn.Module, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, micro: MicroBatch) -> Scores:
        logits_NV = token_logits(self.model)(micro.ids_BT, micro.trained_BT, micro.prompts)  # type: ignore[arg-type]
        wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / self.temperature
        return scores_of(wide_NV, micro, with_entropy=True)


def _forward_mode(learner: Learner, micro: MicroBatch, direction: Tensors) -> Scores:
    rows = _Rows(cast("torch.nn.Module", learner.model), learner.settings.temperature)
    trained = [(name, one) for name, one in rows.named_parameters() if one.requires_grad]
    # Of the attention kernels the plain one has a forward mode.
    with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        duals = {
            name: forward_ad.make_dual(one.detach(), way.to(one.dtype))
            for (name, one), way in zip(trained, direction, strict=True)
        }
        found = cast(Scores, functional_call(rows, duals, (micro,)))
        assert found.entropy_N is not None
        tangents = [forward_ad.unpack_dual(one).tangent for one in (found.logprobs_N, found.entropy_N)]
        return Scores(*(torch.zeros_like(found.logprobs_N) if one is None else one.clone() for one in tangents))


def _by_sample(
    learner: Learner, samples: Sequence[TrainingSample], read: Callable[[MicroBatch], Scores]
) -> list[Slopes]:
    found: list[Slopes | None] = [None] * len(samples)
    for micro in learner.cut_up(samples, [0.0] * len(samples)):
        scores = read(micro)
        assert scores.entropy_N is not None
        counts = [sum(samples[place].trained) for place in micro.places_B]
        both = zip(micro.places_B, scores.logprobs_N.split(counts), scores.entropy_N.split(counts), strict=True)
        for place, logprobs_T, entropy_T in both:
            found[place] = Slopes(logprobs_T, entropy_T)
    return cast(list[Slopes], found)


@contextmanager
def at_weights(learner: Learner, weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """A context in which the model has other weights. Afterwards it has its own again, to the byte."""
    own = [one.detach().clone() for one in learner.parameters]

    def put(those: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for one, other in zip(learner.parameters, those, strict=True):
                one.copy_(other)

    put(weights)
    try:
        yield
    finally:
        put(own)
