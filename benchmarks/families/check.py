"""The ways that scorer, sampler and learner take for a model, and their differences from plain forward passes.

A plain forward pass reads one whole sequence, without a KV cache, padding or a mask.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.families.models import FAMILIES, LONGER, WINDOW, built
from heedful.algorithms.table import Algorithm
from heedful.models.forward.token_logits import keeps_prompts, token_logits
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.scorers.hf import HFScorer
from heedful.training.batch import UpdateSettings
from heedful.training.learner import Learner
from heedful.training.settings import OptimizerConfig
from heedful.types import Conversation, Message, Prompt, Reply, Span, TrainingSample

Ids = tuple[int, ...]

PARTS = ("scorer", "sampler", "learner")
ALLOWED = 1e-4
"""The largest difference of an exact way: nats of one token, or the relative difference of a gradient."""
PROMPTS = (5, 40, 40, 150)
"""Lengths of the scorer's prompts. Every window ends within the last prompt, and within a thought behind another."""
THOUGHTS = (70, 33, 12, 5, 2, 1)
BEGINNING = 22
"""Tokens with which all contexts of the sampler begin."""
CONTEXTS = (24, 40, 40, 150, 31, 72)
"""Lengths of the sampler's first contexts. The second and the third are equal."""
NEW = (1, 17, 3, 9, 2, 30)
"""Tokens that each later turn adds to these contexts, before the reply."""
TURNS = ((0, 1, 2, 3, 4, 5), (0, 2, 5), (0, 1, 3, 4, 5))
"""The rows that each turn answers."""
TOKENS = 12
"""The most tokens of a reply."""
STOPS = frozenset(range(8))
SAMPLES = ((40, 3), (150, 2), (5, 1))
"""Lengths of the learner's prompts, and the number of samples that begin with each."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one part."""

    way: str
    """The name of the way, or `refused`."""
    why: str
    """Why it is no faster way, or why the model is refused."""
    error: float | None
    """The largest difference of the log-probability of a token, in nats. `None` if the model is refused."""
    seconds: float
    """Of the processor: the probes, the part itself and the plain forward passes."""
    gradient: float | None = None
    """Of the learner: the length of the difference of the two gradients, over the length of one."""

    @property
    def exact(self) -> bool:
        return self.error is not None and self.error <= ALLOWED and (self.gradient or 0.0) <= ALLOWED


def names() -> list[str]:
    """All rows of the table, as `family` or `family:window`."""
    return [name for kind, family in FAMILIES.items() for name in (kind, *([f"{kind}:{LONGER}"] * family.longer))]


def model_of(name: str) -> PreTrainedModel:
    """The model of a row of the table."""
    kind, _, window = name.partition(":")
    return built(kind, int(window or WINDOW))


def check(name: str, parts: Collection[str] = PARTS) -> dict[str, Found]:
    """What was found of these parts for the model of this name."""
    tried = {"scorer": scorer, "sampler": sampler, "learner": learner}
    return {part: _asked(tried[part], model_of(name)) for part in PARTS if part in parts}


def _asked(part: Callable[[PreTrainedModel], tuple[Any, ...]], model: PreTrainedModel) -> Found:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow ways, which the table names
        try:
            way, why, *errors = part(model)
        except Exception as error:  # the table shows what a model raises
            way, why, errors = "refused", f"{type(error).__name__}: {error}".splitlines()[0][:300], [None]
    first, *gradient = [None if error is None else float(f"{error:.1e}") for error in errors]
    return Found(way, why, first, round(time.process_time() - start, 1), *gradient)


def scorer(model: PreTrainedModel) -> tuple[str, str, float]:
    """The fastest exact method of `HFScorer`, and its largest error for ragged thoughts under ragged prompts."""
    rng = random.Random(0)
    prompts, thoughts = [some(rng, n) for n in PROMPTS], [some(rng, n) for n in THOUGHTS]
    fastest = HFScorer(model)
    why = fastest.cross_score(prompts[:1], thoughts[-1:], [0], 1.0).method.partition("; ")[2]
    # For few pairs `auto` may replace the method by a slower one that costs less.
    chosen = HFScorer(model, method=fastest.method)
    found = chosen.cross_score(prompts, thoughts, [0] * len(thoughts), 1.0, keep="tokens")
    error = 0.0
    for rows_NT, thought in zip(found.tokens or (), thoughts, strict=True):
        for row_T, prompt in zip(rows_NT, prompts, strict=True):
            error = max(error, largest(row_T, plain(model, prompt + thought)[-len(thought) :]))
    return fastest.method, why, error


class _Plain:
    """A renderer of conversations that are ids already."""

    stop_ids = STOPS

    def __init__(self) -> None:
        self.contexts: dict[str, Ids] = {}
        self.read: dict[str, int] = {}

    def next_prompt(self, conversation: Conversation) -> Prompt:
        return Prompt("", self.contexts[conversation.key][self.read.get(conversation.key, 0) :])

    def context_ids(self, conversation: Conversation) -> Ids:
        return self.contexts[conversation.key]

    def parse(
        self, prompt: Prompt, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()
    ) -> Reply:
        empty = Span(0, 0)
        return Reply(prompt, tuple(ids), "", tuple(logprobs), tuple(entropies), empty, empty, closed=False, cut=True)


