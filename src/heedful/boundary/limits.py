"""Bounds of settings that many classes share, as annotations.

A field says its own bound where no name here fits: `kl: Annotated[float, Interval(ge=0, le=100)] = 0.0`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import Interval, MinLen

MOST_AT_ONCE = 1024
"""Threads, or processes, that a command starts. All are started, and a system has room for a few thousand."""

LARGEST_REWARD = 1e30
"""Of an environment, and of an advantage. Sums of them have to stay finite, in float32 as well."""

MOST_SECONDS = 10**6
"""Seconds that anything is waited for: 11 days. Very long waits do not fit into the clocks of the system."""

Count: TypeAlias = Annotated[int, Interval(ge=1)]
Natural: TypeAlias = Annotated[int, Interval(ge=0)]
"""A whole number that may be 0."""
Threads: TypeAlias = Annotated[int, Interval(ge=1, le=MOST_AT_ONCE)]
Workers: TypeAlias = Annotated[int, Interval(ge=0, le=MOST_AT_ONCE)]
"""Processes beside this one. 0 = none."""
Share: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
PositiveShare: TypeAlias = Annotated[float, Interval(gt=0, le=1)]
Seconds: TypeAlias = Annotated[float, Interval(gt=0, le=MOST_SECONDS)]
Wait: TypeAlias = Annotated[float, Interval(ge=0, le=MOST_SECONDS)]
"""Seconds that may be 0."""
Temperature: TypeAlias = Annotated[float, Interval(gt=0)]
NotNegative: TypeAlias = Annotated[float, Interval(ge=0)]
LearningRate: TypeAlias = Annotated[float, Interval(gt=0)]
Port: TypeAlias = Annotated[int, Interval(ge=0, le=65535)]
Text: TypeAlias = Annotated[str, MinLen(1)]
"""Text that is more than spaces."""
