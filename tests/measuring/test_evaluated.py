"""Held-out first turns are read within the tokens that are allowed, first actions before whole answers."""

import math

import pytest
from test_grounded import sampled

from heedful.diagnostics.actions.rightness import PARTS, WORTH_NAMES
from heedful.measuring.evaluated import evaluated_metrics, evaluated_tokens
from heedful.scorers.hf import HFScorer
from scored_pairs import llama

NAMES = [*(f"eval/val/greedy/right{part}" for part in PARTS), *(f"eval/val/greedy/{name}" for name in WORTH_NAMES)]


class Counting(HFScorer):
    read = 0

    def cross_score(self, prompts_N, thoughts_M, *asked, **knobs):
        self.read += self.reading(prompts_N, thoughts_M)
        return super().cross_score(prompts_N, thoughts_M, *asked, **knobs)


def right(task, before=()):
    return {"10": 1.0}


def worth(task, reply):
    return 0.5


def measured(allowed=math.inf, worth=worth, prompts=12):
    scorer = Counting(llama())
    found = evaluated_metrics("eval/val/greedy", sampled(prompts, 1), scorer, 1.0, right, worth, allowed)
    assert [each.name for each in found] == NAMES
    return {each.name.rpartition("/")[2]: each for each in found}, scorer.read


def test_first_actions_and_whole_answers_are_read() -> None:
    found, read = measured()
    assert found["right"].n == 12
    assert found["worth"].value is not None
    assert found["worth"].value == pytest.approx(sum(found[f"worth{part}"].value for part in PARTS[1:]), abs=1e-12)
    assert read > 0


def test_tasks_are_left_out_until_it_fits_and_whole_answers_first() -> None:
    _, most = measured()
    actions, of_actions = measured(worth=None)
    assert actions["worth"].why == "how good whole answers are is not known"
    without, read = measured(allowed=of_actions)
    assert without["right"].n == 12
    assert "not measured: the share of the evaluation allows" in without["worth"].why
    fewer, read = measured(allowed=of_actions - 1)
    assert fewer["right"].n == 8
    assert read <= of_actions - 1 < most
    none, read = measured(allowed=10)
    assert (none["right"].value, read) == (None, 0)
    assert none["right"].why == "not measured: the share of the evaluation allows 10 tokens"


def test_the_tokens_are_a_share_of_those_of_the_evaluation() -> None:
    groups = sampled(2, 3)  # prompts of 6 tokens, read once each; replies of 9
    assert evaluated_tokens(0.5, groups) == 0.5 * (2 * 6 + 6 * 9)
    assert evaluated_tokens(None, groups) == math.inf
