"""The common beginning of a call's contexts is read once, and changes nothing but the time."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.policies import hf  # noqa: E402
from heedful.policies import kv as beginning  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.kv import Beginning  # noqa: E402
from heedful.policies.next_logits import Way  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from sampled import Contexts  # noqa: E402
from tiny_models import llama  # noqa: E402

VOCABULARY = 40
RULES = tuple(random.Random(0).randrange(VOCABULARY) for _ in range(30))


def conversations(seed: int, *lengths: int) -> list[Any]:
    rng = random.Random(seed)
    own = [(number, *(rng.randrange(VOCABULARY) for _ in range(length - 1))) for number, length in enumerate(lengths)]
    return [
        SimpleNamespace(key=f"{seed}-{number}-{member}", turn=0, ids=RULES + ids)
        for number, ids in enumerate(own)
        for member in range(2)
    ]


def policy(read: list[int], **changes: Any) -> HFPolicy:
    model = llama(VOCABULARY)
    made = HFPolicy(model, Contexts(), Sampling(tokens_per_turn=5, **changes), seed=3)
    assert made.obstacle == ""
    model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    return made


def test_replies_are_those_without_sharing_and_the_beginning_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [conversations(1, 6, 9, 3), conversations(2, 4, 5)]
    found, tokens = [], []
    for worth in (16, 1000):
        monkeypatch.setattr(beginning, "WORTH", worth)
        read: list[int] = []
        sampler = policy(read)
        found.append([reply for call in calls for reply in sampler.respond(call)])
        tokens.append(read)
    for (ids, logprobs, entropies), (plain_ids, plain_logprobs, plain_entropies) in zip(*found, strict=True):
        assert ids == plain_ids
        assert logprobs == pytest.approx(plain_logprobs, abs=1e-5)  # Llama's norms are in float32
        assert entropies == pytest.approx(plain_entropies, abs=1e-5)
    assert tokens[0][:2] == [30, 3 * 9]
    assert 30 not in tokens[0][2:]
    assert 2 * 5 in tokens[0]  # the second call continues behind the same beginning
    assert tokens[1][0] == 3 * 39


def test_a_model_without_a_kv_cache_reads_whole_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    sampler = policy(read)
    monkeypatch.setattr(hf, "way_of", lambda model: (Way.UNCACHED, "its cache is wrong"))
    sampler.respond(conversations(1, 6, 9))
    assert set(read[:2]) == {36, 39}  # one plain pass per distinct context


def test_a_beginning_is_shared_where_a_third_of_the_tokens_is_saved() -> None:
    long, short = (*RULES, 5), (*RULES, 6, 7)
    assert Beginning().of([long, short]) == RULES
    assert Beginning().of([long]) == ()
    assert Beginning().of([RULES, short]) == RULES[:-1], "one id of each context is left over"
    assert Beginning().of([(*RULES, *[5] * 40), (*RULES, *[6] * 40)]) == (), "30 of 140 tokens are less than a third"
    assert Beginning().of([(*RULES[:15], 5), (*RULES[:15], 6)]) == ()


def test_a_known_beginning_serves_a_single_context_and_gives_way_to_another_one() -> None:
    known = Beginning()
    assert known.of([(*RULES, 5), (*RULES, 6, 7)]) == RULES
    assert known.of([(*RULES, 8)]) == RULES
    others = [(*RULES[::-1], 5), (*RULES[::-1], 6)]
    assert known.of(others) == RULES[::-1]
    assert known.batch is None
