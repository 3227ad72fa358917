"""What a training step will cost before the first one, the time left after it, and what a run takes on a GPU.

Numbers of tokens hold if every reply takes all of its tokens and every episode all of its turns. Texts of later
observations are not counted, but their pictures are. A step of real replies is smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from heedful.console import duration
from heedful.diagnostics.actions.exchanged import FOREIGN
from heedful.envs.common.contract import turns_of
from heedful.measuring.budget import PASSES_OF_UPDATE, steps_paid_for
from heedful.measuring.ways import FASTEST, Ways
from heedful.policies.local import Local
from heedful.protocols import KnowsRight, UsesCritic
from heedful.rollout.player import Player, made
from heedful.run.config import TrainConfig
from heedful.scorers.dealt import DealtScorer

if TYPE_CHECKING:
    from heedful.protocols import Environment
    from heedful.run.parts import Parts

VALUES_PER_STATE = 17
"""Numbers that a layer keeps for the backward pass, for each number of its state: 34 bytes in half precision. Source:
Korthikanti et al. 2022, equation 1, without the attention scores, which fused attention does not keep."""
LOGIT_BLOCKS = 3
"""Logits, their log softmax and its gradient, in float32."""

Gpu = Literal["RTX4090", "L40S", "A100-80GB", "H100", "H200", "B200"]
GPUS: Mapping[Gpu, tuple[int, int]] = {
    "RTX4090": (24, 165),
    "L40S": (48, 362),
    "A100-80GB": (80, 312),
    "H100": (80, 989),
    "H200": (141, 989),
    "B200": (180, 2250),
}
"""Name -> GB of memory, and 10^12 operations a second in bfloat16 without sparsity. Source: NVIDIA's data sheets."""
PROMPT = 400
"""Tokens of a first prompt, where no tokenizer is read."""
READING, SAMPLING = 0.25, 0.03
"""Assumed shares of a GPU's operations that updates and scoring reach, and sampling, which waits for memory."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens of one step that forward passes read, by stage. A token of the update counts three."""

    collect: int
    update: int
    diagnose: int
    """The mean over the steps of a cycle of measurements."""

    @property
    def total(self) -> int:
        return self.collect + self.update + self.diagnose


def estimate(config: TrainConfig, parts: Parts, env: Environment) -> str:
    """The line before the first step of this process: its tokens, and its memory unless the model is sharded."""
    cursor = parts.tasks.cursor
    player = Player(made(env.episode), parts.tasks.next(1)[0], 0, turns_of(env), config.context)
    parts.tasks.cursor = cursor
    ids = parts.renderer.context_ids(player.conversation) if player.ending is None else ()
    costs, ways, reply = [], FASTEST, config.sampling.tokens_per_turn
    if parts.learner.sharded is None:
        scorer = cast(Any, parts.diagnostician.scorer) if config.diagnostics.enabled else None
        scorer = scorer.scorer if isinstance(scorer, DealtScorer) else scorer
        ways = Ways.of(parts.model, scorer, samples=isinstance(config.policy, Local))
    if ids:
        tokens = tokens_of_step(config, len(ids), sum(id < 0 for id in ids), ways)
        stages = f"collect {tokens.collect:,}, update {tokens.update:,}, diagnose {tokens.diagnose:,}"
        costs.append(f"{tokens.total:,} tokens ({stages})")
    if parts.learner.sharded is None:
        memory = memory_of_step(parts.model, config, len(ids))
        size = f"{memory / 1e9:.1f} GB" if memory >= 1e9 else f"{max(1, round(memory / 1e6))} MB"
        costs.append(f"{size} of memory at the peak")
    if not costs:
        return f"Before step {parts.version + 1}: what a step costs is not known."
    slower = ways.slower(config.groups, config.group_size, len(ids), reply) if ids else []
    whole = f"Before step {parts.version + 1}, an estimate of a step with replies of full length: {'; '.join(costs)}."
    return " ".join([whole, *slower])


