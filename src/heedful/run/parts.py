"""The parts of a run: model, renderer, tasks, learner, diagnostician - fresh, or from a checkpoint.

A run resumed from checkpoint v continues exactly as the run that wrote it did.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.boundary import to_json
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.envs.common.contract import rightness_of, turns_of
from heedful.envs.common.helped import Helped
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import TaskStream
from heedful.measuring.diagnostician import Diagnostician
from heedful.models.chat.calls import tools_of
from heedful.models.chat.render import Renderer
from heedful.models.forward.spread import in_step, spread_as
from heedful.models.forward.token_logits import TokenLogits, token_logits
from heedful.models.load import load_model, pick_device, stop_ids
from heedful.models.sight import VisionConfig
from heedful.models.vision import vision_of
from heedful.models.writing import Saveable, WholeWeights
from heedful.protocols import Environment, UsesCritic
from heedful.run.checkpoint import Checkpoint
from heedful.run.config import TrainConfig, from_written
from heedful.run.selection import Selection, TaskMemory
from heedful.run.treatments import Treatments
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer
from heedful.scorers.judge import Judge, judge_name
from heedful.seedlings.demonstrations import first_images
from heedful.seedlings.grow import load_seedling, seedling_path
from heedful.seedlings.warm_start import Beginner, warm_folder, warm_started
from heedful.seeds import derive
from heedful.storage import check_model
from heedful.training.batch import UpdateSettings
from heedful.training.critic import Critic
from heedful.training.gradients.attribution import Attributor
from heedful.training.gradients.meter import GradientMeter
from heedful.training.gradients.update_parts import TermMoments
from heedful.training.learner import Learner
from heedful.training.lora import Adapters
from heedful.training.ranks.sharding import Sharded
from heedful.training.ranks.world import World

_OF_THE_BEGINNING = ("env", "seedling", "warm_start", "context", "tags", "template_options", "vision", "threads")
"""Settings that decide the model before the first step."""
MOMENTS = "term_moments"
"""The key of the moments of terms in a learner's state."""


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
    treatments: Treatments
    gradient_meter: GradientMeter | None
    """`None` where gradients are not measured."""
    attributor: Attributor | None
    """`None` where updates are not split."""
    adapters: Adapters | None
    """LoRA's additions to the model, where only they are trained."""
    began: TrainConfig
    """The configuration with which the run began: it decides the model before the first step."""
    version: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    """Sampled success at each evaluated version."""
    pinned: dict[str, int] = field(default_factory=dict)
    """The checkpoint before each collapse that was raised, by the name of the alarm."""

    @property
    def best(self) -> int | None:
        """The version with the highest evaluated success, and the earliest among equals."""
        return max(self.scores, key=lambda version: (self.scores[version], -version), default=None)

    def saveable(self) -> Saveable | PreTrainedModel:
        """The writer of the model as an ordinary model directory. Every rank must call it."""
        sharded = self.learner.sharded
        if sharded is None:
            return self.adapters or self.model
        weights = sharded.weights()
        return WholeWeights(self.model, weights) if self.adapters is None else self.adapters.over(weights)

    def learner_state(self) -> dict[str, Any]:
        """The learner's state, and the moments of the loss's terms where they are kept. Every rank must call it."""
        moments = None if self.attributor is None else self.attributor.moments
        kept = {} if moments is None else {MOMENTS: moments.state_dict()}
        return {**self.learner.state_dict(), **kept}

    def state(self) -> dict[str, Any]:
        """The loop's own state, as a JSON tree."""
        tags = self.renderer.tags if self.began.tags.of_model else self.began.tags
        began = to_json(replace(self.began, tags=tags))
        return {
            "tasks": self.tasks.cursor,
            "memory": None if self.selection.memory is None else self.selection.memory.state(),
            "diagnostics": self.diagnostician.state(),
            "began": {name: began[name] for name in _OF_THE_BEGINNING},
            "scores": {str(version): score for version, score in self.scores.items()},
            "pinned": self.pinned,
        }


