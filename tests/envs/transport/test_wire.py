"""Answers over a border: what is read is what was written, and what is no answer is refused in a sentence."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from heedful.boundary.limits import LARGEST_REWARD
from heedful.envs.common.contract import checked_step
from heedful.envs.transport.wire import (
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
        task = Task(texts[0], rng.getrandbits(64) - 2**63, texts[1], tuple(texts[2:4]), texts[4])
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


WHOLE = step_tree(Step(Observation("x"), {"a": 1.0}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"observation": "x"}, "Expected 'observation' of a step as an object, found 'x'."),
        ({"observation": {"text": 1, "opening": ""}}, "Expected 'text' of an observation as text, found 1."),
        ({"rewards": {"a": "much"}}, "Expected the reward 'a' of a step as a finite number, found 'much'."),
        ({"rewards": {"a": True}}, "Expected the reward 'a' of a step as a finite number, found True."),
        ({"ending": "over"}, "Expected the ending of a step among solved, failed"),
        ({"outcome": True}, "Expected 'outcome' of a step as a finite number, found True."),
        (
            {"actions": [1]},
            "Expected a step's actions as texts, found 1 among them.",
        ),
        ({"valid": 1}, "Expected 'valid' of a step as true or false, found 1."),
        ({"state": None}, "Expected 'state' of a step as text, found None."),
    ],
)
def test_a_tree_that_is_no_step_is_refused(change: dict[str, Any], sentence: str) -> None:
    assert read_step(WHOLE) == Step(Observation("x"), {"a": 1.0})
    with pytest.raises(WireError) as refused:
        read_step(WHOLE | change)
    assert str(refused.value).startswith(sentence)
    with pytest.raises(WireError, match="Expected a step as an object, found"):
        read_step([change])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (Step(Observation("x"), [("a", 1.0)]), "rewards as .*; expected named numbers"),
        (Step(Observation("x"), {1: 1.0}), "named a reward or an action 1; expected text"),
        (Step(Observation("x"), progress="half"), "progress as 'half'; expected a number in \\[0, 1\\]"),
        (Step(Observation("x"), effect=None), "effect as None; expected text"),
        (Step(Observation("x"), state=3), "state as 3; expected text"),
        (Step(Observation("x"), valid=None), "valid as None; expected True or False"),
        (Step(Observation("x"), valid="yes"), "valid as 'yes'; expected True or False"),
        (Step(Observation("x"), valid=2), "valid as 2; expected True or False"),
        (Step(Observation("x"), valid=math.nan), "valid as nan; expected True or False"),
        (Step(Observation("x"), {"a": -2e30}), "the reward 'a' as -2e\\+30; expected at most 1e\\+30 in size"),
        (Step(Observation("x"), actions="Up"), "actions as 'Up'; expected a tuple"),
    ],
)
def test_what_could_not_cross_is_refused_at_home_as_well(step: Step, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked_step(step)


@pytest.mark.parametrize("valid", [True, False, np.True_, np.False_, 1, 0])
def test_a_step_says_with_a_plain_bool_whether_it_was_valid(valid: Any) -> None:
    checked = checked_step(Step(Observation("x"), valid=valid))
    assert type(checked.valid) is bool
    assert checked.valid == bool(valid)


@pytest.mark.parametrize("message", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(message: bytes) -> None:
    with pytest.raises(WireError, match="Expected JSON, found"):
        decode(message)
