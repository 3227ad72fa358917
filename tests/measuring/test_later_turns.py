"""Exchanged later turns agree with a small model that reads one context at a time."""

import random
from dataclasses import replace

import numpy as np
import pytest

from heedful.diagnostics.actions.later import LATER_NAMES, LaterExchange, later_exchange
from heedful.measuring.swapped import later_metrics, requests_of_later, score_later
from heedful.measuring.thought_scores import tokens_read
from heedful.scorers.hf import HFScorer
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn
from scored_pairs import llama, naive_logprobs, some_ids


def played(count: int = 8, keeps: bool = True) -> list[Group]:
    """Two turns of `thought 1 2 action 3`."""
    rng, groups = random.Random(4), []
    for number in range(count):
        task, turns = Task(f"lake-{number:016x}", number, "train"), []
        for turn in range(2):
            action = rng.choice((10, 11))
            ids = (*some_ids(rng, 4), 1, 2, action, 3, 0)
            prompt = Prompt("", tuple(some_ids(rng, 5)), restarts=not keeps and turn > 0)
            reply = Reply(prompt, ids, "", (0.0,) * 9, (), Span(0, 5), Span(5, 8), True, False)
            turns.append(Turn(reply, {}, (str(action),), True, "", ""))
        groups.append(Group(task, (Trajectory(task, 0, tuple(turns), Ending.FAILED, 0.0),)))
    return groups


def one_by_one(model, asked: LaterExchange, temperature: float) -> np.ndarray:
    rows = []
    for history, seen, thought in asked.reads:
        context = (*asked.histories_M[history], *asked.observations_M[seen], *asked.thoughts_M[thought])
        rows.append([naive_logprobs(model, context, ids, temperature).sum() for ids in asked.spellings_S])
    return np.array(rows)


@pytest.mark.parametrize("keeps", [True, False])
def test_every_action_is_that_of_reading_history_observation_and_thought_alone(keeps) -> None:
    model, asked = llama(), later_exchange(played(keeps=keeps), random.Random(0))
    assert any(asked.histories_M) == keeps
    assert score_later(HFScorer(model), asked, 0.8) == pytest.approx(one_by_one(model, asked, 0.8), abs=1e-4)


def test_what_shares_a_history_is_asked_together_and_pictures_stay_in_prompts() -> None:
    asked = later_exchange(played(), random.Random(0))
    assert [len(each.prompts) for each in requests_of_later(asked)] == [1] * 8
    pictured = replace(asked, observations_M=((-1, 5), *asked.observations_M[1:]))
    for each in requests_of_later(pictured):
        assert min(map(min, each.thoughts)) >= 0


def test_later_turns_in_metrics_out() -> None:
    def right(task, before=()):
        assert len(before) == 1
        return {"10": 1.0}

    scorer, asked = HFScorer(llama()), later_exchange(played(), random.Random(0))
    found = later_metrics(scorer, asked, 1.0, "/lake", right)
    assert [each.name for each in found] == [f"grounding/lake/{name}" for name in LATER_NAMES]
    assert all(each.value is not None for each in found)
    assert found[3].low < found[3].value < found[3].high


def test_nothing_is_read_where_no_right_actions_are_known() -> None:
    class Unasked:
        name = ""

        def cross_score(self, *_asked, **_knobs):
            raise AssertionError

    asked = later_exchange(played(), random.Random(0))
    found = later_metrics(Unasked(), asked, 1.0, right=lambda task, before: None)
    assert {each.why for each in found} == {"no right actions are known"}


def test_what_does_not_fit_the_window_leaves_the_reason() -> None:
    asked = later_exchange(played(), random.Random(0))
    found = later_metrics(
        HFScorer(llama(max_position_embeddings=12)), asked, 1.0, right=lambda task, before: {"10": 1.0}
    )
    assert {each.value for each in found} == {None}
    assert "positions" in found[0].why


def test_the_tokens_of_the_reading_are_known_before_it_is_made() -> None:
    scorer, asked = HFScorer(llama()), later_exchange(played(), random.Random(0))
    assert sum(tokens_read(scorer, each.prompts, each.thoughts) for each in requests_of_later(asked)) > 0
