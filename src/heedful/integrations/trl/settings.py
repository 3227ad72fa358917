"""The settings of heedful inside TRL. Torch-free. TRL's own settings stay in its GRPOConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal

from heedful.algorithms.table import LossScale, check_loss_scale
from heedful.boundary import Choice, settings
from heedful.filters import FILTERS, TopP
from heedful.integrations.watching.settings import numbers_of, refuse_soft_weights
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.chat.replies import Tags
from heedful.protocols import Filter
from heedful.types import Metric

OnCollapse = Literal["warn", "stop"]
Logs = Literal["main", "all"]


@settings
class HeedfulConfig:
    """The filter, the diagnostics, and facts that TRL does not have."""

    filter: Annotated[Filter, Choice(FILTERS)] = field(default_factory=lambda: TopP(on="reward"))
    """Chooses prompts by the spread of their completions' values. `on`: `reward` (the weighted sum of the raw rewards),
    `outcome`, the name of a reward function, or of a component of one of heedful's environments."""
    loss_scale: LossScale = "kept"
    """Factor of the loss when groups were dropped."""
    outcome: str | None = None
    """The reward function (its name in TRL's logs) that measures success: 1 = solved, between 0 and 1 = partly. Without
    it success is unknown, unless heedful's own environments are played."""
    tags: Tags = field(default_factory=Tags)
    """Delimiters of thought and answer in a completion."""
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    """How often and on how many thoughts heedful measures."""
    on_collapse: OnCollapse = "warn"
    """Effect of an alarm that names a collapse: warn = warning only, stop = end the training after the step, saved."""
    record: bool = True
    """Keep rollouts, metrics with intervals, and score matrices in `<output_dir>/heedful`, for `heedful report` and
    `heedful audit`."""
    logs: Logs = "main"
    """Which metrics go into TRL's own logs. The record holds all of them."""
    seed: int | None = None
    """Seed of the random draws of filter and measurements. None = the seed of TRL's arguments."""

    def __post_init__(self) -> None:
        """Raises ValueError for a filter that TRL's loss cannot apply."""
        check_loss_scale(self.loss_scale, self.filter.share)
        refuse_soft_weights("TRL", self.filter)

    def logged(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """The metrics for TRL's logs, by name."""
        return numbers_of(metrics, self.logs == "all")
