"""The algorithms, as a table of choices: advantage, clip, KL, entropy and what the loss is averaged over.

Promise: torch-free, and a row differs from another only in the values of the same fields; there is no code that is
reached by one algorithm's name alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from heedful.algorithms.advantages import GroupRelative

Average = Literal["token", "sequence", "fixed"]
KlKind = Literal["k2", "k3", "k3_straight"]


def check_kl_kind(kind: str) -> None:
    """Raises ValueError, in a sentence, for a KL estimator that cannot stand in a loss."""
    if kind == "k1":
        raise ValueError(
            "The KL estimator k1 cannot stand in the loss: the expectation of its gradient over the policy's own "
            "samples is zero. Put it into the reward, or choose k2, k3 or k3_straight."
        )
    if kind not in get_args(KlKind):
        raise ValueError(f"Expected a KL estimator among k2, k3 and k3_straight, found {kind!r}.")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Per token: clipped surrogate + kl * KL estimate - entropy * entropy; then one average over all of them.

    The advantage is the group-relative one, the same for every sampled token of a trajectory.
    """

    standardize: bool = True
    """Divide advantages by the group's sample standard deviation."""
    clip_low: float = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    average: Average = "sequence"
    """token: over all sampled tokens; sequence: over trajectories, of the mean over a trajectory's tokens;
    fixed: the sum over tokens, divided by trajectories x the most tokens a trajectory could sample."""
    kl: float = 0.0
    """Coefficient of the KL penalty; above 0 it needs a reference model."""
    kl_kind: KlKind = "k2"
    """k2 descends KL(policy || reference), k3 KL(reference || policy); k3_straight: k3's value, k2's gradient."""
    entropy: float = 0.0
    """Coefficient of the entropy bonus, in nats per token."""
    epochs: int = 1
    """Optimizer steps per batch, each over all of its samples."""

    def __post_init__(self) -> None:
        check_kl_kind(self.kl_kind)
        if self.average not in get_args(Average):
            raise ValueError(f"Expected an average among token, sequence and fixed, found {self.average!r}.")
        if not 0 <= self.clip_low <= 1:
            raise ValueError(
                f"Expected clip_low between 0 and 1 (the ratio is clipped at 1 - it), found {self.clip_low}."
            )
        for name, value in (("clip_high", self.clip_high), ("kl", self.kl), ("entropy", self.entropy)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"Expected {name} to be a number of at least 0, found {value}.")
        if self.epochs < 1:
            raise ValueError(f"Expected at least 1 epoch per batch, found {self.epochs}.")

    @property
    def advantages(self) -> GroupRelative:
        """The estimator that this algorithm gives to `make_samples`."""
        return GroupRelative(standardize=self.standardize)

    def token_weights(
        self, trained_counts_B: Sequence[int], weights_B: Sequence[float], token_budget: int | None
    ) -> list[float]:
        """What one trained token of each sequence counts for, so that the loss is the plain weighted sum over tokens.

        With n tokens and weight w per sequence:
        token w / sum(w n); sequence w / (n sum(w)); fixed w / (token_budget sum(w)).

        Taken over the whole batch before it is cut, which is why the gradient cannot depend on how it is cut. A
        sequence without trained tokens counts in no sum. Raises ValueError when nothing is trained, and for `fixed`
        without a positive `token_budget` (the most tokens one trajectory could sample: a constant of the run).
        """
        weighted = [(n, w if n else 0.0) for n, w in zip(trained_counts_B, weights_B, strict=True)]
        total = math.fsum(w for _, w in weighted)
        if total <= 0:
            raise ValueError("Nothing to average: no sequence of positive weight holds a trained token.")
        if self.average == "sequence":
            return [w / (n * total) if n else 0.0 for n, w in weighted]
        if self.average == "token":
            tokens = math.fsum(w * n for n, w in weighted)
            return [w / tokens for _, w in weighted]
        if token_budget is None or token_budget < 1:
            raise ValueError(
                f"The average 'fixed' divides by the most tokens that one trajectory could sample, but token_budget is "
                f"{token_budget}; pass turns x tokens per turn."
            )
        return [w / (token_budget * total) for _, w in weighted]


@dataclass(frozen=True, slots=True)
class Grpo(Algorithm):
    """Standardized advantages, clip .2/.2, mean over sequences of the mean over tokens.

    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3. Assumes rewards that compare within a group only. Deviations:
    sample deviation 1/(G - 1) without epsilon; the KL penalty (there .04, k3) is off; a trajectory of several turns is
    one sequence, of which the policy's own tokens count.
    """


@dataclass(frozen=True, slots=True)
class DrGrpo(Algorithm):
    """Advantages without the division by the deviation, and a constant divisor in place of a sequence's own length.

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2. Assumes that rewards of all groups share one scale; removes
    the bias towards long wrong and short right replies and towards groups of small deviation. Deviation: the mean
    over trajectories is kept beside the division by the token budget, so the scale does not grow with the batch.
    """

    standardize: bool = False
    average: Average = "fixed"


@dataclass(frozen=True, slots=True)
class DapoLoss(Algorithm):
    """The loss of DAPO: clip .2/.28, mean over all tokens of the batch.

    Source: Yu et al. 2025, arXiv:2503.14476, sections 3.1 and 3.3. Assumes that a reply should weigh by its length.
    Deviations: only the loss. Dynamic sampling and overlong shaping belong to collection and reward and are
    not part of this row, hence its name; the token mean is over the whole batch, not over a micro-batch.
    """

    clip_high: float = 0.28
    average: Average = "token"


ALGORITHMS: dict[str, type[Algorithm]] = {"grpo": Grpo, "dr_grpo": DrGrpo, "dapo_loss": DapoLoss}
