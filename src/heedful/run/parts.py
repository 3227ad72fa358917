"""The parts of a run: model, renderer, tasks, learner, diagnostician - fresh, or from a checkpoint.

A run resumed from checkpoint v continues exactly as the run that wrote it did.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.boundary import to_json
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.text import load_text_judge
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import MOST_CURSOR, TaskStream
from heedful.measuring.diagnostician import Diagnostician
from heedful.models.chat.calls import tools_of
from heedful.models.chat.render import Renderer
from heedful.models.folders import WholeWeights
from heedful.models.forward.token_logits import TokenLogits, token_logits
from heedful.models.load import load_model, pick_device, stop_ids
from heedful.models.sight import VisionConfig
from heedful.models.vision import vision_of
from heedful.models.writing import Saveable
from heedful.protocols import Environment, UsesCritic
from heedful.run.checkpoint import Checkpoint
from heedful.run.config import TrainConfig
from heedful.run.prompts.selection import Selection
from heedful.run.prompts.task_memory import TaskMemory
from heedful.scorers.hf import HFScorer
from heedful.scorers.judge import Judge, judge_name
from heedful.seedlings.demonstrations import first_images
from heedful.seedlings.grow import load_seedling, seedling_path
from heedful.seedlings.warm_start import Beginner, warm_folder, warm_started
from heedful.seeds import derive
from heedful.storage import check_model
from heedful.training.batch import UpdateSettings
from heedful.training.critic import Critic
from heedful.training.gradients.meter import GradientMeter
from heedful.training.learner import Learner
from heedful.training.lora import Adapters
from heedful.training.ranks.sharding import Sharded
from heedful.training.ranks.world import World


@dataclass(slots=True)
class Parts:
    """A run's parts that change. `version` is the number of training steps of the weights."""

    env: Environment
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    tasks: TaskStream
    learner: Learner
    diagnostician: Diagnostician
    selection: Selection
    gradient_meter: GradientMeter | None = None
    """`None` where gradients are not measured."""
    adapters: Adapters | None = None
    """LoRA's additions to the model, where only they are trained."""
    version: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    """Sampled success at each evaluated version."""

    @property
    def best(self) -> int | None:
        """The version with the highest evaluated success, and the earliest among equals."""
        return max(self.scores, key=lambda version: (self.scores[version], -version), default=None)

    def saveable(self) -> Saveable | PreTrainedModel:
        """The writer of the model as an ordinary model directory. Every rank must call it."""
        if self.adapters is not None:
            return self.adapters
        sharded = self.learner.sharded
        return self.model if sharded is None else WholeWeights(self.model, sharded.weights())

    def state(self) -> dict[str, Any]:
        """The loop's own state, as a JSON tree."""
        return {
            "tasks": self.tasks.cursor,
            "memory": None if self.selection.memory is None else self.selection.memory.state(),
            "diagnostics": self.diagnostician.state(),
            "scores": {str(version): score for version, score in self.scores.items()},
        }


def _take_weights(model: Any, start: Checkpoint) -> None:
    """Raises ValueError where the settings ask for another model than that of the checkpoint."""
    weights, own = start.model(model.dtype).state_dict(), model.state_dict()
    other = [name for name in dict.fromkeys([*own, *weights]) if _shape(own.get(name)) != _shape(weights.get(name))]
    if other:
        raise ValueError(
            f"Expected settings of the model whose weights are in {start.path}, found those of another one, with other "
            f"shapes of {len(other)} weights such as {other[0]}. Leave out the changed settings, or begin a new run."
        )
    model.load_state_dict(weights)


def _shape(weights: Any) -> tuple[int, ...] | None:
    return None if weights is None else tuple(weights.shape)


