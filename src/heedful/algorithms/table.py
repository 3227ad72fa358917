"""The algorithms, as a table of choices: advantage, clip, KL, entropy, the average of the loss, and its scale.

Torch-free. Rows differ only in the values of the same fields. No code depends on the name of an algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from heedful.algorithms.advantages import AboveQuantile, GroupRelative, LeaveOneOut, PerSuccess
from heedful.algorithms.entropy_control import ENTROPY_CONTROLS, ConstantEntropy, EntropyControl, EntropyTarget
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns
from heedful.boundary import Choice, Count, NotNegative, Share, settings
from heedful.protocols import Estimator

Average = Literal["token", "sequence", "fixed"]
Surrogate = Literal["clip", "weight"]
Ratio = Literal["token", "sequence"]
Outside = Literal["truncate", "mask"]
Level = Literal["token", "turn"]
KlKind = Literal["k2", "k3", "k3_straight"]
LossScale = Literal["kept", "all", "sqrt", "rho"]

ESTIMATORS: dict[str, type[Estimator]] = {
    "group": GroupRelative,
    "leave_one_out": LeaveOneOut,
    "per_success": PerSuccess,
    "above_quantile": AboveQuantile,
    "turns": TurnReturns,
    "gae": Gae,
}
"""The advantage estimators, by the name that configurations and the command line use.

A custom estimator is one frozen dataclass with the method of one of the protocols `CreditsMembers`, `CreditsTurns` or
`CreditsTokens` (`heedful.protocols`). It is chosen as `--algorithm.advantage module:Class`. A row here gives it a name.
"""


@settings
class Algorithm:
    """Per token: surrogate + kl * KL estimate - entropy * entropy. Then one average over all of them."""

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(default_factory=GroupRelative)
    """How credit is given: group, leave_one_out, per_success, above_quantile, turns or gae."""
    surrogate: Surrogate = "clip"
    """clip: the smaller of r A and clip(r) A. weight: clip(r) A log p, with clip(r) held constant, so that every token
    keeps a gradient."""
    ratio: Ratio = "token"
    """The probability ratio r: a token's own, or the geometric mean over its sequence."""
    clip_low: Share = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: NotNegative = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    importance_cap: Annotated[float, Interval(ge=1, le=1e6)] | None = None
    """For a sampler that is not the learner: weigh tokens by min(learner / sampler, cap), and take ratios against the
    learner before the update. none = the sampler is the learner, and 2 with --sampler vllm. No correction is made while
    the two agree."""
    importance_floor: Share = 0.0
    """The same below: the smallest weight learner / sampler that counts as it is."""
    importance_outside: Outside = "truncate"
    """Weights beyond cap or floor. truncate: they become cap or floor. mask: the token leaves loss and averages."""
    importance_level: Level = "token"
    """The weight of a token: its own, or the product over the tokens of its turn."""
    average: Average = "sequence"
    """token: over all sampled tokens. sequence: over trajectories, of the mean over a trajectory's tokens.
    fixed: the sum over tokens, divided by trajectories x the most tokens a trajectory could sample."""
    kl: NotNegative = 0.0
    """Coefficient of the KL penalty. Above 0 it needs a reference model."""
    kl_kind: KlKind = "k2"
    """k2 descends KL(policy || reference), k3 KL(reference || policy). k3_straight: k3's value, k2's gradient."""
    entropy: NotNegative = 0.0
    """Coefficient of the entropy bonus, in nats per token. With a control: the first coefficient."""
    entropy_control: Annotated[EntropyControl, Choice(ENTROPY_CONTROLS)] = field(default_factory=ConstantEntropy)
    """How that coefficient moves: constant, linear, step or target."""
    epochs: Count = 1
    """Passes over each batch."""
    minibatches: Count = 1
    """Optimizer steps per pass: trajectories are shuffled and dealt into this many parts, each averaged separately."""
    sampling_batches: Count = 1
    """Dynamic sampling: most batches that a step may collect until as many groups vary as a batch has. 1 = off. The
    same as --plan refill --plan.batches N. Any other plan than fixed takes its place."""
    overlong_buffer: Share = 0.0
    """The part of a turn's token limit, at its end, in which length costs reward. 0 = no overlong shaping."""
    overlong_penalty: NotNegative = 0.5
    """Penalty of a reply that reaches the limit, in units of reward. It grows linearly within the buffer."""

    @property
    def has_bonus(self) -> bool:
        """Whether the coefficient of the entropy bonus can be above 0."""
        return self.entropy > 0 or isinstance(self.entropy_control, EntropyTarget)

    def token_weights(
        self, trained_counts_B: Sequence[int], weights_B: Sequence[float], token_budget: int | None
    ) -> list[float]:
        """The weight of one trained token of each sequence: the loss is the plain weighted sum over tokens.

        With n tokens and weight w per sequence:
        token w / sum(w n); sequence w / (n sum(w)); fixed w / (token_budget sum(w)).

        The sums run over the whole batch before it is split, so the gradient cannot depend on the split. A
        sequence without trained tokens counts in no sum. `token_budget`, for `fixed` alone: the most tokens that one
        trajectory could sample, a constant of the run. Raises ValueError when it is needed and missing.
        """
        weighted = [(n, w if n else 0.0) for n, w in zip(trained_counts_B, weights_B, strict=True)]
        total = math.fsum(w for _, w in weighted)
        if self.average == "sequence":
            return [w / (n * total) if n else 0.0 for n, w in weighted]
        if self.average == "token":
            tokens = math.fsum(w * n for n, w in weighted)
            return [w / tokens for _, w in weighted]
        if token_budget is None:
            raise ValueError(
                "The average 'fixed' divides by the most tokens that one trajectory could sample, but token_budget is "
                "missing; pass turns x tokens per turn."
            )
        return [w / (token_budget * total) for _, w in weighted]


