"""The settings of an update: optimizer, critic, LoRA. Torch-free, so that a command line is built in milliseconds."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from heedful.boundary import Distinct, LearningRate, Natural, NotNegative, Text, settings

Beta = Annotated[float, Interval(ge=0, lt=1)]


@settings
class OptimizerConfig:
    """AdamW under a linear warm-up to a constant learning rate."""

    lr: LearningRate = 1.5e-4
    warmup_steps: Natural = 5
    """Optimizer steps over which the learning rate rises to `lr`. The first step already takes lr / warmup_steps."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: NotNegative = 0.0
    gradient_clip: Annotated[float, Interval(gt=0)] = 1.0
    """Largest Euclidean norm of the whole gradient. Longer gradients are scaled down to it."""

    def lr_at(self, step: int) -> float:
        """The learning rate of optimizer step number `step`, counted from 0."""
        return self.lr * min(1.0, (step + 1) / max(1, self.warmup_steps))


Kind = Literal["model", "head"]


@settings
class CriticConfig:
    """The critic of an algorithm whose advantages read values (ppo). No effect on the others."""

    kind: Kind = "model"
    """model: a copy of the policy's layers under a head of one number. head: such a head on the policy's own layers."""
    lr: LearningRate = 3e-4
    """Learning rate of the critic's own parameters. The other settings come from --optimizer."""
    trunk: NotNegative = 0.0
    """With kind head: share of the value loss's gradient that reaches the policy's layers, in the policy's own step."""
    coefficient: Annotated[float, Interval(gt=0, le=1e6)] = 1.0
    """Coefficient of the value loss, half the squared error."""
    clip: Annotated[float, Interval(gt=0, le=1e6)] | None = None
    """Take the larger of two errors: of the value, and of the value kept this close to what it was before the update.
    none = the value's own error."""
    warmup_steps: Natural = 0
    """Training steps at the start in which only the critic learns and the policy does not change."""

    def __post_init__(self) -> None:
        if self.trunk > 0 and self.kind == "model":
            raise ValueError(
                f"The critic's trunk ({self.trunk}) is the share of the value loss that reaches the policy's layers, "
                "but a critic of kind model has layers of its own; choose --critic.kind head, or leave trunk at 0."
            )


LARGEST_RANK = 100_000
"""Above the width of every layer, where an addition is no longer of low rank."""


@settings
class LoraConfig:
    """Train low-rank additions to the weights instead of the weights (Hu et al. 2021, arXiv:2106.09685). Needs peft.

    There is no dropout: the policy that learns must be the policy that sampled.
    """

    rank: Annotated[int, Interval(ge=0, le=LARGEST_RANK)] = 0
    """Rank of the additions. 0 = train the weights themselves."""
    alpha: Annotated[int, Interval(ge=1, le=LARGEST_RANK)] | None = None
    """The addition is multiplied by alpha / rank. none = twice the rank."""
    targets: Annotated[tuple[Text, ...], Distinct(1)] = ("all-linear",)
    """Layers that get an addition: all-linear (every linear layer except the output head), or the ends of their names,
    for instance q_proj v_proj."""

    @property
    def scaled_by(self) -> int:
        """alpha, resolved."""
        return 2 * self.rank if self.alpha is None else self.alpha
