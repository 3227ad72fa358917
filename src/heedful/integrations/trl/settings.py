"""What can be set about heedful inside TRL.

Promise: torch-free; TRL's own settings stay in its GRPOConfig, and nothing is set twice.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from heedful.algorithms.loss_scale import LossScale
from heedful.filters import TopP
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.replies import Tags
from heedful.protocols import Filter
from heedful.types import Metric, Verdict

FOLDER = "heedful"
"""The folder within TRL's output_dir that holds the record of a run; a second run there is `heedful-2`."""

UNEVEN = tuple((1.0,) * ones + (0.0,) * (8 - ones) for ones in (0, 1, 4, 8))
"""Values of groups that a filter with weights would weigh unevenly."""

_DETAIL = re.compile(
    r"(information|retrieval)[^/]*/(?!first_turn(@[^/]*)?/)"  # other scopes than first turns
    r"|information/.*/(mi_loo|mi_tempered|mi_per_token|mi_head_.*|n_reaching_.*|zscore.*|entropy_.*(?<!per_token))$"
    r"|retrieval/.*(@|chance|2way)"
)


@dataclass(frozen=True, slots=True)
class HeedfulConfig:
    """The filter, the diagnostics, and what TRL does not know of itself."""

    filter: Filter = field(default_factory=lambda: TopP(on="reward"))
    """Chooses prompts by how their completions' values spread. `on`: `reward` (the weighted sum of the raw rewards, as
    they were given), `outcome`, the name of a reward function, or of a component of one of heedful's environments."""
    loss_scale: LossScale = "kept"
    """What the loss is multiplied by when groups were dropped."""
    outcome: str | None = None
    """The reward function (its name in TRL's logs) that says success: 1 = solved, between 0 and 1 = partly. Without
    one success is unknown, unless heedful's own environments are played."""
    tags: Tags = field(default_factory=Tags)
    """What delimits thought and answer in a completion."""
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    """How often, and on how many thoughts, is measured."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """What an alarm named a collapse does: warn = say so and go on; stop = end the training after the step, saved."""
    record: bool = True
    """Keep rollouts, metrics with intervals, and score matrices in `<output_dir>/heedful`: what `heedful report` and
    `heedful audit` read."""
    logs: Literal["main", "all"] = "main"
    """Which numbers go into TRL's own logs; the record holds all of them."""
    seed: int | None = None
    """Of the filter's and the measurements' own draws; none = the seed of TRL's arguments."""

    def __post_init__(self) -> None:
        check_weights(self.filter, self.filter(UNEVEN, random.Random(0)))

    def logged(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """The numbers that go into TRL's logs, by name."""
        return {
            metric.name: float(metric.value)
            for metric in metrics
            if isinstance(metric.value, int | float)
            and math.isfinite(metric.value)
            and (self.logs == "all" or not _DETAIL.match(metric.name))
        }


def check_weights(filter: Filter, verdicts: Sequence[Verdict]) -> None:
    """Raise ValueError for verdicts that weigh: TRL's loss knows rows that are there and rows that are not."""
    weights = sorted({verdict.weight for verdict in verdicts})
    if not set(weights) <= {0.0, 1.0}:
        raise ValueError(
            f"Inside TRL a group is kept or dropped, but {type(filter).__name__} weighs softly (here with "
            f"{', '.join(f'{weight:.3g}' for weight in weights)}); choose a filter without weights, such as TopP."
        )
