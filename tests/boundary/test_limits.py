"""Numbers of settings: too small, too large, not whole, and no numbers at all."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from heedful.policies import Sampling
from heedful.rollout import Asynchronous, Context, LockStep
from heedful.run.presets import preset

MADE: dict[str, Callable[[object], object]] = {
    "Asynchronous": lambda value: Asynchronous(value),  # type: ignore[arg-type]
    "LockStep": lambda value: LockStep(value),  # type: ignore[arg-type]
    "Context": lambda value: Context(value),  # type: ignore[arg-type]
    "Sampling": lambda value: Sampling(tokens_per_turn=value),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, 2.0, "2", -1])
def test_a_count_that_is_no_whole_number_is_refused_where_it_is_given(name: str, value: object) -> None:
    with pytest.raises(ValueError, match="must be "):
        MADE[name](value)


@pytest.mark.parametrize("name", MADE)
def test_whole_numbers_of_numpy_are_taken(name: str) -> None:
    assert MADE[name](np.int64(3)) == MADE[name](3)


@pytest.mark.parametrize("setting", [{"temperature": math.nan}, {"noise": "btach"}, {"precision": "doubel"}])
def test_settings_of_sampling_are_checked_where_they_are_given(setting: dict[str, object]) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} must be "):
        Sampling(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, 2.5])
def test_a_run_of_no_whole_number_of_steps_is_refused(value: float) -> None:
    config = preset("echo")
    with pytest.raises(ValueError, match="steps must be a whole number, found"):
        type(config)(**{name: getattr(config, name) for name in config.__slots__} | {"steps": value})
