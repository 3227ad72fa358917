"""The settings of heedful inside TRL. Torch-free. TRL's own settings stay in its GRPOConfig."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, ClassVar

from heedful.boundary import Choice, Count, settings
from heedful.integrations.watching.settings import WatchingConfig
from heedful.rollout.choosers import CHOOSERS, Chooser, InOrder


@settings
class HeedfulConfig(WatchingConfig):
    """The filter, the diagnostics, and facts that TRL does not have."""

    trainer: ClassVar[str] = "TRL"
    seed: int | None = None
    """Seed of the random draws of filter and measurements. None = the seed of TRL's arguments."""
    choose: Annotated[Chooser, Choice(CHOOSERS, Chooser)] = field(default_factory=InOrder)
    """Which prompts are sampled next, by the success of earlier visits to them. InOrder() = the order of TRL."""
    sampling_batches: Count = 1
    """Most generation batches for one update. While fewer groups vary than one batch holds, more prompts are drawn from
    the training data, as many as are likely to be needed (DAPO's dynamic sampling). 1 = no refill."""
    sampling_tokens: Count | None = None
    """Sampled tokens of one update after which no further batch is drawn. None = no limit."""

    def seed_in(self, args: Any) -> int:
        """The seed of the draws in a run with these arguments of TRL."""
        return int(args.seed) if self.seed is None else self.seed
