"""The critic's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from heedful.boundary import Coefficient, LearningRate, Natural, settings

Kind = Literal["model", "head"]


@settings
class CriticConfig:
    """The critic of an algorithm whose advantages read values (ppo). No effect on the others."""

    kind: Kind = "model"
    """model: a copy of the policy's layers under a head of one number. head: such a head on the policy's own layers."""
    lr: LearningRate = 3e-4
    """Learning rate of the critic's own parameters. The other settings come from --optimizer."""
    trunk: Coefficient = 0.0
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
