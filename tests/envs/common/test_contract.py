"""Environments that raise or return anything: the error names environment, task and exception."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from heedful.envs.common.contract import MOST_PAIRS, demonstrated, missing_from, steps_of
from heedful.envs.toys.echo import Echo

TASK = Echo().task(3)
PLACE = rf"the environment echo .*task {TASK.id} \(seed 3\), found "


def teaching(demonstrate: Callable[[], Any]) -> Any:
    @dataclass(frozen=True)
    class Teaching(Echo):
        def demonstrate(self, task: Any, rng: random.Random) -> Any:
            return demonstrate()

    return Teaching()


def raises() -> Any:
    raise KeyError("no map")


def a_generator_that_raises() -> Any:
    yield ("a", "b")
    raise GeneratorExit


@pytest.mark.parametrize(
    ("demonstrate", "found"),
    [
        (raises, r"that it raised KeyError: 'no map' \(test_contract.py, line \d+\)"),
        (a_generator_that_raises, "that it raised GeneratorExit"),
        (lambda: None, "that it raised TypeError"),
        (list, "no pairs"),
        (lambda: [("a", 1)], "1 in place of a text"),
        (lambda: ["ab"], "str in place of two texts"),
        (lambda: itertools.repeat(("a", "b")), f"more than {MOST_PAIRS:,} pairs"),
    ],
)
def test_a_demonstration_that_cannot_be_used_is_refused_by_name(demonstrate: Callable[[], Any], found: str) -> None:
    with pytest.raises(ValueError, match=PLACE + found):
        demonstrated(teaching(demonstrate), TASK, random.Random(0))


def test_pairs_of_any_sequence_are_a_list_of_pairs() -> None:
    env = teaching(lambda: iter([["a", "b"], ("c", "d")]))
    assert demonstrated(env, TASK, random.Random(0)) == [("a", "b"), ("c", "d")]


def test_an_episode_that_raises_after_a_faulty_reply_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Fragile(Echo):
        def episode(self) -> Any:
            raise RuntimeError("no board")

    with pytest.raises(ValueError, match=r"`step` of the environment echo .* it raised RuntimeError: no board"):
        steps_of(Fragile(), TASK, ["cut"])


def test_the_answers_to_replies_are_returned_until_the_episode_ends() -> None:
    env = Echo(instructions="brief", turns=2)
    steps = steps_of(env, env.task(3), ["cut"] * 3)
    assert "turns" in steps[0].observation.text
    assert [step.ending is None for step in steps] == [True, False]


def test_what_has_all_members_lacks_nothing() -> None:
    assert missing_from(Echo()) == ""
    assert missing_from(3) == "a int without `name`, `turns`, `task`, `episode`"
