"""Numbers of any size in the configuration of an environment, as a file of another person may hold them."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from heedful.envs import ENVIRONMENTS
from patience import within_cpu_seconds

SIZES = (300, 10**6, 10**18, 10**400, -(10**400))
OUR_OWN = ("bandit", "chain", "countdown", "echo", "frozen_lake", "math", "sokoban", "sudoku")


@pytest.mark.parametrize("name", OUR_OWN)
def test_a_number_of_any_size_is_taken_or_refused_at_once(name: str) -> None:
    env = ENVIRONMENTS[name]()
    numbers = [field.name for field in dataclasses.fields(env) if type(getattr(env, field.name)) is int]
    assert "turns" in numbers
    for knob in numbers:
        for size in SIZES:
            with within_cpu_seconds(5.0), contextlib.suppress(ValueError):
                dataclasses.replace(env, **{knob: size})
