"""The settings of heedful inside TRL. Torch-free. TRL's own settings stay in its GRPOConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from heedful.algorithms.loss_scale import LossScale, check_loss_scale
from heedful.filters import TopP
from heedful.integrations.watching.logged import numbers_of
from heedful.integrations.watching.weights import refuse_soft_weights
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.chat.replies import Tags
from heedful.protocols import Filter
from heedful.types import Metric

OnCollapse = Literal["warn", "stop"]
Logs = Literal["main", "all"]


@dataclass(frozen=True, slots=True)
class HeedfulConfig:
    """The filter, the diagnostics, and facts that TRL does not have."""

    filter: Filter = field(default_factory=lambda: TopP(on="reward"))
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
        """Raises ValueError for a value of another kind: a program, and no file, gives them."""
        words = {"loss_scale": LossScale, "on_collapse": OnCollapse, "logs": Logs}
        for name, kind in words.items():
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"{name}: expected one of {', '.join(get_args(kind))}, found {getattr(self, name)!r:.80}"
                )
        for name, cls in (("tags", Tags), ("diagnostics", DiagnosticsConfig)):
            if not isinstance(getattr(self, name), cls):
                raise ValueError(f"{name}: expected a {cls.__name__}(...), found {getattr(self, name)!r:.80}")
        if not isinstance(self.record, bool):
            raise ValueError(f"record: expected True or False, found {self.record!r:.80}")
        if self.seed is not None and type(self.seed) is not int:
            raise ValueError(f"seed: expected a whole number or None, found {self.seed!r:.80}")
        check_loss_scale(self.loss_scale, self.filter.share)
        refuse_soft_weights("TRL", self.filter)

    @classmethod
    def of(cls, given: HeedfulConfig | None) -> HeedfulConfig:
        """The settings that were given, or all defaults. Raises ValueError for anything else, such as a mapping."""
        if not isinstance(given, cls | None):
            raise ValueError(f"heedful: expected a HeedfulConfig(...) of heedful.integrations.trl, found {given!r:.80}")
        return given or cls()

    def logged(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """The metrics for TRL's logs, by name."""
        return numbers_of(metrics, self.logs == "all")
