"""Thoughts that are ended early are read as a small model reads each of them alone."""

import math

import numpy as np
import pytest
from test_grounded import sampled

from heedful.measuring.early import early_answers
from heedful.scorers.hf import HFScorer
from heedful.storage import read_early, write_early
from scored_pairs import llama, naive_logprobs

WORTH = {"10": 1.0, "11": 0.25}


def piece(token: int) -> str:
    return "</think>" if token == 1 else f"w{token} "


def measured(model, allowed=math.inf, right=lambda task, before=(): WORTH):
    return early_answers(HFScorer(model), sampled(6, 2), 0.8, right, piece, "</think>", allowed)


def test_each_cut_is_that_of_reading_the_shortened_thought_alone() -> None:
    """Thoughts of four tokens and an end: cuts behind 0 to 4 tokens, and the end stays."""
    model = llama()
    found = measured(model)
    assert [answer.task for answer in found] == [f"lake-{number:016x}" for number in range(4)]
    for answer, group in zip(found, sampled(6, 2), strict=False):
        reply = group.trajectories[0].turns[0].reply
        assert answer.cuts_C == (0, 1, 2, 3, 4)
        assert answer.pieces_T == tuple(map(piece, reply.ids[:4]))
        for cut, right, likeliest in zip(answer.cuts_C, answer.right_C, answer.likeliest_C, strict=True):
            context = (*reply.prompt.ids, *reply.ids[:cut], 1)
            chances = {name: np.exp(naive_logprobs(model, context, (2, int(name)), 0.8).sum()) for name in ("10", "11")}
            assert right == pytest.approx(sum(WORTH[name] * chance for name, chance in chances.items()), abs=1e-5)
            assert likeliest == max(chances, key=chances.__getitem__)


def test_nothing_is_read_beyond_what_is_allowed_or_where_nothing_is_right() -> None:
    whole = measured(llama())
    assert len(measured(llama(), allowed=60)) < len(whole)
    assert measured(llama(), allowed=0) == ()
    assert measured(llama(), right=lambda task, before=(): None) == ()
    unclosed = early_answers(HFScorer(llama()), sampled(6, 2), 0.8, lambda task: WORTH, piece, "</other>")
    assert unclosed == ()


def test_early_answers_are_read_as_they_were_written(tmp_path) -> None:
    found = measured(llama())
    write_early(tmp_path / "early.json", found)
    assert read_early(tmp_path / "early.json") == found
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(ValueError, match="Expected early answers of heedful in"):
        read_early(tmp_path / "other.json")
