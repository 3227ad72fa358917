"""Grow a seedling: tokenizer and weights from a solver's demonstrations, cached on disk.

The same recipe gives the same bytes on one machine and thread count. An interrupted growth leaves nothing behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from heedful.envs.common.demonstrated import answer_to, demonstrated
from heedful.envs.common.tasks import TaskStream
from heedful.models.cache import cache_root, keep
from heedful.models.folders import read_model, read_tokenizer, write_pretrained
from heedful.models.render import Renderer
from heedful.models.replies import Tags
from heedful.models.token_logits import token_logits
from heedful.protocols import Demonstrates, Environment, PlayedElsewhere
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.player import Player, made
from heedful.seedlings.recipe import Seedling
from heedful.seedlings.tokenizer import grow_tokenizer
from heedful.seeds import derive, stream
from heedful.storage import naming_a_full_disk
from heedful.training.batch import cut_micro_batches
from heedful.training.samples import merge_rows
from heedful.types import Ending, Group, Message, Task, TrainingSample, Verdict

MICRO_BATCH_TOKENS = 1024
TOKENIZER_EPISODES = 200

Progress = Callable[[int, int, float], None]
"""Called with (step, steps, loss)."""


def seedling_path(
    recipe: Seedling, env: Environment, knobs: object, tags: Tags, context: Context = FULL_HISTORY
) -> Path:
    """The path of the seedling, whether it exists or not."""
    versions = (
        f"torch {torch.__version__}, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    window = [asdict(context)] if context.cuts(env.turns) else []
    # The knobs of a remote environment give its address, not its content.
    served = [env.served] if isinstance(env, PlayedElsewhere) else []
    key = recipe.key([_naming(knobs), asdict(tags), *window, *served], versions)
    return cache_root() / "seedlings" / f"{env.name}-{key}"


def _naming(knobs: object) -> object:
    """The knobs that name a seedling. A later knob, at its default, leaves the earlier names as they were."""
    if isinstance(knobs, dict) and knobs.get("thoughts") == "terse":
        return {knob: value for knob, value in knobs.items() if knob != "thoughts"}
    return knobs


def load_seedling(
    recipe: Seedling,
    env: Demonstrates,
    knobs: object,
    tags: Tags,
    progress: Progress,
    context: Context = FULL_HISTORY,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Path]:
    """The seedling of this recipe, from the cache or grown now. It reads its episodes as `context` shows them.

    Raises:
        ValueError: the environment cannot demonstrate (or not in windows), or the cached copy is damaged.
        DiskFull: there is no room for the grown seedling.
    """
    path = seedling_path(recipe, env, knobs, tags, context)
    if not path.exists():
        grown = grow(recipe, env, tags, progress, context)
        with naming_a_full_disk(path, kept="nothing of this seedling"):
            keep(path, lambda folder: write_pretrained(folder, *grown))
    remedy = f"Delete the folder {path} to grow the seedling again."
    return read_model(path, torch.float32, remedy), read_tokenizer(path, remedy), path


def grow(
    recipe: Seedling, env: Demonstrates, tags: Tags, progress: Progress, context: Context = FULL_HISTORY
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Learn tokenizer and weights from demonstrations of training tasks, read as `context` shows them.

    Raises ValueError for an environment without `demonstrate` and the knobs `imperfect` and `template`.
    """
    teacher = _teacher(recipe, env)
    sample = list(_corpus(teacher, recipe))
    tokenizer = grow_tokenizer(
        sample, recipe.vocabulary, recipe.context, [tags.open, tags.close, tags.answer_open, tags.answer_close]
    )
    renderer = Renderer(tokenizer, tags)
    model = _initial_model(recipe, tokenizer, renderer)
    _train(model, recipe, _batches(teacher, recipe, renderer, context), progress)
    model.eval()
    return model, tokenizer


def _teacher(recipe: Seedling, env: Environment) -> Demonstrates:
    """The environment with the recipe's faults in its demonstrations."""
    knobs: Any = {field.name for field in fields(env)} if is_dataclass(env) else set()
    if not isinstance(env, Demonstrates) or not {"imperfect", "template"} <= knobs:
        raise ValueError(
            f"Expected an environment that a seedling can learn from: a dataclass with a method `demonstrate` and the "
            f"fields `imperfect` and `template`, found {type(env).__name__} without. Add them, or train a model of "
            "your own with --model PATH."
        )
    faulty: Any = env
    return replace(faulty, imperfect=recipe.imperfect, template=recipe.template)


def _initial_model(recipe: Seedling, tokenizer: PreTrainedTokenizerBase, renderer: Renderer) -> LlamaForCausalLM:
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
        eos_token_id=renderer.end_of_turn_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Initialisation draws from torch's global generator, so it is forked to leave other users unaffected.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(recipe.seed, "weights"))
        return LlamaForCausalLM(config)


