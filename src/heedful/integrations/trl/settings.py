"""The settings of heedful inside TRL. Torch-free. TRL's own settings stay in its GRPOConfig."""

from __future__ import annotations

from typing import ClassVar

from heedful.boundary import settings
from heedful.integrations.watching.settings import WatchingConfig


@settings
class HeedfulConfig(WatchingConfig):
    """The filter, the diagnostics, and facts that TRL does not have."""

    trainer: ClassVar[str] = "TRL"
    seed: int | None = None
    """Seed of the random draws of filter and measurements. None = the seed of TRL's arguments."""