@dataclass(frozen=True, slots=True)
class Grpo(Algorithm):
    """Standardized advantages, clip .2/.2, mean over sequences of the mean over tokens.

    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3. Assumes rewards that compare within a group only. Deviations:
    sample deviation 1/(G - 1) without epsilon. The KL penalty (.04, k3 in the paper) is off. A trajectory of several
    turns is one sequence, and only the policy's own tokens count.
    """


@dataclass(frozen=True, slots=True)
class DrGrpo(Algorithm):
    """Advantages without the division by the deviation, and a constant divisor in place of a sequence's own length.

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2. Assumes that rewards of all groups share one scale. Removes
    the bias towards long wrong and short right replies and towards groups of small deviation. Deviation: the mean over
    trajectories is kept in addition to the division by the token budget, so the scale does not grow with the batch.
    """

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(
        default_factory=lambda: GroupRelative(standardize=False)
    )
    average: Average = "fixed"


@dataclass(frozen=True, slots=True)
class Dapo(Algorithm):
    """Clip .2/.28, mean over all tokens of the batch, no KL, dynamic sampling, overlong shaping.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3. Assumes that a reply should weigh by its length.

    The overlong buffer is the paper's: 4,096 of 20,480 tokens, here 0.2. The overlong penalty is the paper's, half of
    the distance between a right and a wrong reply: 1 there (rewards 1 and -1), 0.5 here (rewards 1 and 0).

    Deviations: at most three batches are collected, and a refill has the size that is likely to be needed. Length is
    penalised per turn. The token mean is over the whole batch, not over a micro-batch. The filter is a separate
    setting. The paper's is `keep_all`, which under dynamic sampling sees no constant group.
    """

    clip_high: float = 0.28
    average: Average = "token"
    sampling_batches: int = 3
    overlong_buffer: float = 0.2


@dataclass(frozen=True, slots=True)
class Rloo(Algorithm):
    """REINFORCE with the other members' mean as baseline, the sum over a trajectory's tokens.

    Source: Ahmadian et al. 2024, arXiv:2402.14740. Assumes that rewards of all groups share one scale. Deviations: the
    sum over tokens is divided by the token budget, a constant of the run. There is one optimizer step per batch, where
    the clipped surrogate's gradient is that of REINFORCE. There is no KL in the reward.
    """

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(default_factory=LeaveOneOut)
    average: Average = "fixed"