def _corpus(env: Demonstrates, recipe: Seedling) -> Iterator[str]:
    """Texts for the tokenizer: demonstrated episodes, and the environment's answers to faulty replies."""
    tasks = TaskStream(env, "train", derive(recipe.seed, "demonstrations", "tokenizer"))
    rng = stream(recipe.seed, "demonstrator", "tokenizer")
    for task in tasks.next(TOKENIZER_EPISODES):
        pairs = demonstrated(env, task, rng)
        yield from (text for pair in pairs for text in pair)
        whole = pairs[0][1]
        for faulty in (
            whole[: len(whole) // 2],
            whole[: len(whole) - 3],
            whole.replace("<answer>", "<answer>Nothing || "),
        ):
            yield answer_to(env, task, faulty)


def _batches(
    env: Demonstrates, recipe: Seedling, renderer: Renderer, context: Context
) -> Iterator[list[TrainingSample]]:
    tasks = TaskStream(env, "train", derive(recipe.seed, "demonstrations", "batches"))
    rng = stream(recipe.seed, "demonstrator", "batches")
    while True:
        played = [(task, demonstrated(env, task, rng)) for task in tasks.next(recipe.episodes)]
        if context.cuts(env.turns):
            yield [row for one in played for row in encode_windows(env, *one, renderer, context)]
        else:
            yield [encode(episode, renderer) for _, episode in played]


def encode(episode: Sequence[tuple[str, str]], renderer: Renderer) -> TrainingSample:
    """A demonstrated episode as token ids, exactly as a sampled episode would have them. Replies are trained."""
    ids: list[int] = []
    trained: list[bool] = []
    for number, (observation, reply) in enumerate(episode):
        message = [Message("user", observation)]
        prompt = renderer.start(message) if number == 0 else renderer.glue(message, ended=True)
        written = renderer.as_sampled(reply)
        ids += [*prompt.ids, *written]
        trained += [False] * len(prompt.ids) + [True] * len(written)
    zeros = (0.0,) * len(ids)
    return TrainingSample(tuple(ids), tuple(trained), zeros, zeros, group=0, member=0, weight=1.0)


def encode_windows(
    env: Environment,
    task: Task,
    pairs: Sequence[tuple[str, str]],
    renderer: Renderer,
    context: Context,
) -> list[TrainingSample]:
    """A demonstrated episode as rows, exactly as a sampled episode in windows of history would have them.

    The replies are played again, because a window begins with the opening of an observation, and demonstrations do not
    hold it. Raises ValueError if the environment then shows something else than the demonstration.
    """
    player = Player(made(env.episode), task, 0, len(pairs), context)
    for shown, text in pairs:
        if player.ending is not None or player.observation.text != shown:
            found = player.observation.text if player.ending is None else f"the end: {player.ending.value}"
            raise ValueError(
                f"Expected an environment that replays its demonstration of task {task.id}, played as member 0, which "
                f"windows of history need, but after the same replies it shows {found[:60]!r} for {shown[:60]!r}. Let "
                "`demonstrate` play member 0, or leave --context.turns out."
            )
        ids = renderer.as_sampled(text)
        player.advance(renderer.parse(renderer.next_prompt(player.conversation), ids, (0.0,) * len(ids)))
    trajectory = player.trajectory(temperature=1.0, policy_version=0)
    if trajectory.ending is Ending.ERROR:
        raise ValueError(f"{env.name} broke while its demonstration of task {task.id} was replayed: {trajectory.error}")
    group = Group(task, (trajectory,))
    return [
        TrainingSample(row.ids, row.trained, row.logprobs, (0.0,) * len(row.ids), group=0, member=0, weight=1.0)
        for row in merge_rows([group], [Verdict(1.0, "kept", None)])
    ]


def _train(
    model: LlamaForCausalLM, recipe: Seedling, batches: Iterator[list[TrainingSample]], progress: Progress
) -> None:
    """Train on next-token prediction of the demonstrator's replies, averaged over all tokens of a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0)
    logits_at_trained = token_logits(model)
    warmup = max(1, recipe.steps // 25)
    for step in range(recipe.steps):
        cosine = 0.5 * (1 + math.cos(math.pi * max(0, step - warmup) / max(1, recipe.steps - warmup)))
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * min(1.0, (step + 1) / warmup) * (0.1 + 0.9 * cosine)
        samples = next(batches)
        tokens = sum(sum(sample.trained) for sample in samples)
        loss_sum = 0.0
        for batch in cut_micro_batches(samples, [1.0] * len(samples), MICRO_BATCH_TOKENS, "cpu"):
            targets_N = batch.ids_BT[:, 1:][batch.trained_BT[:, 1:]]
            logits_NV = logits_at_trained(batch.ids_BT, batch.trained_BT)
            loss = torch.nn.functional.cross_entropy(logits_NV, targets_N, reduction="sum") / tokens
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress(step + 1, recipe.steps, loss_sum)
