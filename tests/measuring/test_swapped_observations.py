import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.thoughts import SwappedObservations
from heedful.measuring import swapped as module
from heedful.measuring.swapped import score_swapped
from heedful.scorers.hf import HFScorer
from heedful.types import CrossScores
from tiny_models import narrow

VOCABULARY = 17


def tiny() -> LlamaForCausalLM:
    return narrow(VOCABULARY, num_key_value_heads=1, max_position_embeddings=128, initializer_range=0.4)


def made_up(rows: int = 6, columns: int = 3) -> SwappedObservations:
    rng = random.Random(2)

    def ids(most: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, most)))

    histories = [ids(8) for _ in range(rows - 2)]
    return SwappedObservations(
        histories_M=(*histories, histories[0], histories[0]),
        observations_N=tuple({ids(5): None for _ in range(20)})[:columns],
        leads_M=tuple((3,) if row % 2 else () for row in range(rows)),
        thoughts_M=tuple(ids(7) for _ in range(rows)),
        own_M=tuple(row % columns for row in range(rows)),
        tasks_M=tuple(f"task-{row % 4}" for row in range(rows)),
        closed_M=(True,) * rows,
    )


def test_the_scores_name_the_task_of_each_thought() -> None:
    swapped = made_up()
    assert score_swapped(HFScorer(tiny()), swapped, temperature=1.0).tasks_M == swapped.tasks_M


def check_alone(scores: CrossScores, swapped: SwappedObservations, model: LlamaForCausalLM) -> None:
    """Each score, sum and token, is that of its context and thought alone."""
    for row, thought in enumerate(swapped.thoughts_M):
        for column in range(3):
            context = swapped.context(row, column)
            with torch.no_grad():
                logits = model(torch.tensor([(*context, *thought)])).logits[0] / 0.7
            logprobs = torch.log_softmax(logits, -1)[len(context) - 1 : -1].gather(1, torch.tensor(thought)[:, None])
            assert scores.scores_MN[row][column] == pytest.approx(float(logprobs.sum()), abs=1e-5)
            assert scores.heads[2][row][column] == pytest.approx(float(logprobs[:2].sum()), abs=1e-5)
            assert scores.tokens is not None
            assert np.asarray(scores.tokens[row])[column] == pytest.approx(logprobs[:, 0].numpy(), abs=1e-5)


def test_each_thought_is_scored_behind_its_own_history_and_each_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HEADS", (2,))
    swapped, model = made_up(), tiny()
    scores = score_swapped(HFScorer(model), swapped, temperature=0.7)
    check_alone(scores, swapped, model)
    assert scores.lengths_M == [len(thought) for thought in swapped.thoughts_M]
    assert list(scores.own_M) == [0, 1, 2, 0, 1, 2]


def test_without_history_each_thought_is_scored_under_every_whole_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADS", (2,))
    swapped, model = replace(made_up(), histories_M=((),) * 4 + ((5, 6),) * 2), tiny()
    scores = score_swapped(HFScorer(model), swapped, temperature=0.7)
    check_alone(scores, swapped, model)


class CopyCat:
    """Answers with certainty .9 per token whatever thought begins with the token that its context ends with."""

    name = ""

    def cross_score(self, prompts_N, thoughts_M, own_M, temperature, keep="sums"):
        tokens = []
        for thought in thoughts_M:  # under one prompt: the observation and the thought are two tokens each
            fits = thought[1] == thought[2]
            tokens.append(np.full((1, len(thought)), np.log(0.9 if fits else 0.1), dtype=np.float32))
        return CrossScores([[float(kept.sum())] for kept in tokens], [4] * len(tokens), own_M, tokens=tokens)


def test_a_model_that_heeds_the_last_observation_alone_is_told_by_it() -> None:
    rows = [(history, own) for history in range(4) for own in range(5)]
    swapped = SwappedObservations(
        histories_M=tuple((50 + history,) for history, _ in rows),
        observations_N=tuple((9, own) for own in range(5)),
        leads_M=((),) * 20,
        thoughts_M=tuple((own, 9) for _, own in rows),
        own_M=tuple(own for _, own in rows),
        tasks_M=tuple(f"task-{history}" for history, _ in rows),
        closed_M=(True,) * 20,
    )
    scores = score_swapped(CopyCat(), swapped, 1.0)
    readings = {m.name: m.value for m in information(scores, "observation", np.random.default_rng(0)).metrics}
    expected = np.log(0.81 / ((0.81 + 4 * 0.01) / 5))
    assert readings["information/observation/mi"] == pytest.approx(expected, rel=1e-6)
    assert readings["information/observation/gap_per_token"] == pytest.approx(np.log(9), rel=1e-6)
    assert readings["retrieval/observation/accuracy"] == 1.0
