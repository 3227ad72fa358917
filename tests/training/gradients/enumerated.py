"""Policies whose thoughts are one token, so that every expectation is a sum over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from heedful.training.batch import MicroBatch, cut_micro_batches
from heedful.training.gradients.readings import (
    READINGS,
    Answers,
    Reading,
    Sampled,
    action_weights,
    path_weights,
    score_weights,
    worths_by_thought,
)
from heedful.types import TrainingSample

Floats = npt.NDArray[np.float64]
SHARE = Reading(lambda at: at.outcomes_M)
"""The share of some thoughts: its value is any table of numbers."""
SIX = {**READINGS, "share": SHARE}


@dataclass(frozen=True)
class Enumerated:
    """N prompts, each with the same Z thoughts, whose logits are a smooth function of a few shared weights.

    Behind each thought under each prompt one of A actions is taken, by logits of the same weights.
    """

    mixes_NZW: torch.Tensor
    waves_NZW: torch.Tensor
    shares_N: Floats
    outcomes_NZ: Floats
    shared_NZ: Floats
    """Whether a thought is of the counted kind."""
    acts_NZAW: torch.Tensor
    right_NA: Floats
    """How right each action is for each prompt."""

    @classmethod
    def drawn(cls, seed: int, prompts: int = 4, thoughts: int = 6, weights: int = 20, actions: int = 3) -> Enumerated:
        draw = torch.Generator().manual_seed(seed)
        sizes = (prompts, thoughts, weights)
        mixes, waves = (torch.randn(sizes, generator=draw, dtype=torch.float64) for _ in range(2))
        shares = torch.rand(prompts, generator=draw, dtype=torch.float64) + 0.5
        right = (torch.rand(prompts, thoughts, generator=draw) < 0.3).double()
        kind = (torch.arange(thoughts) < 2).double().expand(prompts, thoughts)
        acts = torch.randn(prompts, thoughts, actions, weights, generator=draw, dtype=torch.float64)
        worths = torch.rand(prompts, actions, generator=draw, dtype=torch.float64).numpy()
        listed = (shares / shares.sum()).numpy(), right.numpy(), kind.numpy().copy()
        return cls(0.5 * mixes, 0.5 * waves, *listed, 0.5 * acts, worths)

    def logprobs_NZ(self, weights_W: torch.Tensor) -> torch.Tensor:
        return (self.mixes_NZW @ weights_W + torch.sin(self.waves_NZW @ weights_W)).log_softmax(-1)

    def actions_MNA(self, weights_W: torch.Tensor, thought_M: Floats) -> torch.Tensor:
        """log p(a given x_j, z_i)."""
        return (self.acts_NZAW @ weights_W).log_softmax(-1)[:, torch.as_tensor(thought_M)].transpose(0, 1)

    def answers(self, weights_W: torch.Tensor, own_M: Floats, thought_M: Floats) -> Answers:
        logprobs_MNA = self.actions_MNA(weights_W, thought_M).detach().numpy()
        return Answers(logprobs_MNA, worths_by_thought(self.right_NA)[own_M])

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
            answers=self.answers(weights_W, own_M, thought_M),
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
        if name == "right_by_thought":
            actions_JZA = (self.acts_NZAW @ weights_W).softmax(-1).detach().numpy()
            numbers = range(len(shares_N))
            # C[k, j, i]: an action that is right for k, under prompt j, behind a thought of prompt i.
            right_KJI = np.einsum("ka,jza,iz->kji", self.right_NA, actions_JZA, chances_NZ)

            def beyond_chance(i: int, j: int) -> float:
                return float(right_KJI[i, j, i] - np.mean([right_KJI[k, j, i] for k in numbers if k not in (i, j)]))

            return float(sum(shares_N[i] * np.mean([beyond_chance(i, j) for j in numbers if j != i]) for i in numbers))
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
        actions_MNA = self.actions_MNA(leaf_W, thought_M)
        return gradient_of_rows(reading, at, logprobs_NZ, actions_MNA, thought_M, leaf_W, path)


def gradient_of_rows(
    reading: Reading,
    at: Sampled,
    logprobs_NZ: torch.Tensor,
    actions_MNA: torch.Tensor,
    thought_M: Floats,
    leaf_W: torch.Tensor,
    path: bool,
) -> torch.Tensor:
    scores_MN = logprobs_NZ[:, torch.as_tensor(thought_M)].T
    own_M = scores_MN[torch.arange(len(scores_MN)), torch.as_tensor(at.own_M)]
    total = (torch.as_tensor(score_weights(reading, at)) * own_M).sum()
    foreign_MN = path_weights(reading, at) if path else None
    if foreign_MN is not None:
        total = total + (torch.as_tensor(foreign_MN) * scores_MN).sum()
    weights_MNA = action_weights(reading, at) if path else None
    if weights_MNA is not None:
        total = total + (torch.as_tensor(weights_MNA) * actions_MNA).sum()
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