def sampler(model: PreTrainedModel) -> tuple[str, str, float]:
    """The way of `HFPolicy`, and its largest error over three turns that leave rows out."""
    rng = random.Random(1)
    beginning = some(rng, BEGINNING)
    contexts = [beginning + some(rng, length - BEGINNING) for length in CONTEXTS]
    contexts[2] = contexts[1]
    renderer = _Plain()
    policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=TOKENS), seed=0)
    policy.keep([str(row) for row in range(len(contexts))])
    error = 0.0
    for turn, rows in enumerate(TURNS):
        renderer.contexts = {str(row): contexts[row] for row in rows}
        asked = [Conversation(str(row), (Message("user", ""),), turn=turn) for row in rows]
        for row, reply in zip(rows, policy.respond(asked), strict=True):
            contexts[row] += reply.ids
            error = max(error, largest(reply.logprobs, plain(model, contexts[row])[-len(reply.ids) :]))
            renderer.read[str(row)] = len(contexts[row])
            contexts[row] += some(rng, NEW[row])
    return policy.way, policy.obstacle, error


def learner(model: PreTrainedModel) -> tuple[str, str, float, float]:
    """The way of `Learner`, the largest error of its log-probabilities, and the error of the gradient of its loss."""
    samples = _samples(model)
    # With the log-probabilities of the sampler the ratio is 1: the gradient is that of -mean(advantage x logprob).
    counts = sum(sum(sample.trained) for sample in samples)
    learns = Learner(model, Algorithm(average="token"), OptimizerConfig())
    learns.accumulate_gradient(samples)
    found = _taken_gradient(model)
    for sample in samples:
        logprobs_T = _logprobs(model, sample.ids)
        trained_T, advantages_T = torch.tensor(sample.trained)[1:], torch.tensor(sample.advantages)[1:]
        (-(logprobs_T * advantages_T)[trained_T].sum() / counts).backward()
    alone = _taken_gradient(model)
    rows, error = token_logits(model), 0.0
    with torch.no_grad():
        for batch in UpdateSettings().cutter(model)(samples, [1.0] * len(samples)):
            logprobs_NV = rows(batch.ids_BT, batch.trained_BT, batch.prompts).log_softmax(-1)
            chosen_N = logprobs_NV.gather(1, batch.ids_BT[batch.trained_BT][:, None])[:, 0]
            error = max(error, largest(chosen_N.tolist(), batch.logprobs_BT[batch.trained_BT].tolist()))
    way = "shared prompts" if keeps_prompts(model) else "whole rows"
    return way, "", error, float((found - alone).norm() / alone.norm())


def _samples(model: PreTrainedModel) -> list[TrainingSample]:
    """Samples of two turns, with the log-probabilities of plain forward passes and some advantages."""
    rng = random.Random(2)
    samples = []
    for group, (length, members) in enumerate(SAMPLES):
        prompt = some(rng, length)
        for member in range(members):
            first, between, second = some(rng, 1 + 11 * member), some(rng, 3), some(rng, 20 - 6 * member)
            ids = prompt + first + between + second
            trained = [False] * length + [True] * len(first) + [False] * 3 + [True] * len(second)
            logprobs = [0.0, *plain(model, ids)]
            advantages = [rng.uniform(-1, 1) if is_trained else 0.0 for is_trained in trained]
            samples.append(
                TrainingSample(
                    ids,
                    tuple(trained),
                    tuple(p if is_trained else 0.0 for p, is_trained in zip(logprobs, trained, strict=True)),
                    tuple(advantages),
                    group,
                    member,
                    1.0,
                )
            )
    return samples


def _taken_gradient(model: PreTrainedModel) -> torch.Tensor:
    """The gradient of all parameters as one vector. The model is left without it."""
    taken = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return torch.cat(taken).double()


def some(rng: random.Random, length: int) -> Ids:
    """Random ids. None of them ends a reply."""
    return tuple(rng.randrange(len(STOPS), 160) for _ in range(length))


def plain(model: PreTrainedModel, ids: Ids) -> list[float]:
    """The log-probability of each id but the first."""
    with torch.no_grad():
        return _logprobs(model, ids).tolist()


def _logprobs(model: Any, ids: Ids) -> torch.Tensor:
    logits_TV = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return logits_TV.float().log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def largest(found_T: Sequence[float], expected_T: Sequence[float]) -> float:
    """The largest difference. Infinite if one is NaN."""
    difference_T = torch.tensor(list(found_T), dtype=torch.float64) - torch.tensor(
        list(expected_T), dtype=torch.float64
    )
    return float(difference_T.abs().nan_to_num(nan=torch.inf).max())
