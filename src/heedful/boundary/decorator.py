"""`@settings`: a frozen dataclass whose values are what its annotations say, in a file and in Python alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, overload

from heedful.boundary.schema import describe, holds, settings_of

C = TypeVar("C", bound=type)


@overload
def settings(cls: C, /) -> C: ...
@overload
def settings(*, kw_only: bool = ...) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def settings(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a frozen dataclass with slots that checks its fields when it is constructed.

    A value outside of its annotation raises ValueError with a sentence that names the field. A `__post_init__` of the
    class runs after this check. It holds the rules between several fields, and can rely on each of them.

        @settings
        class TopP:
            p: Annotated[float, Interval(gt=0, le=1)] = 0.9
    """

    def made(cls: Any) -> Any:
        rules = getattr(cls, "__post_init__", None)

        def __post_init__(self: Any) -> None:
            check_settings(self)
            if rules is not None:
                rules(self)

        if rules is not check_settings:
            cls.__post_init__ = check_settings if rules is None else __post_init__
        return dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)

    return made if cls is None else made(cls)


def check_settings(config: object) -> None:
    """Raise ValueError for the fields of `config` that do not hold what their annotations say."""
    cls = type(config)
    try:
        fields = settings_of(cls)
    except TypeError:  # a user's subclass with fields that cannot be configured
        return
    wrong = [
        f"{cls.__name__}.{each.name}: expected {describe(each.kind)}, found {value!r:.80}"
        for each in fields
        if not holds(each.kind, value := getattr(config, each.name))
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
