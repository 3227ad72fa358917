import numpy as np
import pytest
import torch

from heedful.scorers.judge import Judge, judge_name
from tiny_models import narrow


class Letters:
    """A tokenizer: one id per letter, and a token that begins every text."""

    def __call__(self, text, *, add_special_tokens):
        class Encoded:
            input_ids = [27] * add_special_tokens + [ord(letter) - 96 for letter in text if letter.isalpha()]

        return Encoded


@pytest.fixture(scope="module")
def model():
    return narrow(28, seed=1, initializer_range=0.4)


def alone(model, prompt, thought):
    ids = [27, *(ord(letter) - 96 for letter in prompt + thought)]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    start = 1 + len(prompt)
    return sum(float(logprobs[at - 1, ids[at]]) for at in range(start, len(ids)))


def test_it_scores_texts_with_its_own_tokens_at_temperature_one(model) -> None:
    scores, readable = Judge(model, Letters(), "letters").score(["ab", "c"], ["de", "f", "de"], [0, 1, 1])
    assert readable == [True, True, True]
    expected = [[alone(model, prompt, thought) for prompt in ("ab", "c")] for thought in ("de", "f", "de")]
    assert np.asarray(scores.scores_MN) == pytest.approx(np.array(expected), abs=1e-9)
    assert (list(scores.own_M), list(scores.lengths_M)) == ([0, 1, 1], [2, 1, 2])


def test_what_reads_alike_is_one_prompt_and_what_has_no_text_no_row(model) -> None:
    judge = Judge(model, Letters(), "letters")
    scores, readable = judge.score(["ab", "a b", "c", "d"], ["x", "y", "!", "z"], [0, 1, 2, 3])
    assert readable == [True, True, False, True]
    assert list(scores.own_M) == [0, 0, 1]
    assert np.asarray(scores.scores_MN).shape == (3, 2)
    nothing, unreadable = judge.score(["ab"], ["!"], [0])
    assert (nothing.scores_MN, unreadable) == ([], [False])


def test_its_name_has_no_mark_that_metric_names_use() -> None:
    assert judge_name("Qwen/Qwen2.5-0.5B-Instruct") == "Qwen2.5-0.5B-Instruct"
    assert judge_name("models/one@two/") == "one-two"