@contextmanager
def _fitting(start: Checkpoint) -> Iterator[None]:
    """Name the checkpoint where its state does not fit: settings typed beside --resume may ask for other parts."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RuntimeError) as error:
        raise ValueError(
            f"Expected settings that fit the checkpoint in {start.path}, found others ({type(error).__name__}: "
            f"{str(error).strip():.200}). Leave out the settings that you typed beside --resume."
        ) from error


def assemble(
    config: TrainConfig,
    progress: Callable[[int, int, float], None],
    start: Checkpoint | None,
    world: World | None = None,
    began: TrainConfig | None = None,
) -> Parts:
    """Everything a run needs, from its configuration and a checkpoint to resume from. Called on each rank.

    `began`: the configuration with which the run began. By default that of the checkpoint, or `config`.
    """
    tasks = TaskStream(config.env, "train", derive(config.seed, "tasks"), config.pool)
    memory = TaskMemory("replay" in config.treat)
    helped = Helped(config.env)
    drawn = config.groups * (config.sized.candidates if config.sized else 1)
    treatments = Treatments(  # before a model is grown: it may refuse the environment
        config.treat, config.treat_dealt, helped, tasks.pool or (), memory, drawn, config.seed
    )
    began = began or (start and start.began()) or config
    torch.set_num_threads(began.threads)  # on which a seedling depends
    world = world or World(device=pick_device(config.device))
    with world.local_rank_0_first():
        model, tokenizer = load_policy(config, world.device, progress, began)
    torch.set_num_threads(config.threads)
    world.broadcast_weights(cast(torch.nn.Module, model))
    for applies, sentence in _contradictions(config, model):
        if applies:
            raise ValueError(sentence)
    renderer = renderer_of(config, model, tokenizer)
    adapters = Adapters(model, config.lora, derive(config.seed, "lora")) if config.lora.rank > 0 else None
    # The reference of KL is the policy before any update, also when the run resumes. LoRA needs no copy.
    reference: PreTrainedModel | TokenLogits | None = None
    if adapters is None and (config.algorithm.kl > 0 or config.gradients.every > 0):
        reference = copy.deepcopy(model).requires_grad_(False)
    if start is not None:
        with _fitting(start):
            if adapters is not None:
                adapters.load(start.path)
            else:
                cast(Any, model).load_state_dict(start.model(model.dtype).state_dict())
    settings = UpdateSettings(
        temperature=config.sampling.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        device=world.device,
        seed=derive(config.seed, "learner"),
        world=world,
        recompute=config.gradient_checkpointing,
    )
    # The critic begins as the policy is now. Each rank holds a whole one, also where the policy is sharded.
    uses_critic = isinstance(config.algorithm.advantage, UsesCritic)
    critic = Critic(model, config.critic, config.optimizer, settings) if uses_critic else None
    if config.parallel.sharded and world.size > 1:
        half = model.dtype == torch.bfloat16 and adapters is None  # such a model is stepped in float32
        sharded = Sharded(cast(Any, model).float() if half else model, world, half=half)
        settings = replace(settings, sharded=sharded)
    if adapters is not None and (config.algorithm.kl > 0 or config.gradients.every > 0):
        reference = adapters.without(settings.sharded.token_logits if settings.sharded else token_logits(model))
    learner = Learner(
        model,
        config.learning,
        config.optimizer,
        settings,
        reference=reference if config.algorithm.kl > 0 else None,
        critic=critic,
    )
    gradient_meter = None
    if config.gradients.every and reference is not None:
        gradient_meter = GradientMeter(
            learner.model,
            reference,
            config.algorithm,
            temperature=config.sampling.temperature,
            token_budget=turns_of(config.env) * config.sampling.tokens_per_turn,
            memory_mb=config.gradients.memory_mb,
            critic=critic,
            seed=derive(config.seed, "gradients"),
            device=learner.device,
        )
    env = in_tags(helped if "help" in config.treat else config.env, renderer.tags)
    attributor = None
    if config.attribution.on:
        if world.size > 1:
            raise ValueError(
                "The parts of an update (--attribution) are read in one process, found several: leave its settings "
                "out, or split a stored update afterwards with heedful gradients RUN --attribute."
            )
        attributor = Attributor(
            learner,
            HFScorer(model, max_tokens=config.diagnostics.max_tokens),
            ThoughtTags(renderer.tags.open, renderer.tags.close),
            readings=config.attribution.readings,
            moments=TermMoments() if config.attribution.moments else None,
            blocks=config.attribution.blocks,
            foreign=config.attribution.foreign,
            right=rightness_of(env),
            seed=derive(config.seed, "attribution"),
        )
    parts = Parts(
        env=env,
        model=model,
        tokenizer=tokenizer,
        renderer=renderer,
        tasks=tasks,
        learner=learner,
        diagnostician=_diagnostician(config, model, renderer, world, env),
        selection=Selection(
            config.filter, config.coverage, None if config.pool is None else memory, config.unit_of_groups
        ),
        treatments=treatments,
        gradient_meter=gradient_meter,
        attributor=attributor,
        adapters=adapters,
        began=began,
    )
    if start is not None:
        state = start.state()
        with _fitting(start):
            learned = start.learner_state()
            learner.load_state_dict(learned)
            written = start.settings()
            earlier = config if written is None else from_written(written)
            was, now = earlier.algorithm, config.algorithm
            if (was.entropy, was.entropy_control) != (now.entropy, now.entropy_control):
                # Typed beside the resume: it holds from here on, also where a collapse had cut the bonus.
                learner.entropy_coefficient, learner.entropy_cut = now.entropy, False
            if attributor is not None and (config.attribution.moments or MOMENTS in learned):
                attributor.moments = TermMoments(dict(learned.get(MOMENTS, {})))
            parts.tasks.cursor = state["tasks"]
            if parts.selection.memory is not None:
                parts.selection.memory.load_state(state["memory"], earlier.filter.on == config.filter.on)
            parts.diagnostician.load_state(state["diagnostics"])
        parts.scores = {int(version): score for version, score in state["scores"].items()}
        parts.pinned = dict(state.get("pinned", {}))
        parts.version = start.version
    return parts


def _diagnostician(
    config: TrainConfig, model: PreTrainedModel, renderer: Renderer, world: World, env: Environment
) -> Diagnostician:
    """The diagnostician, which scores with the policy's own model. Rank 0 alone loads the judges."""
    asked, judge = config.diagnostics, None
    if asked.enabled and world.is_rank_0 and asked.judge is not None:
        check_model(asked.judge)
        judging = load_model(asked.judge, world.device, config.dtype)
        judge = Judge(*judging, judge_name(asked.judge), asked.max_tokens)
    tags = ThoughtTags(renderer.tags.open, renderer.tags.close)
    own = HFScorer(model, max_tokens=asked.max_tokens)

    def reading() -> AbstractContextManager[None]:
        """A context in which every rank may read the model."""
        module = cast(torch.nn.Module, model)
        return in_step(module, model.get_decoder()) if spread_as(module) else nullcontext()

    # Of several ranks each scores its share. Rank 0 alone has the pictures of all.
    deals = world.size > 1 and vision_of(model) is None
    scorer = DealtScorer(own, world, reading) if deals else own
    return Diagnostician(asked, scorer, config.seed, tags, renderer.piece, judge, right=rightness_of(env))


