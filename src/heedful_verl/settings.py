"""The settings of heedful inside verl: the section `heedful` of verl's configuration. Neither verl nor torch is needed.

verl's own settings stay in verl's configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal

from annotated_types import Interval

from heedful.algorithms import LossScale, check_loss_scale
from heedful.boundary import Choice, ConfigurationError, Problem, from_json, settings
from heedful.filters import FILTERS, TopP
from heedful.integrations.watching import numbers_of, refuse_soft_weights
from heedful.measuring import DiagnosticsConfig
from heedful.models import Tags
from heedful.protocols import Filter
from heedful.types import Metric
from heedful_verl.play.playing import PlayConfig

SECTION = "heedful"
"""The section of verl's configuration."""

VARIABLE = "VERL_USE_EXTERNAL_MODULES"
"""The environment variable in which verl finds modules to import first."""

REGISTER = "heedful_verl.register"
"""The module to name there."""

MODES: Mapping[str, str] = {
    "heedful_sync": "sync",
    "heedful_colocate_async": "colocate_async",
    "heedful_separate_async": "separate_async",
}
"""trainer.v1.trainer_mode -> the mode of verl that it stands for."""


@settings
class HeedfulConfig:
    """The filter, the diagnostics, and facts that verl does not have."""

    filter: Annotated[Filter, Choice(FILTERS)] = field(default_factory=lambda: TopP(on="reward"))
    """Chooses prompts by the spread of their responses' values. `on`: `reward`, `outcome`, a key of
    `reward_extra_info`, or a component of one of heedful's environments."""
    loss_scale: LossScale = "kept"
    """Factor of the loss when groups were dropped."""
    outcome: str | None = None
    """The key of `reward_extra_info` that measures success: 1 = solved, between 0 and 1 = partly. Without it success is
    unknown, unless heedful's own environments are played."""
    tags: Tags = field(default_factory=Tags)
    """Delimiters of thought and answer in a response."""
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    """How often and on how many thoughts heedful measures. `max_tokens` has no effect: verl cuts batches itself."""
    max_pairs: Annotated[int, Interval(ge=4)] = 4096
    """Most rows of one full measurement of first turns through the workers: prompts times thoughts. Fewer groups are
    read if it would take more."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """Effect of an alarm that names a collapse: warn = warning only, stop = end the training after the step, saved."""
    record: bool = True
    """Keep rollouts, metrics with intervals, and score matrices in `<trainer.default_local_dir>/heedful`, for `heedful
    report` and `heedful audit`."""
    logs: Literal["main", "all"] = "main"
    """Which metrics go to verl's trackers. The record holds all of them."""
    seed: int = 0
    """Seed of the random draws of filter and measurements."""
    play: PlayConfig = field(default_factory=PlayConfig)
    """How heedful's own environments are played."""

    def __post_init__(self) -> None:
        check_loss_scale(self.loss_scale, self.filter.share)
        refuse_soft_weights("verl", self.filter)
        if self.diagnostics.judge is not None:
            raise ValueError(
                f"Expected no diagnostics.judge, found {self.diagnostics.judge!r}: verl's workers hold the policy "
                "only. Read the record with a judge afterwards, with heedful audit --judge."
            )

    def groups_read(self, members: int) -> int:
        """Most groups of a full measurement of first turns, which scores groups x (groups x members) rows."""
        return max(2, math.isqrt(self.max_pairs // max(1, members)))

    def logged(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """The metrics for verl's trackers, by name."""
        return numbers_of(metrics, self.logs == "all")


def read_section(section: Any) -> HeedfulConfig:
    """The settings in a plain tree. `None` = all defaults.

    Raises ConfigurationError with every mistake, and where it is.
    """
    if section is None:
        return HeedfulConfig()
    _refuse_booleans(section, SECTION)
    try:
        return from_json(HeedfulConfig, section, base=HeedfulConfig())
    except ConfigurationError as error:
        named = [Problem(f"{SECTION}.{each.path}".rstrip("."), each.sentence) for each in error.problems]
        raise ConfigurationError(named) from None


def _refuse_booleans(tree: Any, path: str) -> None:
    """Refuse a key that YAML turned from `on` into a boolean."""
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        if isinstance(key, bool):
            sentence = (
                f"expected names of settings, found the boolean {str(key).lower()}: YAML reads an unquoted on as "
                'true and off as false. Write "on": in quotes'
            )
            raise ConfigurationError([Problem(path, sentence)])
        _refuse_booleans(value, f"{path}.{key}")
