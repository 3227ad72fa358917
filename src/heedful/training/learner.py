"""One update of the policy from training samples: loss, gradient, optimizer, and what can be read off on the way.

Promise: the gradient depends on the samples, never on the micro-batch size or on the samples' order; an empty batch
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from heedful.algorithms import losses
from heedful.algorithms.table import Algorithm
from heedful.training.batch import MicroBatch, cut_micro_batches
from heedful.training.master_weights import MasterWeights
from heedful.training.optimizer import OptimizerConfig
from heedful.training.token_logits import TokenLogits, token_logits
from heedful.types import Metric, TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_EMPTY = "no sample to train on: the filter kept nothing, or nothing was scored"
_NO_REFERENCE = "no reference model"


@dataclass(slots=True)
class Pass:
    """What one pass over a batch read, before the optimizer step. Sums run over the trained tokens, unweighted."""

    loss: float = 0.0
    tokens: int = 0
    clipped: int = 0
    kl_to_sampler: float = 0.0
    logprob_error: float = 0.0
    """The largest absolute difference."""
    kl_to_reference: float = 0.0


class Learner:
    """Holds a model, its optimizer and its schedule, and updates the model in place.

    The model is put into evaluation mode and stays there: dropout would make the policy that learns another one than
    the policy that sampled. Every parameter that requires a gradient is trained.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        algorithm: Algorithm,
        optimizer: OptimizerConfig,
        *,
        temperature: float = 1.0,
        micro_batch_tokens: int = 4096,
        reference: PreTrainedModel | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """`temperature` is the sampler's; `micro_batch_tokens` bounds the padded tokens of one forward pass.

        Raises ValueError for a temperature that is not positive, and when the algorithm has a KL penalty but there is
        no reference model.
        """
        if not temperature > 0:
            raise ValueError(f"Expected a temperature above 0 (the sampler's), found {temperature}.")
        if algorithm.kl > 0 and reference is None:
            raise ValueError(
                f"The algorithm has a KL penalty (coefficient {algorithm.kl}), but the learner got no reference model; "
                "pass one, or set the coefficient to 0."
            )
        self.model = _placed(model, device)
        self.algorithm = algorithm
        self.config = optimizer
        self.temperature = temperature
        self.micro_batch_tokens = micro_batch_tokens
        self.device = device
        self.updates = 0
        """Calls of `update` that changed the weights."""
        self._steps = 0
        self._token_logits = token_logits(self.model)
        self._reference_logits = None if reference is None else token_logits(_placed(reference, device))
        self._weights = MasterWeights([parameter for parameter in model.parameters() if parameter.requires_grad])
        self._optimizer = torch.optim.AdamW(
            self._weights.optimized, lr=optimizer.lr, betas=optimizer.betas, weight_decay=optimizer.weight_decay
        )

    def update(
        self, samples: Sequence[TrainingSample], *, scale: float = 1.0, token_budget: int | None = None
    ) -> list[Metric]:
        """`algorithm.epochs` optimizer steps on the loss of `samples`, times `scale`; the metrics of the update.

        `token_budget`: the most tokens one trajectory could sample (for the average `fixed`). No samples: no step of
        the optimizer or of the schedule, and `filter/empty` is 1. `policy/kl_*` and `policy/logprob_error` are taken
        in the first epoch, before its step; loss, clip fraction and gradient norm are means over the epochs.

        Raises FloatingPointError, before anything is changed by that step, when the gradient is not finite.
        """
        if not samples:
            return self._empty_metrics()
        micro_batches = self._cut(samples, token_budget)
        reference_logprobs = self._score_reference(micro_batches)
        passes: list[Pass] = []
        norms: list[float] = []
        for _ in range(self.algorithm.epochs):
            self.model.zero_grad(set_to_none=True)
            passes.append(self._backward(micro_batches, reference_logprobs, scale))
            norms.append(self._step())
        self.model.zero_grad(set_to_none=True)
        self.updates += 1
        tokens = sum(len(sample.ids) for sample in samples) * self.algorithm.epochs
        return self._metrics(passes, norms, tokens)

    def accumulate_gradient(
        self, samples: Sequence[TrainingSample], *, scale: float = 1.0, token_budget: int | None = None
    ) -> Pass:
        """Adds the gradient of the loss to the parameters' `.grad`, and takes no step: what `update` would descend."""
        micro_batches = self._cut(samples, token_budget)
        return self._backward(micro_batches, self._score_reference(micro_batches), scale)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs beside the weights: the optimizer's state and the counts."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "masters": self._weights.copies,
            "updates": self.updates,
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave. Raises ValueError when `state` holds anything else."""
        expected = {"optimizer", "masters", "updates", "steps"}
        if set(state) != expected:
            raise ValueError(f"Expected a learner's state with {sorted(expected)}, found {sorted(state)}.")
        # Copied, or this optimizer would go on in place on the tensors of whoever made the state.
        self._optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self._weights.load_copies(state["masters"])
        self.updates, self._steps = state["updates"], state["steps"]

    def _cut(self, samples: Sequence[TrainingSample], token_budget: int | None) -> list[MicroBatch]:
        weights_B = self.algorithm.token_weights(
            [sum(sample.trained) for sample in samples], [sample.weight for sample in samples], token_budget
        )
        return cut_micro_batches(samples, weights_B, self.micro_batch_tokens, self.device)

    def _logits(self, rows: TokenLogits, batch: MicroBatch) -> torch.Tensor:
        logits_NV = rows(batch.ids_BT, batch.trained_BT)
        return logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / self.temperature

    @torch.no_grad()
    def _score_reference(self, micro_batches: Sequence[MicroBatch]) -> list[torch.Tensor | None]:
        if self._reference_logits is None:
            return [None] * len(micro_batches)
        return [_pick(self._logits(self._reference_logits, batch), batch) for batch in micro_batches]

    def _backward(
        self, micro_batches: Sequence[MicroBatch], reference_logprobs: Sequence[torch.Tensor | None], scale: float
    ) -> Pass:
        reading = Pass()
        for batch, reference_N in zip(micro_batches, reference_logprobs, strict=True):
            try:
                self._backward_one(batch, reference_N, scale, reading)
            except torch.OutOfMemoryError as error:
                sequences, length = batch.ids_BT.shape
                raise MemoryError(
                    f"The device ran out of memory in the update, on a micro-batch of {sequences} sequences of "
                    f"{length} tokens; lower --micro-batch-tokens (now {self.micro_batch_tokens})."
                ) from error
        return reading

    def _backward_one(self, batch: MicroBatch, reference_N: torch.Tensor | None, scale: float, reading: Pass) -> None:
        algorithm = self.algorithm
        logits_NV = self._logits(self._token_logits, batch)
        logprobs_N = _pick(logits_NV, batch)
        sampled_N = _at_trained(batch.logprobs_BT, batch).to(logprobs_N.dtype)
        advantages_N = _at_trained(batch.advantages_BT, batch).to(logprobs_N.dtype)
        weights_N = _at_trained(batch.weights_B[:, None].expand_as(batch.trained_BT), batch).to(logprobs_N.dtype)

        policy = losses.clipped(logprobs_N, sampled_N, advantages_N, algorithm.clip_low, algorithm.clip_high)
        loss_N = policy.loss
        if algorithm.kl > 0 and reference_N is not None:
            loss_N = loss_N + algorithm.kl * losses.kl(algorithm.kl_kind, logprobs_N, reference_N)
        if algorithm.entropy > 0:
            loss_N = loss_N - algorithm.entropy * losses.entropy(logits_NV)
        loss = scale * (weights_N * loss_N).sum()
        loss.backward()

        with torch.no_grad():
            difference_N = sampled_N - logprobs_N
            reading.loss += float(loss)
            reading.tokens += len(logprobs_N)
            reading.clipped += int(policy.clip_binds.sum())
            reading.kl_to_sampler += float(difference_N.sum())
            reading.logprob_error = max(
                [reading.logprob_error, *difference_N.abs().max(dim=0, keepdim=True)[0].tolist()]
            )
            if reference_N is not None:
                reading.kl_to_reference += float(losses.kl("k3", logprobs_N, reference_N).sum())

    def _step(self) -> float:
        """One optimizer step under linear warm-up; the gradient's norm before clipping."""
        self._weights.take_gradients()
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights.optimized, self.config.gradient_clip))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"The gradient of optimizer step {self._steps + 1} is not finite (norm {norm}); the weights were left "
                "as they were. Lower the learning rate, or look at policy/kl_to_sampler of the steps before."
            )
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = self.config.lr_at(self._steps)
        self._optimizer.step()
        self._weights.give_weights()
        self._steps += 1
        return norm

    def _metrics(self, passes: Sequence[Pass], norms: Sequence[float], tokens: int) -> list[Metric]:
        first, n = passes[0], passes[0].tokens
        if self._reference_logits is None:
            kl_to_reference = Metric("policy/kl_to_reference", None, why=_NO_REFERENCE)
        else:
            kl_to_reference = Metric("policy/kl_to_reference", first.kl_to_reference / n, n=n)
        clip_fraction = sum(reading.clipped for reading in passes) / sum(reading.tokens for reading in passes)
        return [
            Metric("filter/empty", 0.0),
            Metric("policy/loss", math.fsum(reading.loss for reading in passes) / len(passes)),
            Metric("policy/gradient_norm", math.fsum(norms) / len(norms)),
            Metric("policy/learning_rate", self.config.lr_at(self._steps - 1)),
            Metric("policy/clip_fraction", clip_fraction, n=n),
            Metric("policy/kl_to_sampler", first.kl_to_sampler / n, n=n),
            Metric("policy/logprob_error", first.logprob_error, n=n),
            kl_to_reference,
            Metric("tokens/update", float(tokens)),
        ]

    def _empty_metrics(self) -> list[Metric]:
        unread = ("loss", "gradient_norm", "learning_rate", "clip_fraction", "kl_to_sampler", "logprob_error")
        return [
            Metric("filter/empty", 1.0),
            *[Metric(f"policy/{name}", None, why=_EMPTY) for name in (*unread, "kl_to_reference")],
            Metric("tokens/update", 0.0),
        ]


def _placed(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    cast(torch.nn.Module, model).to(device)
    return model.eval()


def _at_trained(values_BT: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    # From the second column on, like the logits, which stand one position before the token they predict.
    return values_BT[:, 1:][batch.trained_BT[:, 1:]]


def _pick(logits_NV: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """log softmax(logits) of the trained tokens."""
    picked_N = logits_NV.gather(-1, _at_trained(batch.ids_BT, batch)[:, None])[:, 0]
    return picked_N - logits_NV.logsumexp(dim=-1)
