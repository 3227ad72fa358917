"""Policies whose thoughts are one token, so that every expectation is a sum over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from heedful.training.batch import MicroBatch, cut_micro_batches
from heedful.training.gradients.readings import READINGS, Reading, Sampled, path_weights, score_weights
from heedful.types import TrainingSample

Floats = npt.NDArray[np.float64]
SHARE = Reading(lambda at: at.outcomes_M)
"""The share of some thoughts: its value is any table of numbers."""
FIVE = {**{name: READINGS[name] for name in ("gap", "mi", "thought_entropy", "success")}, "share": SHARE}


@dataclass(frozen=True)
class Enumerated:
    """N prompts, each with the same Z thoughts, whose logits are a smooth function of a few shared weights."""

    mixes_NZW: torch.Tensor
    waves_NZW: torch.Tensor
    shares_N: Floats
    outcomes_NZ: Floats
    shared_NZ: Floats
    """Whether a thought is of the counted kind."""

    @classmethod
    def drawn(cls, seed: int, prompts: int = 4, thoughts: int = 6, weights: int = 20) -> Enumerated:
        draw = torch.Generator().manual_seed(seed)
        sizes = (prompts, thoughts, weights)
        mixes, waves = (torch.randn(sizes, generator=draw, dtype=torch.float64) for _ in range(2))
        shares = torch.rand(prompts, generator=draw, dtype=torch.float64) + 0.5
        right = (torch.rand(prompts, thoughts, generator=draw) < 0.3).double()
        kind = (torch.arange(thoughts) < 2).double().expand(prompts, thoughts)
        return cls(0.5 * mixes, 0.5 * waves, (shares / shares.sum()).numpy(), right.numpy(), kind.numpy().copy())

    def logprobs_NZ(self, weights_W: torch.Tensor) -> torch.Tensor:
        return (self.mixes_NZW @ weights_W + torch.sin(self.waves_NZW @ weights_W)).log_softmax(-1)

    def listed(self, weights_W: torch.Tensor, kind: str = "success") -> Sampled:
        """Every thought of every prompt, with its probability as its weight."""
        logprobs_NZ = self.logprobs_NZ(weights_W).detach().numpy()
        prompts, thoughts = logprobs_NZ.shape
        own_M, thought_M = np.repeat(np.arange(prompts), thoughts), np.tile(np.arange(thoughts), prompts)
        return Sampled(
            scores_MN=logprobs_NZ[:, thought_M].T.copy(),
            own_M=own_M,
            shares_N=self.shares_N,
            outcomes_M=(self.shared_NZ if kind == "share" else self.outcomes_NZ).flatten(),
            replies_M=logprobs_NZ.flatten(),
            weights_M=(self.shares_N[:, None] * np.exp(logprobs_NZ)).flatten(),
        )

    def truth(self, name: str, weights_W: torch.Tensor) -> float:
        """The reading itself, by its definition."""
        logprobs_NZ = self.logprobs_NZ(weights_W).detach().numpy()
        chances_NZ, shares_N = np.exp(logprobs_NZ), self.shares_N
        if name == "gap":
            return sum(
                shares_N[i] * shares_N[j] / (1 - shares_N[i]) * chances_NZ[i] @ (logprobs_NZ[i] - logprobs_NZ[j])
                for i in range(len(shares_N))
                for j in range(len(shares_N))
                if i != j
            )
        value_NZ = {
            "mi": logprobs_NZ - np.log(shares_N @ chances_NZ),
            "thought_entropy": -logprobs_NZ,
            "success": self.outcomes_NZ,
            "share": self.shared_NZ,
        }[name]
        return float(shares_N @ (chances_NZ * value_NZ).sum(axis=1))

    def slope(self, name: str, weights_W: torch.Tensor, step_W: torch.Tensor) -> float:
        """The derivative of a reading along a step, by finite differences of fourth order."""
        reach = 1e-3 / float(step_W.norm())
        ends = [self.truth(name, weights_W + each * reach * step_W) for each in (-2, -1, 1, 2)]
        return float(np.dot(ends, [1, -8, 8, -1]) / (12 * reach))

    def gradient(self, reading: Reading, at: Sampled, weights_W: torch.Tensor, path: bool = True) -> torch.Tensor:
        """The gradient of a reading, from the rows of its estimate over all thoughts."""
        leaf_W = weights_W.clone().requires_grad_()
        logprobs_NZ = self.logprobs_NZ(leaf_W)
        thought_M = np.tile(np.arange(logprobs_NZ.shape[1]), len(logprobs_NZ))
        return gradient_of_rows(reading, at, logprobs_NZ, thought_M, leaf_W, path)


def gradient_of_rows(
    reading: Reading, at: Sampled, logprobs_NZ: torch.Tensor, thought_M: Floats, leaf_W: torch.Tensor, path: bool
) -> torch.Tensor:
    scores_MN = logprobs_NZ[:, torch.as_tensor(thought_M)].T
    own_M = scores_MN[torch.arange(len(scores_MN)), torch.as_tensor(at.own_M)]
    total = (torch.as_tensor(score_weights(reading, at)) * own_M).sum()
    foreign_MN = path_weights(reading, at) if path else None
    if foreign_MN is not None:
        total = total + (torch.as_tensor(foreign_MN) * scores_MN).sum()
    (found_W,) = torch.autograd.grad(total, leaf_W)
    return found_W


def batch_of(
    prompts_B: list[int], thoughts_B: list[int], logprobs_B: list[float], advantages_B: list[float], size: int = 2
) -> MicroBatch:
    """One token per sample: sample b is thought `thoughts_B[b]` behind a token of its prompt."""
    samples = [
        TrainingSample(
            (100 + prompt, thought), (False, True), (0.0, logprob), (0.0, advantage), place // size, place % size, 1.0
        )
        for place, (prompt, thought, logprob, advantage) in enumerate(
            zip(prompts_B, thoughts_B, logprobs_B, advantages_B, strict=True)
        )
    ]
    (batch,) = cut_micro_batches(samples, [1 / len(samples)] * len(samples), 10_000)
    order = batch.places_B
    assert list(order) == list(range(len(samples)))
    return batch
