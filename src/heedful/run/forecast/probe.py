"""The shape of a run's model, and how fast it is on this machine: a few short forward passes.

Promise: no gradient, no random number, no change of the model or of its modules' states.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from heedful.envs.common.contract import turns_of
from heedful.guarded import Raised, guarded_call
from heedful.models.forward.exactness import evaluating
from heedful.models.vision import vision_of
from heedful.policies import Local
from heedful.protocols import Environment
from heedful.rollout.player import Player, made
from heedful.run.config import TrainConfig
from heedful.run.forecast.estimate import (
    ModelShape,
    Pace,
    memory_of_step,
    seconds_of_step,
    sentence_before,
    tokens_of_step,
)
from heedful.run.parts import Parts
from heedful.types import Image

TINY = 10_000_000
"""Parameters of a model whose steps are too short to be worth a trial."""
HUGE_ON_CPU = 1_000_000_000
"""Parameters of a model of which even a few tokens take longer than the trial may on a CPU."""
CPU_TOKENS = 15_000_000_000
"""Tokens times parameters of the trial's forward pass on a CPU: about a second on one core."""
DEVICE_TOKENS = 2048
STEP_TOKENS = 20_000
"""A step of fewer tokens is no longer than some fifty trials: its time is left out."""
SAMPLED = 3
"""Tokens that are sampled for each conversation of the trial."""


def estimate(config: TrainConfig, parts: Parts, env: Environment) -> str:
    """The line before the first step: its tokens, its memory and, for models that are worth a trial, its time."""
    model, first = parts.model, first_prompt(config, parts, env)
    images = () if first is None else first.images
    prompt, tokens = 0, None
    if first is not None:
        prompt = len(first.ids)
        tokens = tokens_of_step(config, prompt, len(images), sum(id < 0 for id in first.ids))
    memory = None
    if parts.learner.sharded is None:
        reference = (config.algorithm.kl > 0 or config.gradients.every > 0) and parts.adapters is None
        critic = parts.learner.critic is not None and config.critic.kind == "model"
        memory = memory_of_step(shape_of(model), config, prompt, reference=reference, critic=critic)
    seconds = None
    if tokens is not None and tokens.total >= STEP_TOKENS and worth_a_trial(config, parts):
        together = config.groups * config.group_size
        seconds = seconds_of_step(tokens, pace_of(model, together, config.micro_batch_tokens, images[:1]))
    return sentence_before(config, tokens, memory, seconds, parts.version)


class FirstPrompt(NamedTuple):
    """The first prompt of an episode as the model reads it."""

    ids: Sequence[int]
    images: tuple[Image, ...]
    """The pictures of its observation."""


def first_prompt(config: TrainConfig, parts: Parts, env: Environment) -> FirstPrompt | None:
    """The first prompt of the next task. `None` where its episode cannot be started.

    The stream of tasks continues where it was.
    """
    cursor = parts.tasks.cursor

    def read() -> FirstPrompt | None:
        task = parts.tasks.next(1)[0]
        player = Player(made(env.episode), task, 0, turns_of(env), config.context)
        if player.ending is not None:
            return None
        seen = player.conversation
        return FirstPrompt(parts.renderer.context_ids(seen), seen.messages[-1].images)

    found = guarded_call(read)
    parts.tasks.cursor = cursor
    return None if isinstance(found, Raised) else found.value


def worth_a_trial(config: TrainConfig, parts: Parts) -> bool:
    """Whether a trial tells the time of a step: of one process that samples by itself, with a model of some size."""
    count = parts.model.num_parameters()
    on_cpu = parts.model.device.type == "cpu"
    alone = parts.learner.world.size == 1 and isinstance(config.policy, Local)
    return alone and count >= TINY and not (on_cpu and count > HUGE_ON_CPU)


def shape_of(model: PreTrainedModel) -> ModelShape:
    """The sizes of a model that decide its memory."""
    config: Any = model.config.get_text_config(decoder=True)
    heads = int(config.num_attention_heads)
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    weights = list(cast(torch.nn.Module, model).parameters())
    return ModelShape(
        parameters=sum(weight.numel() for weight in weights),
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        bytes_each=max((weight.element_size() for weight in weights), default=4),
        layers=int(config.num_hidden_layers),
        hidden=int(config.hidden_size),
        key_values=int(getattr(config, "num_key_value_heads", None) or heads) * int(head),
        vocabulary=int(config.vocab_size),
    )


def pace_of(model: PreTrainedModel, conversations: int, micro_batch_tokens: int, images: Sequence[Image] = ()) -> Pace:
    """Seconds of a token in one forward pass, of a token that conversations sample together, and of a picture.

    On a CPU sampling is tried with few conversations, and more take longer in proportion. Elsewhere all of them are
    tried.
    """
    on_cpu = model.device.type == "cpu"
    most = CPU_TOKENS // model.num_parameters() if on_cpu else DEVICE_TOKENS
    length = max(8, min(most, micro_batch_tokens))
    together = min(conversations, max(1, length // 8)) if on_cpu else conversations
    with evaluating(model), torch.no_grad():
        _timed(model, 1, 8)  # what the first pass sets up is no part of a step
        whole = _timed(model, 1, length)
        cache = DynamicCache()
        _timed(model, together, 4, cache)
        sampled = sum(_timed(model, together, 1, cache) for _ in range(SAMPLED))
        pictures = [_timed_picture(model, image) for image in images]
    return Pace(whole / length, sampled / SAMPLED / together, sum(pictures) / max(1, len(pictures)))


def _timed(model: PreTrainedModel, rows: int, width: int, cache: DynamicCache | None = None) -> float:
    """Seconds of one forward pass over tokens that mean nothing."""
    ids_BT = torch.arange(rows * width, device=model.device).reshape(rows, width) % 16
    _wait(model)
    start = time.perf_counter()
    cast(Any, model)(input_ids=ids_BT, past_key_values=cache, use_cache=cache is not None)
    _wait(model)
    return time.perf_counter() - start


def _timed_picture(model: PreTrainedModel, image: Image) -> float:
    """Seconds of the vision tower for one picture."""
    vision = vision_of(model)
    assert vision is not None, "a model that reads text alone was given a picture"
    vision.read(image)
    _wait(model)
    start = time.perf_counter()
    vision.read(image)
    _wait(model)
    return time.perf_counter() - start


def _wait(model: PreTrainedModel) -> None:
    """Wait until the device has done what it was given."""
    kind = model.device.type
    if kind == "cuda":
        torch.cuda.synchronize(model.device)
    elif kind == "mps":
        torch.mps.synchronize()
