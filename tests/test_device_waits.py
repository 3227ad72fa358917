"""How often the host would wait for a GPU: once per sampled token, and a few times per micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.algorithms.table import ALGORITHMS  # noqa: E402
from heedful.models.forward.token_scores import WIDE  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.settings import OptimizerConfig  # noqa: E402
from heedful.types import TrainingSample  # noqa: E402
from tiny_models import narrow  # noqa: E402
from waits import Waits  # noqa: E402


class Endless:
    """A renderer whose replies never end by themselves."""

    stop_ids: frozenset[int] = frozenset()

    def context_ids(self, conversation: Any) -> tuple[int, ...]:
        ids: tuple[int, ...] = conversation.ids
        return ids

    def next_prompt(self, conversation: Any) -> Any:
        return None

    def parse(self, prompt: Any, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()) -> Any:
        return tuple(ids)


def waits_of_a_reply(tokens: int) -> Waits:
    policy = HFPolicy(narrow(WIDE), Endless(), Sampling(tokens_per_turn=tokens), seed=0)
    assert policy.obstacle == ""
    conversations: Any = [SimpleNamespace(key=str(row), turn=0, ids=tuple(range(20 + row))) for row in range(4)]
    with Waits() as waits:
        policy.respond(conversations)
    return waits


def test_the_sampler_waits_once_per_token() -> None:
    short, long = waits_of_a_reply(3), waits_of_a_reply(13)
    assert long.total - short.total == 10, long.counts
    assert short.total <= 3 + 4, short.counts  # and a few times to read the contexts


def samples(count: int) -> list[TrainingSample]:
    return [
        TrainingSample(
            ids=tuple((member + 5 * place) % WIDE for place in range(12)),
            trained=(False,) * 5 + (True,) * 7,
            logprobs=(0.0,) * 5 + (-9.0,) * 7,
            advantages=(0.0,) * 5 + ((-1.0) ** member,) * 7,
            group=0,
            member=member,
            weight=1.0,
        )
        for member in range(count)
    ]


def waits_of_an_update(micro_batches: int) -> Waits:
    algorithm = replace(ALGORITHMS["grpo"](), kl=0.1, entropy=0.01)
    settings = UpdateSettings(micro_batch_tokens=12)
    learner = Learner(narrow(WIDE), algorithm, OptimizerConfig(), settings, reference=narrow(WIDE, seed=1))
    with Waits() as waits:
        learner.accumulate_gradient(samples(micro_batches))
    return waits


def test_an_update_waits_once_per_micro_batch_for_its_readings_and_twice_in_each_forward_pass() -> None:
    few, many = waits_of_an_update(2), waits_of_an_update(7)
    assert many.counts["tolist"] - few.counts["tolist"] == 5
    # The policy and the reference read each micro-batch: positions of trained tokens, and a check of transformers.
    assert many.counts["by mask"] - few.counts["by mask"] <= 5 * 2, many.counts
    assert many.counts["__bool__"] - few.counts["__bool__"] <= 5 * 2, many.counts
    assert set(many.counts) <= {"tolist", "by mask", "__bool__"}


def test_reads_and_selections_by_a_mask_are_counted() -> None:
    values = torch.arange(4)
    with Waits() as waits:
        values.tolist()
        float(values[0])
        values[values > 1]
        values[torch.tensor([1, 2])]
    assert waits.counts == {"tolist": 1, "__float__": 1, "by mask": 1}