def is_stored(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model that is grown for this run is in the cache. The number of torch's threads decides, too."""
    if config.model == "seedling":
        return seedling_path(config.seedling, config.env, to_json(config.env), config.tags, config.context).exists()
    return warm_folder(config.warm_start, beginner_of(config, device)).exists()


def load_policy(
    config: TrainConfig,
    device: torch.device,
    progress: Callable[[int, int, float], None],
    began: TrainConfig | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model to train: a seedling, or a loaded one after its warm start. What is not in the cache is learned now.

    `began`: the configuration whose demonstrations it learned from, if that is another one.
    """
    began = began or config
    if config.model == "seedling":
        if tools_of(config.env):
            raise ValueError(
                f"Expected a loaded model, since the replies of {config.env.name} are tool calls, found a seedling, "
                "whose chat template has no tools. Name a model whose template has them (--model), or choose plain "
                "actions (--env.actions plain)."
            )
        model, tokenizer, _ = load_seedling(
            began.seedling, began.env, to_json(began.env), began.tags, progress, began.context
        )
        cast(torch.nn.Module, model).to(device)
        if (vision := vision_of(model)) is not None:
            vision.freeze(config.vision.tower == "frozen")
        return model, tokenizer
    model_name = config.model
    if began.warm_start.steps:
        beginner = replace(beginner_of(began, device), model=config.model)
        model_name = str(warm_started(began.warm_start, beginner, progress))
    check_model(model_name)
    return load_model(model_name, device, config.dtype, config.vision)


def _contradictions(config: TrainConfig, model: PreTrainedModel) -> Iterator[tuple[bool, str]]:
    """What a loaded model and the settings demand of each other: whether it is broken, and the sentence."""
    asked, plain, kind, sees = config.vision, VisionConfig(), type(model).__name__, vision_of(model) is not None
    yield (
        config.sampling.greedy,
        "sampling.greedy is for playing: in training the members of a group would differ by the environment's noise "
        "alone, if at all",
    )
    yield (
        asked != plain and not sees,
        f"--vision sets how a model sees, and {kind} reads text alone. Leave its settings out, or give a model that "
        "sees.",
    )
    yield (
        asked.tower == "trained" and config.lora.rank > 0,
        "--vision.tower trained trains the weights that see, and LoRA (--lora.rank) trains its additions alone. Choose "
        "one of them.",
    )
    yield (
        config.parallel.sharded and sees,
        f"--parallel fsdp2 shards the model, and {kind} sees: pictures cannot be read by shards yet; use --parallel "
        "data",
    )
    yield (
        config.attribution.on and sees,
        f"--attribution reads thoughts behind the prompts of others, and {kind} sees: prompts with pictures cannot be "
        "read so yet. Leave its settings out. Of a run that is over, heedful fork says what one thing does to it.",
    )
    yield (
        "replay" in config.treat and sees,
        f"--treat replay stores token ids alone, and {kind} sees: a prompt with pictures cannot be stored so. Leave it "
        "out.",
    )
    yield (
        config.model == "seedling" and replace(asked, tower=plain.tower) != plain,
        "vision.least_pixels and vision.most_pixels are for loaded models. A seedling reads its pictures as they are: "
        "set their size with --env.cell.",
    )
    yield (
        config.diagnostics.judge is not None and bool(first_images(config.env)),
        f"A judge reads text alone (--diagnostics.judge), and the observations of {config.env.name} hold pictures. "
        "Leave the judge out, or choose an observation in text, such as --env.observation both.",
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
