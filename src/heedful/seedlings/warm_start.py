"""The warm start of a loaded model: supervised learning from an environment's demonstrations, cached on disk.

The result is an ordinary model folder in float32. An interrupted warm start goes on where it was last saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers.utils.hub import cached_file

from heedful.boundary.open_files import refuse_pipes
from heedful.envs.common.tagged import in_tags
from heedful.models.cache import cache_root, keep
from heedful.models.chat.calls import tools_of
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.models.forward.attention import longest_context_of
from heedful.models.gguf import converted
from heedful.models.load import load_model, stop_ids
from heedful.models.sight import VisionConfig
from heedful.models.vision import vision_of
from heedful.models.writing import WholeWeights, write_pretrained
from heedful.protocols import Environment
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.seedlings.demonstrations import batches, teacher
from heedful.seedlings.fit import Fit, Progress, Schedule, half_is_fast, learn, unfinished
from heedful.seedlings.grow import shown_to_a_learner, versions
from heedful.seedlings.recipe import WarmStart, key_of
from heedful.seeds import derive
from heedful.storage import check_model
from heedful.training.lora import Adapters
from heedful.types import TrainingSample

FORMAT = 1
"""Version of the learning code. It increases when the weights of a recipe change."""

_READ = (".json", ".safetensors", ".bin", ".jinja", ".txt", ".model", ".tiktoken", ".py")
"""Suffixes of the files of a model folder that decide what is learned: settings, weights, tokenizer and code."""


@dataclass(frozen=True, slots=True)
class Beginner:
    """A loaded model before its warm start, and how it will read the environment."""

    model: str
    """A folder, a name that `load_model` knows, or a Hugging Face name."""
    env: Environment
    knobs: object
    """The environment's knobs as a JSON tree."""
    tags: Tags = field(default_factory=Tags)
    context: Context = FULL_HISTORY
    chat_options: Mapping[str, str | int] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    vision: VisionConfig = field(default_factory=VisionConfig)


def warm_folder(recipe: WarmStart, beginner: Beginner) -> Path:
    """The model folder of this warm start, whether it exists or not. Its name depends on the model's own bytes."""
    # Settings of vision at their defaults leave the names of warm starts as they were.
    seen = {} if beginner.vision == VisionConfig() else {"vision": asdict(beginner.vision)}
    tree = seen | {
        "format": FORMAT,
        "recipe": asdict(recipe),
        "model": _fingerprint(beginner.model),
        "environment": shown_to_a_learner(beginner.env, beginner.knobs, beginner.tags, beginner.context),
        "template options": dict(beginner.chat_options),
        "versions": versions(),
        "device": beginner.device.type,
        "half": _half(recipe, beginner.device),
    }
    return cache_root() / "warm" / f"{beginner.env.name}-{key_of(tree)}"


def warm_started(recipe: WarmStart, beginner: Beginner, progress: Progress) -> Path:
    """The model folder of this warm start, from the cache or learned now.

    A first Ctrl-C, or a scheduler's signal, saves what is learned and ends the program.

    Raises:
        ValueError: the environment cannot demonstrate, an episode is longer than the model's window, or the copy of an
            interrupted warm start is damaged.
        InUse: another process is learning the same.
        DiskFull: there is no room. A copy that was saved before stays.
    """
    path = warm_folder(recipe, beginner)
    if path.is_dir():
        return path
    with unfinished(path, "warm start") as copy:
        if path.exists():
            return path
        check_model(beginner.model)
        model, tokenizer = load_model(beginner.model, beginner.device, vision=beginner.vision)
        ends, tools = stop_ids(model), tools_of(beginner.env)
        renderer = Renderer(tokenizer, beginner.tags, dict(beginner.chat_options), ends, tools, vision_of(model))
        solver = in_tags(teacher(beginner.env, recipe.imperfect, recipe.template), renderer.tags)
        adapters = Adapters(model, recipe.lora, derive(recipe.seed, "lora")) if recipe.lora.rank > 0 else None
        fit = Fit(
            model,
            Schedule(recipe.steps, recipe.lr),
            recipe.micro_batch_tokens,
            share_beginning=True,
            half=_half(recipe, beginner.device),
        )
        window = longest_context_of(model.config)
        rows = batches(solver, recipe.episodes, recipe.seed, renderer, beginner.context)
        learn(fit, (_within(samples, window, beginner) for samples in rows), recipe.steps, progress, copy)
        learned = WholeWeights(model, adapters.merged()) if adapters else model
        keep(path, lambda folder: write_pretrained(folder, learned, tokenizer))
    return path


def _half(recipe: WarmStart, device: torch.device) -> bool:
    """Whether matrices are multiplied in bfloat16."""
    return half_is_fast(device) if recipe.precision == "auto" else recipe.precision == "bfloat16"


def _within(samples: list[TrainingSample], window: int | None, beginner: Beginner) -> list[TrainingSample]:
    """The same rows. Raises ValueError, a sentence, for one that is longer than the model's window."""
    longest = max(len(sample.ids) for sample in samples)
    if window is not None and longest > window:
        raise ValueError(
            f"Expected demonstrated episodes of {beginner.env.name} within the window of {beginner.model}, {window:,} "
            f"tokens, found one of {longest:,}. Shorten the history (--context.turns) or the episodes (--env.turns)."
        )
    return samples


def _fingerprint(name: str) -> str:
    """What the bytes of a model are known by: the content of a folder, or a Hugging Face name with its commit."""
    source = converted(name)
    folder = Path(source)
    if not folder.is_dir():
        # The commit is the name of the folder in which the hub's cache keeps the file.
        return f"{source}@{Path(str(cached_file(str(source), 'config.json'))).parent.name}"
    refuse_pipes(folder)
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.iterdir() if file.suffix in _READ and file.is_file()):
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