def assemble(
    config: TrainConfig,
    progress: Callable[[int, int, float], None],
    start: Checkpoint | None,
    world: World | None = None,
) -> Parts:
    """Everything a run needs, from its configuration and a checkpoint to resume from. Called on each rank."""
    if config.sampling.greedy:
        raise ValueError(
            "sampling.greedy is for playing: in training the members of a group would differ by the environment's "
            "noise alone, if at all"
        )
    torch.set_num_threads(config.threads)
    world = world or World(device=pick_device(config.device))
    device, env = world.device, config.env
    with world.local_rank_0_first():
        model, tokenizer = load_policy(config, device, progress)
    world.broadcast_weights(cast(torch.nn.Module, model))
    _refuse_idle_vision(config, model)
    renderer = renderer_of(config, model, tokenizer)
    adapters = Adapters(model, config.lora, derive(config.seed, "lora")) if config.lora.rank > 0 else None
    # The reference is the policy before any update, also when the run resumes.
    reference = _reference(config, model, adapters)
    if start is not None and adapters is not None:
        adapters.load(start.path)
    elif start is not None:
        _take_weights(model, start)
    learner = _learner(config, model, reference, world)
    parts = Parts(
        env=env,
        model=model,
        tokenizer=tokenizer,
        renderer=renderer,
        tasks=TaskStream(env, "train", derive(config.seed, "tasks"), config.pool),
        learner=learner,
        diagnostician=load_diagnostician(config, model, renderer, world),
        selection=Selection(config.filter, config.coverage, None if config.pool is None else TaskMemory()),
        gradient_meter=load_gradient_meter(config, learner, reference),
        adapters=adapters,
    )
    if start is not None:
        _restore(parts, start)
    return parts


def _reference(
    config: TrainConfig, model: PreTrainedModel, adapters: Adapters | None
) -> PreTrainedModel | TokenLogits | None:
    """The model as it is now, where the loss or the anatomy of the gradient asks for it. LoRA needs no copy."""
    if config.algorithm.kl <= 0 and config.gradients.every <= 0:
        return None
    return adapters.without(token_logits(model)) if adapters else copy.deepcopy(model).requires_grad_(False)


def _learner(
    config: TrainConfig, model: PreTrainedModel, reference: PreTrainedModel | TokenLogits | None, world: World
) -> Learner:
    settings = UpdateSettings(
        temperature=config.sampling.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        device=world.device,
        seed=derive(config.seed, "learner"),
        world=world,
        sharded=load_sharded(model, world) if config.parallel.sharded and world.size > 1 else None,
        recompute=config.gradient_checkpointing,
    )
    return Learner(
        model,
        config.learning,
        config.optimizer,
        settings,
        reference=reference if config.algorithm.kl > 0 else None,
        critic=load_critic(config, model, settings),
    )