def tokens_of_step(config: TrainConfig, prompt: int, shown: int = 0, ways: Ways = FASTEST) -> StepTokens:
    """The tokens of one step. `prompt`: the tokens of a first prompt. `shown`: those of its pictures among them."""
    asked, reply, turns = config.diagnostics, config.sampling.tokens_per_turn, turns_of(config.env)
    episodes = config.groups * config.group_size
    sampled, later = episodes * turns * reply, episodes * (turns - 1) * shown
    collect = ways.sampled(config.groups, config.group_size, prompt, reply, turns, shown)
    update = PASSES_OF_UPDATE * (episodes * prompt + later + sampled) * config.algorithm.epochs
    if not asked.enabled:
        return StepTokens(collect, update, 0)

    def matrix(columns: int, rows: int) -> int:
        return ways.scored(columns, rows, prompt, reply)

    full = matrix(config.groups, episodes) + matrix(asked.any_turn, asked.any_turn)
    full += matrix(asked.swapped_columns, asked.swapped_rows) if turns > 1 and asked.swapped_rows else 0
    exchanged = asked.grounding_rows * (FOREIGN + 1) // asked.grounding_columns  # thoughts under each prompt
    full += matrix(asked.grounding_columns, exchanged) if exchanged else 0
    if turns > 1 and isinstance(config.env, KnowsRight):
        full += matrix(min(asked.later_rows, config.groups), 3 * FOREIGN + 1)
    prompts = min(asked.prompts, config.groups)
    cheap = matrix(prompts, prompts * min(asked.thoughts, config.group_size))
    needed = cheap / asked.every
    if asked.full_every:
        needed = (full + (asked.full_every - 1) // asked.every * cheap) / asked.full_every
    most = needed if asked.share is None else asked.share * (collect + update)
    return StepTokens(collect, update, round(min(needed, most)))


def of_whole_run(config: TrainConfig, model: Any, gpu: Gpu) -> str:
    """Memory, tokens and hours on one GPU, by formula. `model`: its weights may be on torch's device `meta`.

    Left out: operations of attention, observations after the first one, the time of the environment. Freezes the
    weights of `model` that the run would not train.
    """
    parts = (model.get_decoder(), model.get_output_embeddings()) if config.lora.rank == 0 else ()
    learned = {id(weight) for part in parts for weight in part.parameters()}
    weights = list(model.parameters())
    for weight in weights:  # a vision tower is frozen by default, and LoRA's additions are small
        weight.requires_grad_(id(weight) in learned or config.vision.tower == "trained")
    memory, states = memory_of_step(model, config, PROMPT) / 1e9, sum(_states(model, config)) / 1e9
    step, evaluation, times = tokens_of_step(config, PROMPT), config.evaluation, config.evaluation.at(config.steps)
    reply = turns_of(config.env) * config.sampling.tokens_per_turn
    episodes = len(times) * evaluation.tasks * (evaluation.samples + 1)
    sampled = config.steps * step.collect + episodes * (PROMPT + reply)
    passes = PASSES_OF_UPDATE + config.gradient_checkpointing
    passes += _has_critic(config) * (passes + 1)  # its values are read before the update
    read = config.steps * (step.update // PASSES_OF_UPDATE * passes + step.diagnose)
    room, speed = GPUS[gpu]
    an_hour = speed * 1e12 * 3600 / 2 / sum(weight.numel() for weight in weights)  # tokens, at full speed
    sampling, reading = sampled / an_hour / SAMPLING, read / an_hour / READING
    fits = "" if memory <= room else ", which does not fit"
    return (
        f"{config.model} in {config.env.name} on one {gpu} of {room} GB and {speed} TFLOP/s. An estimate by formula, "
        "with replies of full length, and not a measurement:\n"
        f"  memory  {memory:.0f} GB at the peak{fits}. {states:.0f} GB of it are weights, gradients and moments, which "
        "several GPUs can share.\n"
        f"  tokens  {config.groups * config.group_size * reply:,} sampled a step, and all of them trained without a "
        f"filter. {sampled / 1e6:,.0f} million read or sampled in {config.steps} steps and {len(times)} evaluations.\n"
        f"  hours   {sampling + reading:.1f}: {sampling:.1f} of sampling, {reading:.1f} of updates and measurements, "
        f"at {SAMPLING:.0%} and {READING:.0%} of these TFLOP/s."
    )


def memory_of_step(model: Any, config: TrainConfig, prompt: int) -> int:
    """Bytes at the peak of a step in one process: what stays, and the larger one of update and KV cache.

    Weights, the reference, the critic, AdamW's two moments and, for weights in half precision, their float32 copies
    stay. The update adds gradients, the logits of one micro-batch and its activations. Collecting adds the KV cache of
    all conversations.
    """
    from heedful.models.forward.token_scores import BLOCK_BYTES, WIDE

    stays, gradients = _states(model, config)
    shape = model.config.get_text_config(decoder=True)
    each = max(weight.element_size() for weight in model.parameters())
    head = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    key_values = (getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads) * head
    layers, tokens = shape.num_hidden_layers, config.micro_batch_tokens
    kept = layers + VALUES_PER_STATE if config.gradient_checkpointing else VALUES_PER_STATE * layers
    activations = tokens * shape.hidden_size * each * kept
    logits = tokens * shape.vocab_size * 4
    if shape.vocab_size >= WIDE:
        logits = min(logits, BLOCK_BYTES)
    context = prompt + turns_of(config.env) * config.sampling.tokens_per_turn
    cached = config.groups * config.group_size * context * layers * 2 * key_values * each
    return stays + max(gradients + activations + LOGIT_BLOCKS * logits, cached)


def _states(model: Any, config: TrainConfig) -> tuple[int, int]:
    """Bytes of weights and moments, which stay, and of gradients. A critic of kind model is a copy of the decoder."""
    weights = list(model.parameters())
    each = max(weight.element_size() for weight in weights)
    held = sum(weight.numel() for weight in weights)
    trained = sum(weight.numel() for weight in weights if weight.requires_grad)
    if (config.algorithm.kl > 0 or config.gradients.every > 0) and config.lora.rank == 0:
        held *= 2  # the reference
    if _has_critic(config):
        copied = sum(weight.numel() for weight in model.get_decoder().parameters())
        held, trained = held + copied, trained + copied
    wide = max(4, each)
    return held * each + trained * wide * (3 if each < 4 else 2), trained * wide


def _has_critic(config: TrainConfig) -> bool:
    return isinstance(config.algorithm.advantage, UsesCritic) and config.critic.kind == "model"


def time_left(config: TrainConfig, step: int, seconds: Mapping[str, float]) -> float:
    """Seconds from the end of this step to the end of the run, from the stages of this step.

    Collecting, updating and storing recur at every step. An evaluation recurs where one is due, and gradients at every
    step in which they are due. Measurements cost in the mean what this one may read, for each step that pays for it.
    """
    asked, following, left = config.diagnostics, config.steps - step - 1, 0.0
    for stage, spent in seconds.items():
        times = float(following)
        if stage == "evaluate":
            times = sum(version > step for version in config.evaluation.at(config.steps))
        elif stage == "gradients":
            every = config.gradients.every
            times = (config.steps - 1) // every - step // every
        elif stage == "diagnose" and asked.enabled:
            times /= steps_paid_for(step, asked.every, asked.full_every, full=asked.full_is_due(step))
        left += spent * times
    return left


def sentence_after(config: TrainConfig, step: int, seconds: Mapping[str, float]) -> str:
    """The line after the first step. `step`: its number, from 0."""
    stages = ", ".join(f"{name} {duration(spent, 1)}" for name, spent in seconds.items() if spent >= 0.5)
    took = f"Step {step + 1} took {duration(sum(seconds.values()), 1)}" + (f" ({stages})" if stages else "")
    left = duration(time_left(config, step, seconds), 1)
    return f"{took}. About {left} left for {config.steps - step - 1} steps."
