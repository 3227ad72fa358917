"""Grow a seedling: tokenizer and weights from a solver's demonstrations, cached on disk.

The same recipe gives the same bytes on one machine and thread count, after an interruption, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import tokenizers
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from heedful.envs.common.contract import turns_of
from heedful.envs.common.tagged import in_tags
from heedful.models.cache import cache_root, keep
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.models.load import read_model, read_tokenizer, read_vision
from heedful.models.vision import vision_of
from heedful.models.writing import making_a_model, write_pretrained
from heedful.protocols import Demonstrates, Environment
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.seedlings.demonstrations import batches, corpus, first_images, teacher
from heedful.seedlings.eyes import give_sight, seeing, side_of
from heedful.seedlings.fit import Copy, Fit, Progress, Schedule, learn, unfinished
from heedful.seedlings.recipe import Seedling
from heedful.seedlings.tokenizer import add_pictures, grow_tokenizer
from heedful.seeds import derive
from heedful.storage import InUse, naming_a_full_disk, refuse_unwritable
from heedful.types import Image

MICRO_BATCH_TOKENS = 1024
_LOOKED_AT = 8
"""Tasks whose first pictures tell the size and the ground colour."""
_LATER = (("thoughts", "terse"), ("cell", 28))
"""Knobs that environments did not have from the beginning, with their defaults."""


def seedling_path(
    recipe: Seedling, env: Environment, knobs: object, tags: Tags, context: Context = FULL_HISTORY
) -> Path:
    """The path of the seedling, whether it exists or not."""
    key = recipe.key(shown_to_a_learner(env, knobs, tags, context), versions())
    return cache_root() / "seedlings" / f"{env.name}-{key}"


def shown_to_a_learner(env: Environment, knobs: object, tags: Tags, context: Context) -> list[object]:
    """All that decides the demonstrations of an environment, besides the recipe, as a JSON tree."""
    window = [asdict(context)] if context.cuts(turns_of(env)) else []
    # The knobs of a remote environment give its address, not its content.
    served = [env.served] if hasattr(env, "served") else []
    if isinstance(knobs, dict):  # a later knob, at its default, leaves the earlier names as they were
        knobs = {knob: value for knob, value in knobs.items() if (knob, value) not in _LATER}
    texts = {name: text for name, text in asdict(tags).items() if name != "of_model"}
    return [knobs, texts, *window, *served]


def versions() -> str:
    """What decides the bytes of learned weights besides their recipe: libraries and the number of threads."""
    return (
        f"torch {torch.__version__}, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, "
        f"{torch.get_num_threads()} threads"
    )


def load_seedling(
    recipe: Seedling,
    env: Demonstrates,
    knobs: object,
    tags: Tags,
    progress: Progress,
    context: Context = FULL_HISTORY,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Path]:
    """The seedling of this recipe, from the cache or grown now. It reads its episodes as `context` shows them.

    A first Ctrl-C, or a scheduler's signal, saves what is learned and ends the program. A process that finds another
    one growing the same seedling grows it, too, and saves nothing before the end.

    Raises:
        ValueError: the environment cannot demonstrate (or not in windows), or a copy in the cache is damaged.
        DiskFull: there is no room. A copy that was saved before stays.
    """
    path = seedling_path(recipe, env, knobs, tags, context)
    if not path.is_dir():
        with naming_a_full_disk(path, kept="nothing of this seedling"), ExitStack() as learning:
            refuse_unwritable(path)
            try:
                copy = learning.enter_context(unfinished(path, "seedling"))
            except InUse:
                copy = None
            if not path.exists():
                grown = grow(recipe, env, tags, progress, context, copy)
                keep(path, lambda folder: write_pretrained(folder, *grown))
    remedy = f"Delete the folder {path} to grow the seedling again."
    model, tokenizer = read_model(path, torch.float32, remedy), read_tokenizer(path, remedy)
    read_vision(model, tokenizer, path, remedy)
    return model, tokenizer, path


def grow(
    recipe: Seedling,
    env: Demonstrates,
    tags: Tags,
    progress: Progress,
    context: Context = FULL_HISTORY,
    copy: Copy | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Learn tokenizer and weights from demonstrations of training tasks, read as `context` shows them.

    `copy`: where an interrupted growth is saved, and goes on.

    Raises ValueError for an environment without `demonstrate` and the knobs `imperfect` and `template`, and for
    pictures that the recipe has no eyes for.
    """
    solver = in_tags(teacher(env, recipe.imperfect, recipe.template), tags)
    images = first_images(env, _LOOKED_AT)
    if images and not recipe.vision_width:
        raise ValueError(
            f"Expected a seedling that sees, since the observations of {env.name} hold pictures, found one that reads "
            "text alone. Give it a vision tower (--seedling.vision-width 48, with --env.cell 8), begin with a preset "
            "such as frozen_lake_image, or choose an observation in text (--env.observation both)."
        )
    if recipe.vision_width and not images:
        raise ValueError(
            f"Expected observations with pictures for a seedling that sees (vision_width={recipe.vision_width}), found "
            f"text alone in {env.name}. Leave out --seedling.vision-width, or choose an observation with pictures "
            "(--env.observation image, where the environment has one)."
        )
    sample = list(corpus(solver, recipe.seed))
    tokenizer = grow_tokenizer(
        sample, recipe.vocabulary, recipe.context, [tags.open, tags.close, tags.answer_open, tags.answer_close]
    )
    if recipe.vision_width:
        add_pictures(tokenizer)
    model = _initial_model(recipe, tokenizer, images)
    renderer = Renderer(tokenizer, tags, sight=vision_of(model))
    fit = Fit(model, Schedule(recipe.steps, recipe.lr), MICRO_BATCH_TOKENS)
    rows = batches(solver, recipe.episodes, recipe.seed, renderer, context)
    learn(fit, rows, recipe.steps, progress, copy)
    model.eval()
    return model, tokenizer


def _initial_model(recipe: Seedling, tokenizer: PreTrainedTokenizerBase, images: Sequence[Image]) -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 8) * 8,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.ffn,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        max_position_embeddings=recipe.context,
        initializer_range=recipe.init,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Initialisation draws from torch's global generator, so it is forked to leave other users unaffected.
    with making_a_model, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(recipe.seed, "weights"))
        if not recipe.vision_width:
            return LlamaForCausalLM(config)
        side = side_of(images, recipe)
        model = seeing(config, recipe, side, tokenizer)
    give_sight(model, tokenizer, images, side)
    return model
