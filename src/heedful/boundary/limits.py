"""Bounds of settings that many classes share, as annotations, and the few upper bounds that keep a typing error or a
file of somebody else from taking all time and memory.

A field says its own bound where no name here fits: `kl: Annotated[float, Interval(ge=0, le=100)] = 0.0`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import Interval, MinLen

MOST_AT_ONCE = 1024
"""Threads, or processes, that a command starts. All are started, and a system has room for a few thousand."""

LARGEST_REWARD = 1e30
"""Of an environment, and of an advantage. Sums of them have to stay finite, in float32 as well."""

MOST_EPISODES = 10**6
"""Tasks of a step or of an evaluation, or episodes of a task. All of them are held in memory."""

MOST_TOKENS = 2**31
"""Tokens of a context, or of a reply. No model has so many places."""

MOST_SECONDS = 10**6
"""Seconds that anything is waited for: 11 days. Very long waits do not fit into the clocks of the system."""

COLDEST = 1e-6
"""The lowest temperature. Logits divided by a much smaller number overflow in float32."""

HOTTEST = 10**6
"""The highest temperature. Far above all logits every token is as likely as any other, whatever the prompt."""

Count: TypeAlias = Annotated[int, Interval(ge=1)]
Natural: TypeAlias = Annotated[int, Interval(ge=0)]
"""A whole number that may be 0."""
Tokens: TypeAlias = Annotated[int, Interval(ge=1, le=MOST_TOKENS)]
Episodes: TypeAlias = Annotated[int, Interval(ge=1, le=MOST_EPISODES)]
Threads: TypeAlias = Annotated[int, Interval(ge=1, le=MOST_AT_ONCE)]
Workers: TypeAlias = Annotated[int, Interval(ge=0, le=MOST_AT_ONCE)]
"""Processes beside this one. 0 = none."""
Share: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
PositiveShare: TypeAlias = Annotated[float, Interval(gt=0, le=1)]
Seconds: TypeAlias = Annotated[float, Interval(gt=0, le=MOST_SECONDS)]
Wait: TypeAlias = Annotated[float, Interval(ge=0, le=MOST_SECONDS)]
"""Seconds that may be 0."""
Temperature: TypeAlias = Annotated[float, Interval(ge=COLDEST, le=HOTTEST)]
Coefficient: TypeAlias = Annotated[float, Interval(ge=0, le=1e6)]
"""Of a term of the loss. More is a slip, and float32 overflows at 3e38."""
LearningRate: TypeAlias = Annotated[float, Interval(gt=0, le=1e6)]
"""Far above every use. AdamW divides it, and the quotient has to fit into float32."""
Penalty: TypeAlias = Annotated[float, Interval(ge=0, le=LARGEST_REWARD)]
"""Subtracted from a reward."""
NotNegative: TypeAlias = Annotated[float, Interval(ge=0)]
Port: TypeAlias = Annotated[int, Interval(ge=0, le=65535)]
Text: TypeAlias = Annotated[str, MinLen(1)]
"""Text that is more than spaces."""
