"""Bounds of settings that many classes share, as annotations, and the few upper bounds that keep a typing error or a
file of somebody else from taking all time and memory.

A field says its own bound where no name here fits: `kl: Annotated[float, Interval(ge=0, le=100)] = 0.0`.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Annotated, Any, TypeAlias

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

_MOST_BITS = 13_950


def refuse_seconds(config: object, *above: str, least: tuple[str, ...] = ()) -> None:
    """Raise ValueError for the first field that is no wait: seconds above 0, or for those of `least` 0 as well."""
    for name in (*above, *least):
        found = number_of(name, getattr(config, name))
        if not 0 <= found <= MOST_SECONDS or (name in above and not found):
            bound = "above 0" if name in above else "of at least 0"
            raise ValueError(f"{name} must be a number of seconds {bound} and at most {MOST_SECONDS:,}, found {found}")


def refuse_below(config: object, **least: int) -> None:
    """Raise ValueError for the first field of `config` that is below its least value; a field that is None is not."""
    for name, value in least.items():
        found = _number_in(config, name)
        if found is not None and found < value:
            raise ValueError(f"{name} must be at least {value}, found {found}")


def refuse_above(config: object, **most: int) -> None:
    """Raise ValueError for the first field of `config` that is above its most; a field that is None is not."""
    for name, value in most.items():
        found = _number_in(config, name)
        if found is not None and found > value:
            raise ValueError(f"{name} must be at most {value}, found {found}")


def _number_in(config: object, name: str) -> Any:
    """The number in a field, or None. Raises ValueError for anything else, such as 1.5 in a field of whole numbers."""
    value = getattr(config, name)
    field = getattr(type(config), "__dataclass_fields__", {}).get(name)
    if value is not None and field is not None and field.type in ("int", "int | None"):
        return whole_number(name, value)
    if value is not None and number_of(name, value) != value:  # NaN is below no number, and above none
        raise ValueError(f"{name} must be a number, found {value}")
    return value


def refuse_outside(name: str, value: Any, least: float, most: float, whole: bool = False) -> None:
    """Raise ValueError for a value that is not from `least` to `most`, or with `whole` is no whole number."""
    number = whole_number(name, value) if whole else number_of(name, value)
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least:,} to {most:,}, found {value!s:.80}")


def whole_number(name: str, value: Any) -> Any:
    """The whole number that a field holds. Raises ValueError for anything else."""
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, found {value!r:.100}")
    _refuse_digits(name, value)
    return value


def number_of(name: str, value: Any) -> Any:
    """The number that a field holds. Raises ValueError for anything else: Python's error would not name the field."""
    if not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, found {value!r:.100}")
    _refuse_digits(name, value)
    return value


def _refuse_digits(name: str, value: Any) -> None:
    """Python writes no whole number of more digits, neither into files nor into messages."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError(f"{name} must be a number of at most 4,200 digits, found one of {value.bit_length():,} bits")
