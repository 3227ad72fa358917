"""The settings of heedful inside verl: the section `heedful` of verl's configuration. Neither verl nor torch is needed.

verl's own settings stay in verl's configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

from annotated_types import Interval

from heedful.boundary import ConfigurationError, Problem, from_json, settings
from heedful.integrations.watching import WatchingConfig
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
class HeedfulConfig(WatchingConfig):
    """The filter, the diagnostics, and facts that verl does not have."""

    trainer: ClassVar[str] = "verl"
    max_pairs: Annotated[int, Interval(ge=4)] = 4096
    """Most rows of one full measurement of first turns through the workers: prompts times thoughts. Fewer groups are
    read if it would take more."""
    seed: int = 0
    """Seed of the random draws of filter and measurements."""
    play: PlayConfig = field(default_factory=PlayConfig)
    """How heedful's own environments are played."""

    def __post_init__(self) -> None:
        WatchingConfig.__post_init__(self)
        if self.diagnostics.judge is not None:
            raise ValueError(
                f"Expected no diagnostics.judge, found {self.diagnostics.judge!r}: verl's workers hold the policy "
                "only. Read the record with a judge afterwards, with heedful audit --judge."
            )

    def groups_read(self, members: int) -> int:
        """Most groups of a full measurement of first turns, which scores groups x (groups x members) rows."""
        return max(2, math.isqrt(self.max_pairs // max(1, members)))


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
