"""The scopes of exchanged pictures with models that see: exact, and 0 where no feature of a picture arrives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from heedful.diagnostics.cross_scores.pictures import first_turn_pictures, later_pictures
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostician import Diagnostician, DiagnosticsConfig
from heedful.measuring.swapped import score_exchanged
from heedful.models.vision import vision_of
from heedful.scorers.hf import HFScorer
from heedful.seeds import stream
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict
from seeing_models import picture, seeing

FAMILIES = ("idefics3", "idefics3_tiles", "qwen2_5_vl")
TASKS = 5


def words(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(5, 260) for _ in range(length))


def rolled(model: Any, one_text: bool = False) -> list[Group]:
    """Episodes of two turns with a picture in each. Thoughts are words at random, so no model is asked."""
    vision, rng = vision_of(model), random.Random(0)
    assert vision is not None
    begin, end, one = words(rng, 3), words(rng, 2), words(rng, 4)
    groups = []
    for number in range(TASKS):
        text = one if one_text else words(rng, 4 + number % 2)
        task = Task(f"lake-{number:016x}", number, "train")
        episodes = []
        for member in range(2):
            turns = []
            for at in range(2):
                image = picture(number + TASKS * at * (1 + member))
                ids = (*(begin if at == 0 else end), *vision.show(image).ids, *text, *end)
                said, spans = words(rng, 6), (Span(0, 4), Span(4, 6))
                prompt = Prompt("", ids, images=(image,))
                turns.append(Turn(Reply(prompt, said, "", (0.0,) * 6, (), *spans, True, False), {}, (), True, "", ""))
            episodes.append(Trajectory(task, member, tuple(turns), Ending.FAILED, 0.0))
        groups.append(Group(task, tuple(episodes)))
    return groups


def measured(model: Any, groups: list[Group]) -> dict[str, Metric]:
    config = DiagnosticsConfig(share=None, words=0)
    one = Diagnostician(config, HFScorer(model), 0, ThoughtTags(), lambda token: "")
    found = one.measure(0, groups, [Verdict(1.0, "kept", 0.0)] * len(groups), "outcome")
    return {metric.name: metric for metric in found.metrics}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_score_is_that_of_its_context_and_thought_alone(family: str) -> None:
    model, _ = seeing(family)
    groups = rolled(model)
    chosen = first_turn_pictures(groups, None, None, 8, 4)
    later = later_pictures(groups, stream(0, "later"), 6, 4)
    for exchanged in (chosen.exchange_pictures(), chosen.exchange_texts(), *later):
        assert exchanged.columns >= 4
        scores = np.asarray(score_exchanged(HFScorer(model), exchanged, 0.8).scores_MN)
        for row in (0, len(exchanged.rows_M) - 1):
            thought = exchanged.rows_M[row].thought
            for column in range(exchanged.columns):
                ids = torch.tensor([[*exchanged.context(row, column), *thought]])
                with torch.no_grad():
                    logprobs = torch.log_softmax(model(input_ids=ids).logits[0] / 0.8, -1)[-len(thought) - 1 : -1]
                alone = float(logprobs.gather(1, torch.tensor(thought)[:, None]).sum())
                assert scores[row, column] == pytest.approx(alone, abs=1e-4)


def test_a_model_that_reads_pictures_is_moved_by_them() -> None:
    model, _ = seeing("idefics3")
    readings = measured(model, rolled(model))
    for scope in ("image", "image_newest", "image_all", "text"):
        assert abs(float(readings[f"information/{scope}/gap"].value or 0)) > 1e-3, scope
    assert float(readings["information/observation/gap"].value or 0) != 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_features_times_zero_read_exactly_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = seeing(family)
    vision, groups = vision_of(model), rolled(model)
    assert vision is not None
    see = vision._see

    def nothing(*asked: Any) -> list[list[torch.Tensor]]:
        return [[level * 0 for level in levels] for levels in see(*asked)]

    monkeypatch.setattr(vision, "_see", nothing)
    readings = measured(model, groups)
    for scope in ("image", "image_newest", "image_all"):
        for metric in ("mi", "gap"):
            assert readings[f"information/{scope}/{metric}"].value == pytest.approx(0.0, abs=1e-4)
        chance = readings[f"retrieval/{scope}/chance"].value
        assert readings[f"retrieval/{scope}/accuracy"].value == pytest.approx(chance)
        assert readings[f"retrieval/{scope}/p_value"].value == 1.0
    assert abs(float(readings["information/text/gap"].value or 0)) > 1e-3


def test_with_one_text_the_scope_image_is_first_turns() -> None:
    model, _ = seeing("idefics3")
    readings = measured(model, rolled(model, one_text=True))
    for metric in ("mi", "mi_loo", "gap", "gap_per_token", "entropy_conditional"):
        assert readings[f"information/image/{metric}"].value == readings[f"information/first_turn/{metric}"].value
