"""The critic's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from heedful.algorithms.entropy_control import LARGEST_COEFFICIENT
from heedful.boundary.limits import refuse_outside
from heedful.training.optimizer_config import MOST_WARMUP

Kind = Literal["model", "head"]


@dataclass(frozen=True, slots=True)
class CriticConfig:
    """The critic of an algorithm whose advantages read values (ppo). No effect on the others."""

    kind: Kind = "model"
    """model: a copy of the policy's layers under a head of one number. head: such a head on the policy's own layers."""
    lr: float = 3e-4
    """Learning rate of the critic's own parameters. The other settings come from --optimizer."""
    trunk: float = 0.0
    """With kind head: share of the value loss's gradient that reaches the policy's layers, in the policy's own step."""
    coefficient: float = 1.0
    """Coefficient of the value loss, half the squared error."""
    clip: float | None = None
    """Take the larger of two errors: of the value, and of the value kept this close to what it was before the update.
    none = the value's own error."""
    warmup_steps: int = 0
    """Training steps at the start in which only the critic learns and the policy does not change."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"Expected the critic's kind to be model or head, found {self.kind!r}.")
        for name, value in (("lr", self.lr), ("coefficient", self.coefficient), ("clip (none = no clip)", self.clip)):
            if value is not None and not 0 < value <= LARGEST_COEFFICIENT:
                raise ValueError(
                    f"Expected the critic's {name} to be above 0 and at most {LARGEST_COEFFICIENT:g}, found {value}."
                )
        if not 0 <= self.trunk <= LARGEST_COEFFICIENT:
            raise ValueError(f"Expected the critic's trunk between 0 and {LARGEST_COEFFICIENT:g}, found {self.trunk}.")
        if self.trunk > 0 and self.kind == "model":
            raise ValueError(
                f"The critic's trunk ({self.trunk}) is the share of the value loss that reaches the policy's layers, "
                "but a critic of kind model has layers of its own; choose --critic.kind head, or leave trunk at 0."
            )
        refuse_outside("the critic's warmup_steps", self.warmup_steps, 0, MOST_WARMUP, whole=True)
