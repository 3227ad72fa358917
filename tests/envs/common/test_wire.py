"""Answers over a border: what is read is what was written, and what is no answer is refused in a sentence."""

from __future__ import annotations

import dataclasses
import math
import random
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from heedful.boundary.limits import LARGEST_REWARD
from heedful.envs.common.contract import ContractError, checked_step
from heedful.envs.common.wire import (
    WireError,
    decode,
    encode,
    generator_tree,
    observation_tree,
    read_generator,
    read_observation,
    read_step,
    read_task,
    step_tree,
    task_tree,
)
from heedful.types import Ending, Observation, Step, Task

TEXTS = ("", "plain", "ü 漢字 \x00 \n", "\ud800 a lone surrogate", "<|im_end|>", '"}{', "\u2028")


def over(tree: Any) -> Any:
    return decode(encode(tree))


def test_what_is_read_is_what_was_written() -> None:
    rng = random.Random(0)
    for number in range(300):
        floats = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(2)]
        floats = [value if abs(value) <= LARGEST_REWARD else 0.1 for value in floats]
        texts = [rng.choice(TEXTS) for _ in range(6)]
        task = Task(texts[0] or "id", rng.getrandbits(64) - 2**63, texts[1], tuple(texts[2:4]), texts[4])
        assert read_task(over(task_tree(task))) == task
        ending = rng.choice([None, *Ending])
        step = Step(
            observation=Observation(texts[0], texts[1]),
            rewards={texts[2]: floats[0], "b": floats[1], "a": -0.0},
            ending=ending,
            outcome=None if ending in (None, Ending.ERROR) else rng.random(),
            progress=rng.choice([None, rng.random()]),
            actions=tuple(texts[3:5]),
            valid=number % 2 == 0,
            effect=texts[4],
            state=texts[5],
        )
        again = read_step(over(step_tree(checked_step(step))))
        assert again == step
        assert list(again.rewards) == list(step.rewards)
        assert repr(again.rewards) == repr(dict(step.rewards))
        assert read_observation(over(observation_tree(step.observation))) == step.observation


def test_a_task_of_an_earlier_peer_has_no_environment() -> None:
    assert read_task({"id": "a", "seed": 1, "split": "val", "tags": []}) == Task("a", 1, "val")


def test_numbers_of_other_libraries_cross_as_plain_ones() -> None:
    step = Step(
        Observation("x"),
        {"a": np.float32(0.1), "b": np.int64(3), "c": Fraction(1, 4), "d": True},
        Ending.FAILED,
        outcome=np.float64(0.5),
        progress=np.float32(0.25),
        actions=["Up"],
        valid=np.bool_(False),
    )
    read = read_step(over(step_tree(checked_step(step))))
    assert read.rewards == {"a": float(np.float32(0.1)), "b": 3.0, "c": 0.25, "d": 1.0}
    assert (read.outcome, read.progress, read.actions, read.valid) == (0.5, 0.25, ("Up",), False)


def test_a_generator_draws_on_where_it_was() -> None:
    rng = random.Random(3)
    rng.gauss(0, 1)
    there = read_generator(over(generator_tree(rng)))
    assert [there.random() for _ in range(5)] == [rng.random() for _ in range(5)]
    for tree in (None, [], [3, [1, 2], None], [3, ["a"] * 625, None], [3, [-1] * 625, None], "state"):
        with pytest.raises(WireError, match="Expected the state of a random generator, found"):
            read_generator(tree)


def change(**fields: Any) -> Step:
    return Step(Observation("x"), **fields)


WRONG: list[tuple[Step, str]] = [
    (change(rewards=[("a", 1.0)]), "rewards as .*; expected named numbers"),
    (change(rewards={1: 1.0}), "the name of a reward as 1; expected text"),
    (change(rewards={"a": "much"}), "the reward 'a' as 'much'; expected a finite number"),
    (change(rewards={"a": -2e30}), "the reward 'a' as -2e\\+30; expected at most 1e\\+30 in size"),
    (change(outcome=7), "answered a reply with outcome 7; expected a number in \\[0, 1\\]"),
    (change(progress="half"), "progress as 'half'; expected a number in \\[0, 1\\]"),
    (change(actions="Up"), "actions as 'Up'; expected a tuple"),
    (change(actions=[1]), "an action as 1; expected text"),
    (change(valid="yes"), "valid as 'yes'; expected True or False"),
    (change(valid=2), "valid as 2; expected True or False"),
    (change(effect=None), "effect as None; expected text"),
    (change(state=3), "state as 3; expected text"),
]


@pytest.mark.parametrize(("step", "sentence"), WRONG)
def test_what_is_no_step_is_refused_at_home_and_when_it_arrives(step: Step, sentence: str) -> None:
    with pytest.raises(ContractError, match=sentence):
        checked_step(step)
    tree = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    with pytest.raises(WireError, match=f"Expected a step, found .*{sentence}"):
        read_step(tree | {"observation": {"text": "x", "opening": ""}})


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ([1], "Expected a step, found"),
        ({"rewards": {}}, "no 'observation'"),
        ({"observation": "x"}, "Expected a step, found"),
        ({"observation": {"text": 1, "opening": ""}}, "an Observation with a text"),
        ({"observation": {"text": "x", "opening": ""}, "ending": "over"}, "'over' is not a valid Ending"),
    ],
)
def test_a_tree_of_another_form_is_refused(tree: Any, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        read_step(tree)


def test_what_no_json_says_of_validity_is_refused() -> None:
    for valid in (None, math.nan):
        with pytest.raises(ContractError, match="expected True or False"):
            checked_step(change(valid=valid))


@pytest.mark.parametrize("valid", [True, False, np.True_, np.False_, 1, 0])
def test_a_step_says_with_a_plain_bool_whether_it_was_valid(valid: Any) -> None:
    checked = checked_step(Step(Observation("x"), valid=valid))
    assert type(checked.valid) is bool
    assert checked.valid == bool(valid)


@pytest.mark.parametrize("message", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(message: bytes) -> None:
    with pytest.raises(WireError, match="Expected JSON, found"):
        decode(message)
