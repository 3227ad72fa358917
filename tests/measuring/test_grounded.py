"""Exchanged thoughts scored in one go agree with a small model that reads one context at a time."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.grounding import GROUNDING_NAMES, grounding
from heedful.diagnostics.actions.rightness import PARTS
from heedful.measuring.swapped import exchanged_thoughts, score_exchange
from heedful.protocols import WindowExceeded
from heedful.scorers.hf import HFScorer
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn
from scored_pairs import METHODS, llama, naive_logprobs, qwen2, some_ids


def asked(free: str = "") -> Exchange:
    """Thoughts of 1 to 9 tokens, one of them twice; spellings of unequal length that begin alike."""
    rng = random.Random(3)
    thoughts = [tuple(some_ids(rng, rng.randint(1, 9))) for _ in range(7)]
    return Exchange(
        prompts_N=tuple(tuple(some_ids(rng, length)) for length in (7, 12, 7)),
        thoughts_M=(*thoughts, thoughts[0]),
        own_M=(0, 0, 0, 1, 1, 2, 2, 0),
        spellings_S=((5,), (6, 7), (6, 8, 9), (6, 8, 4)),
        action_S=(0, 1, 2, 0),
        names_A=("a", "b", "c"),
        tasks_N=tuple(Task(str(number), number, "train") for number in range(3)),
        counts_NA=((1, 1, 1),) * 3,
        taken_M=(0, 1, 2, 3, 0, 1, 2, 3),
        free=free,
    )


def one_by_one(model, exchanged: Exchange, temperature: float) -> np.ndarray:
    shape = len(exchanged.thoughts_M), len(exchanged.prompts_N), len(exchanged.spellings_S)
    expected = np.full(shape, np.nan)
    for row, column in product(*map(range, shape[:2])):
        if column not in exchanged.under(row):
            continue
        context = (*exchanged.prompts_N[column], *exchanged.thoughts_M[row])
        for spelling in exchanged.asked(row):
            logprobs = naive_logprobs(model, context, exchanged.spellings_S[spelling], temperature)
            expected[row, column, spelling] = logprobs.sum()
    return expected


@pytest.mark.parametrize("method", METHODS)
def test_every_action_behind_every_thought_and_prompt_is_that_of_reading_it_alone(method) -> None:
    for model in (llama(), qwen2()):
        scores = score_exchange(HFScorer(model, method=method), asked(), 0.8)
        expected = one_by_one(model, asked(), 0.8)
        assert scores == pytest.approx(expected, abs=1e-4, nan_ok=True)
        batched, naive = grounding(asked(), scores), grounding(asked(), expected)
        for one, other in zip(batched, naive, strict=True):
            assert (one.name, one.n, one.why) == (other.name, other.n, other.why)
            assert one.value == (None if other.value is None else pytest.approx(other.value, abs=1e-4))
        told = {metric.name for metric in batched if metric.value is not None}
        assert {f"grounding/{name}" for name in (*GROUNDING_NAMES[:3], "agreed_by_thought", "foreign_lost")} <= told


def test_in_blocks_the_pairs_that_were_asked_are_those_of_reading_them_alone() -> None:
    model, blocks = llama(), replace(asked(), foreign=0)
    scores = score_exchange(HFScorer(model), blocks, 0.8)
    assert scores == pytest.approx(one_by_one(model, blocks, 0.8), abs=1e-4, nan_ok=True)
    assert np.isfinite(scores).all(axis=2).sum(axis=1).tolist() == [1] * 8


def test_of_free_text_the_answers_of_the_own_prompt_are_read() -> None:
    model, exchanged = llama(), asked(free="free text")
    scores = score_exchange(HFScorer(model), exchanged, 1.0)
    assert scores == pytest.approx(one_by_one(model, exchanged, 1.0), abs=1e-4, nan_ok=True)
    assert np.isfinite(scores).sum(axis=(1, 2)).tolist() == [4, 4, 4, 2, 2, 2, 2, 4]  # under its own prompt alone


def sampled(prompts: int = 4, each: int = 3) -> list[Group]:
    """Replies `thought 1 2 action 3`: the thought ends with 1, the answer runs from 2 to 3."""
    rng, groups = random.Random(5), []
    for number in range(prompts):
        task, prompt = Task(f"lake-{number:016x}", number, "train"), Prompt("", tuple(some_ids(rng, 6)))
        turns = []
        for _ in range(each):
            action = rng.choice((10, 11))
            ids = (*some_ids(rng, 4), 1, 2, action, 3, 0)
            reply = Reply(prompt, ids, "", (0.0,) * 9, (), Span(0, 5), Span(5, 8), True, False)
            turns.append(Turn(reply, {}, (str(action),), True, "", ""))
        members = (Trajectory(task, m, (turn,), Ending.FAILED, 0.0) for m, turn in enumerate(turns))
        groups.append(Group(task, tuple(members)))
    return groups


def test_groups_in_metrics_out() -> None:
    class Counting(HFScorer):
        reads = 0

        def cross_score(self, *asked, **knobs):
            Counting.reads += 1
            return super().cross_score(*asked, **knobs)

    model = llama()
    found = exchanged_thoughts(Counting(model), sampled(), 1.0)[0]
    assert Counting.reads == 1
    assert {metric.name for metric in found if metric.value is None} == {f"grounding/right{part}" for part in PARTS}
    own, judge = exchanged_thoughts(HFScorer(model, name="other"), sampled(), 1.0, 8, 2, "/lake")[0][:2]
    assert own.name == "grounding@other/lake/reasoning_to_action"
    assert own.n == 6
    low = exchanged_thoughts(HFScorer(model), sampled(), 1.0, right=lambda task: {"10": 1.0})[0]
    assert [metric.value is not None for metric in low] == [True] * len(GROUNDING_NAMES)
    assert judge.value == pytest.approx(np.log(3))


def test_what_does_not_fit_the_window_leaves_the_reason() -> None:
    model = llama(max_position_embeddings=11)
    with pytest.raises(WindowExceeded):
        score_exchange(HFScorer(model), asked(), 1.0)
    found = exchanged_thoughts(HFScorer(model), sampled(), 1.0)[0]
    assert {metric.value for metric in found} == {None}
    assert "positions" in found[0].why
