"""The words of a thought against references, with a model of random weights."""

import math
from types import SimpleNamespace

import pytest
import torch

from heedful.cli.token_information import FULL_COLOUR, WeighedThought, _colour, _line, weigh_thoughts
from heedful.types import Ending, Prompt, Reply, Span, Task, Trajectory, Turn
from tiny_models import narrow

TEMPERATURE = 0.8


def turn(prompt, ids):
    reply = Reply(Prompt("", tuple(prompt)), tuple(ids), "", (0.0,) * len(ids), (), Span(0, 2), Span(0, 0), True, False)
    return Turn(reply, {}, (), True, "", "")


def episode(*turns):
    return Trajectory(Task("t", 0, "val"), 0, turns, Ending.FAILED, 0.0, temperature=TEMPERATURE)


@pytest.fixture(scope="module")
def loaded():
    model = narrow(20, seed=3, initializer_range=0.4)
    return SimpleNamespace(model=model, renderer=SimpleNamespace(piece=lambda token: f"<{token}>"))


def logprob(model, context, thought):
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([[*context, *thought]])).logits[0] / TEMPERATURE, -1)
    return sum(float(logprobs[len(context) - 1 + at, token]) for at, token in enumerate(thought))


def told(model, contexts, thought):
    under = [logprob(model, context, thought) for context in contexts]
    return under[0] - math.log(sum(map(math.exp, under)) / len(under))


def test_first_prompts_and_later_observations_are_exchanged_and_histories_kept(loaded) -> None:
    own = episode(turn([1, 2], [3, 4, 5]), turn([6], [7, 8, 9]))
    references = [
        episode(turn([10, 11, 12], [1, 1]), turn([13, 14], [1, 1])),
        episode(turn([15], [1, 1])),
        episode(turn([1, 2], [1, 1]), turn([6], [1, 1])),  # shows what the episode itself shows
    ]
    first, second = weigh_thoughts(own, references, loaded)
    assert (first.references, second.references) == (2, 1)
    assert first.texts_T == ("<3>", "<4>")
    assert sum(first.values_T) == pytest.approx(told(loaded.model, [(1, 2), (10, 11, 12), (15,)], (3, 4)), abs=1e-5)
    history = (1, 2, 3, 4, 5)
    contexts = [(*history, 6), (*history, 13, 14)]
    assert sum(second.values_T) == pytest.approx(told(loaded.model, contexts, (7, 8)), abs=1e-5)


def test_a_turn_that_no_reference_reaches_has_no_values(loaded) -> None:
    (only,) = weigh_thoughts(episode(turn([1], [2, 3])), [episode(turn([1], [4, 4]))], loaded)
    assert (only.references, only.values_T) == (0, ())
    assert "no reference shows another observation" in _line(only).plain


def test_strength_of_colour_is_the_value_and_its_tone_the_sign() -> None:
    assert _colour(0.05) == ""
    assert _colour(FULL_COLOUR) == _colour(9.0) != _colour(1.0) != _colour(-1.0)
    shown = _line(WeighedThought(0, 3, ("go", " up"), (1.5, -0.4)))
    assert (
        shown.plain
        == "turn 1: go up\n        +1.10 nats in all of at most 1.39 (3 references); most: 'go' +1.50, 'up' -0.40"
    )
    assert {str(span.style) for span in shown.spans} == {_colour(1.5), _colour(-0.4)}