def is_stored(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model that is grown for this run is in the cache. The number of torch's threads decides, too."""
    if config.model == "seedling":
        return seedling_path(config.seedling, config.env, to_json(config.env), config.tags, config.context).exists()
    return warm_folder(config.warm_start, beginner_of(config, device)).exists()


def load_policy(
    config: TrainConfig, device: torch.device, progress: Callable[[int, int, float], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model to train: a seedling, or a loaded one after its warm start. What is not in the cache is learned now."""
    if config.model == "seedling":
        if tools_of(config.env):
            raise ValueError(
                f"Expected a loaded model, since the replies of {config.env.name} are tool calls, found a seedling, "
                "whose chat template has no tools. Name a model whose template has them (--model), or choose plain "
                "actions (--env.actions plain)."
            )
        model, tokenizer, _ = load_seedling(
            config.seedling, config.env, to_json(config.env), config.tags, progress, config.context
        )
        cast(torch.nn.Module, model).to(device)
        if (vision := vision_of(model)) is not None:
            vision.freeze(config.vision.tower == "frozen")
        return model, tokenizer
    model_name = config.model
    if config.warm_start.steps:
        model_name = str(warm_started(config.warm_start, beginner_of(config, device), progress))
    check_model(model_name)
    return load_model(model_name, device, config.dtype, config.vision)


def _refuse_idle_vision(config: TrainConfig, model: PreTrainedModel) -> None:
    """Raise ValueError for settings of vision that would change nothing."""
    asked, plain = config.vision, VisionConfig()
    if asked != plain and vision_of(model) is None:
        raise ValueError(
            f"--vision sets how a model sees, and {type(model).__name__} reads text alone. Leave its settings out, or "
            "give a model that sees."
        )
    if asked.tower == "trained" and config.lora.rank > 0:
        raise ValueError(
            "--vision.tower trained trains the weights that see, and LoRA (--lora.rank) trains its additions alone. "
            "Choose one of them."
        )
    if config.model == "seedling" and replace(asked, tower=plain.tower) != plain:
        raise ValueError(
            "vision.least_pixels and vision.most_pixels are for loaded models. A seedling reads its pictures as they "
            "are: set their size with --env.cell."
        )


def beginner_of(config: TrainConfig, device: torch.device) -> Beginner:
    """The loaded model of a configuration before its warm start."""
    return Beginner(
        config.model,
        config.env,
        to_json(config.env),
        config.tags,
        config.context,
        config.chat_options,
        device,
        config.vision,
    )


def renderer_of(config: TrainConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Renderer:
    """The renderer of a run's conversations."""
    ends, tools = stop_ids(model), tools_of(config.env)
    return Renderer(tokenizer, config.tags, config.chat_options, ends, tools, vision_of(model))


def load_diagnostician(config: TrainConfig, model: PreTrainedModel, renderer: Renderer, world: World) -> Diagnostician:
    """The diagnostician, which scores with the policy's own model. Rank 0 alone loads the judges."""
    if config.diagnostics.judge is not None and first_images(config.env):
        raise ValueError(
            f"A judge reads text alone (--diagnostics.judge), and the observations of {config.env.name} hold pictures. "
            "Leave the judge out, or choose an observation in text, such as --env.observation both."
        )
    judge = None
    if config.diagnostics.enabled and world.is_rank_0:
        load_text_judge()  # now, so that the first step's time is that of a step
        judge = load_judge(config, world.device)
    tags = ThoughtTags(config.tags.open, config.tags.close)
    scorer = HFScorer(model, max_tokens=config.diagnostics.max_tokens)
    return Diagnostician(config.diagnostics, scorer, config.seed, tags, renderer.piece, judge)


def load_sharded(model: PreTrainedModel, world: World) -> Sharded:
    """The model, sharded over the ranks. A model in bfloat16 is stepped in float32."""
    if vision_of(model) is not None:
        raise ValueError(
            f"--parallel fsdp2 shards the model, and {type(model).__name__} sees: pictures cannot be read by shards "
            "yet; use --parallel data"
        )
    half = model.dtype == torch.bfloat16
    return Sharded(model.float() if half else model, world, half=half)


def load_critic(config: TrainConfig, model: PreTrainedModel, settings: UpdateSettings) -> Critic | None:
    """The critic on top of the policy as it is now, if the algorithm's estimator uses one."""
    if not isinstance(config.algorithm.advantage, UsesCritic):
        return None
    return Critic(model, config.critic, config.optimizer, settings)


def load_gradient_meter(
    config: TrainConfig, learner: Learner, reference: PreTrainedModel | TokenLogits | None
) -> GradientMeter | None:
    """The meter of the gradient's signal and noise, if the configuration enables it. KL is taken to `reference`."""
    if not config.gradients.every or reference is None:
        return None
    return GradientMeter(
        learner.model,
        reference,
        config.algorithm,
        temperature=config.sampling.temperature,
        token_budget=turns_of(config.env) * config.sampling.tokens_per_turn,
        memory_mb=config.gradients.memory_mb,
        critic=learner.critic,
        seed=derive(config.seed, "gradients"),
        device=learner.device,
    )


def load_judge(config: TrainConfig, device: torch.device) -> Judge | None:
    """The outside scorer that the configuration names, if any."""
    diagnostics = config.diagnostics
    if diagnostics.judge is None or not diagnostics.enabled:
        return None
    check_model(diagnostics.judge)
    model, tokenizer = load_model(diagnostics.judge, device, config.dtype)
    return Judge(model, tokenizer, judge_name(diagnostics.judge), diagnostics.max_tokens)


def _restore(parts: Parts, start: Checkpoint) -> None:
    state = start.state()
    try:
        parts.learner.load_state_dict(start.learner_state())
        cursor, scores = state["tasks"], state["scores"]
        if type(cursor) is not int or not all(isinstance(score, int | float) for score in scores.values()):
            raise TypeError("`tasks` or `scores` of another type")
        if not all(0 <= score <= 1 for score in scores.values()):
            raise ValueError("`scores` must be from 0 to 1")
        if not 0 <= cursor <= MOST_CURSOR:
            raise ValueError(f"`tasks` must be from 0 to {MOST_CURSOR:,}, found {cursor:,}")
        parts.tasks.cursor = cursor
        if parts.selection.memory is not None:
            parts.selection.memory.load_state(state["memory"])
        parts.diagnostician.load_state(state["diagnostics"])
        parts.scores = {int(version): score for version, score in scores.items()}
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(start.unfitting(error)) from error
    parts.version = start.version