@dataclass(frozen=True, slots=True)
class MaxRl(Algorithm):
    """Advantages divided by the group's mean reward, so that rare successes weigh more.

    Source: arXiv:2602.02710, and its public code. For rewards of 0 and 1. Deviation: the average is that of `dr_grpo`.
    """

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(default_factory=PerSuccess)
    average: Average = "fixed"


@dataclass(frozen=True, slots=True)
class Qae(Algorithm):
    """GRPO with a quantile of the group as baseline: hard tasks learn from successes, easy ones from failures.

    Source: arXiv:2509.22611, read on summary pages alone.
    """

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(default_factory=AboveQuantile)


@dataclass(frozen=True, slots=True)
class Gspo(Algorithm):
    """GRPO's advantages under a ratio per sequence: the geometric mean of its tokens' ratios, clipped at 3e-4 / 4e-4.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5-7 and its four mini-batches per batch. The clip is so narrow
    because a mean over tokens moves so little. A sequence is one row of ids: a whole trajectory where its history is
    kept. With one optimizer step per batch this is GRPO.
    """

    ratio: Ratio = "sequence"
    clip_low: float = 3e-4
    clip_high: float = 4e-4
    minibatches: int = 4


@dataclass(frozen=True, slots=True)
class Cispo(Algorithm):
    """REINFORCE under a clipped importance weight through which no gradient runs: no token loses its gradient.

    Source: Chen et al. 2025 (MiniMax-M1), arXiv:2506.13585, eq. 4-5: no lower clip (here 1 - 1 = 0), an upper one that
    is tuned (here 1 + 4), the mean over all tokens. With one optimizer step per batch this is GRPO under that mean.
    """

    surrogate: Surrogate = "weight"
    clip_low: float = 1.0
    clip_high: float = 4.0
    average: Average = "token"
    minibatches: int = 4


@dataclass(frozen=True, slots=True)
class Ppo(Algorithm):
    """Advantages from a critic by GAE, clip .2/.2, the mean over all tokens.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 11. GAE: arXiv:1506.02438. Assumes a critic that predicts
    rewards. Needs no second episode of a task. Deviations: the critic has a loss, an optimizer and a learning rate of
    its own (eq. 9 adds one loss for both). Text of the environment has no value, and gamma and lambda count per turn.
    There are two mini-batches and one epoch, where the paper takes up to 15 epochs.
    """

    advantage: Annotated[Estimator, Choice(ESTIMATORS)] = field(default_factory=Gae)
    average: Average = "token"
    minibatches: int = 2


ALGORITHMS: dict[str, type[Algorithm]] = {
    "ppo": Ppo,
    "grpo": Grpo,
    "dr_grpo": DrGrpo,
    "dapo": Dapo,
    "rloo": Rloo,
    "maxrl": MaxRl,
    "qae": Qae,
    "gspo": Gspo,
    "cispo": Cispo,
}


def check_loss_scale(kind: LossScale, share: float | None) -> None:
    """Raise ValueError for `rho` with a filter that asks for no `share` of the groups."""
    if kind == "rho" and share is None:
        raise ValueError(
            "The loss scale rho multiplies the loss by the share that the filter asks for, but the chosen filter asks "
            "for none; choose the filter top_p, or the loss scale kept, all or sqrt."
        )


def loss_scale_factor(kind: LossScale, kept: float, total: int, p: float | None = None) -> float:
    """The factor of the whole loss, its regularisers included, when `kept` of `total` groups are kept.

    `kept`: 1, so means run over the kept groups. `all`: kept / total, so means run over all collected groups. This is
    exact where groups weigh alike, as in averages over sequences and over a fixed budget. `sqrt`: the square root of
    it. `rho`: p, the filter's share. AdamW removes a constant factor again. Only changes of the factor between steps,
    weight decay and gradient clipping make a difference.

    `p` is needed for `rho` alone, see `check_loss_scale`.
    """
    if kind == "rho":
        assert p is not None, "check_loss_scale has refused it"
        return p
    share = kept / total
    return {"kept": 1.0, "all": share, "sqrt": math.sqrt(share)}[kind]
