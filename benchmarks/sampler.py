"""Speed of the sampler compared with `transformers.generate` on the same multi-turn episodes, in one run.

Both play the same tasks with the same weights, temperature and stop tokens. They alternate. The baseline has no KV
cache across turns: it uses left-padded contexts and `generate` with its own dynamic cache, and reads every turn from
the start. Tokens differ with the noise, so the figure is sampled tokens per second of whole episodes, environments and
tokenising included. The ratio is one of CPU seconds, since other programs on the machine disturb the wall clock. With
an accelerator it is one of seconds of the clock.

A loaded model is loaded twice. `generate` gets it as transformers loads it, and the faster one of its dynamic and its
static cache. heedful gets it as its own runs do.

    python benchmarks/sampler.py                       # the FrozenLake seedling (grown if the cache has none)
    python benchmarks/sampler.py --model PATH --batches 32 --tokens 32 --turns 1 --threads 2
    python benchmarks/sampler.py --model PATH --batches 128 --tokens 64 --turns 1 --device cuda --dtype bfloat16

With `--families`, random models of 20 to 60 million weights play three turns, with their states and uncached:

    PYTHONPATH=. python benchmarks/sampler.py --families qwen3_5_text gemma3_text bamba
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from devices import name_of
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from heedful.envs.common.tasks import evaluation_tasks
from heedful.models.chat.render import Renderer
from heedful.models.load import pick_device, stop_ids
from heedful.policies import growing
from heedful.policies.hf import HFPolicy
from heedful.policies.kv import KVStore
from heedful.policies.next_logits import Reader, Way
from heedful.policies.rows import Row
from heedful.policies.sampling import Sampling
from heedful.protocols import Policy
from heedful.rollout import LockStep, Request
from heedful.run.parts import load_policy
from heedful.run.presets import preset
from heedful.types import Conversation, Prompt, Reply


class GeneratePolicy:
    """The baseline: `model.generate` on left-padded whole contexts, once per turn, without log-probabilities."""

    version = 0

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        renderer: Renderer,
        sampling: Sampling,
        cache: str | None = None,
    ) -> None:
        self.model, self.tokenizer, self.renderer, self.sampling = model, tokenizer, renderer, sampling
        self.cache = cache

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    @torch.inference_mode()
    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        prompts = [self.renderer.next_prompt(conversation) for conversation in conversations]
        contexts = [self.renderer.context_ids(conversation) for conversation in conversations]
        width = max(map(len, contexts))
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(context)) + list(context) for context in contexts])
        filled = torch.tensor([[0] * (width - len(context)) + [1] * len(context) for context in contexts])
        output = self.model.generate(
            input_ids=ids.to(self.model.device),
            attention_mask=filled.to(self.model.device),
            do_sample=True,
            temperature=self.sampling.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=self.sampling.tokens_per_turn,
            eos_token_id=sorted(self.renderer.stop_ids),
            pad_token_id=pad,
            cache_implementation=self.cache,
        )
        replies = []
        for prompt, row in zip(prompts, output[:, width:].tolist(), strict=True):
            end = next((index + 1 for index, token in enumerate(row) if token in self.renderer.stop_ids), len(row))
            replies.append(self.renderer.parse(prompt, row[:end], [0.0] * end, ()))
        return replies


def compare_with_uncached(kinds: Sequence[str], rows: int = 4, turns: int = 3, tokens: int = 8) -> None:
    """CPU seconds of the same conversations with the way that the probe chooses, and from whole forward passes."""
    from benchmarks.families.models import built

    for kind in kinds:
        heads = {"mamba_n_heads": 96} if kind == "bamba" else {}  # twice the hidden size
        model = built(kind, 64, hidden_size=768, intermediate_size=3072, head_dim=64, num_attention_heads=12, **heads)
        seconds, replies = {}, {}
        for way in (growing.way_of(model)[0], Way.UNCACHED):
            reader, store, told = Reader(model, way, model), KVStore(), []
            loop = growing.Growing(reader, _greedy, store)
            contexts = [tuple(random.Random(row).choices(range(160), k=100 + 20 * row)) for row in range(rows)]
            before = time.process_time()
            with torch.inference_mode():
                for _ in range(turns):
                    played = [Row(str(n), Prompt("", ()), ids, tokens, 0) for n, ids in enumerate(contexts)]
                    loop.join(played, [row.key for row in played])
                    while loop.live:
                        loop.grow()
                    contexts = [(*row.context, *row.ids, *range(10 + n)) for n, row in enumerate(played)]
                    told += [row.ids for row in played]
            seconds[way], replies[way] = time.process_time() - before, told
        (way, fast), (_, slow) = seconds.items()
        same = replies[way] == replies[Way.UNCACHED]
        size = sum(parameter.numel() for parameter in model.parameters())
        print(
            f"{kind}, {size / 1e6:.0f}M, {way.name.lower()}: {slow / fast:.1f} times, same replies: {same}", flush=True
        )


def _greedy(logits_BV: torch.Tensor, live: list[Row]) -> torch.Tensor:
    tokens_B = logits_BV.argmax(-1)
    for row, token in zip(live, tokens_B.tolist(), strict=True):
        row.ids.append(token)
        row.open = len(row.ids) < row.allowed
    return tokens_B


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    if arguments.families:
        compare_with_uncached(arguments.families)
        return
    torch.manual_seed(0)  # generate draws from torch's global generator
    config = preset(arguments.env, arguments.model)
    config = dataclasses.replace(
        config,
        dtype=arguments.dtype,
        env=dataclasses.replace(config.env, turns=arguments.turns or config.env.turns),
        sampling=dataclasses.replace(
            config.sampling, tokens_per_turn=arguments.tokens or config.sampling.tokens_per_turn
        ),
    )
    model, tokenizer = load_policy(config, pick_device(arguments.device), lambda step, steps, loss: None)
    renderer = Renderer(tokenizer, config.tags, config.chat_options, stop_ids(model))
    plain = model
    if arguments.model is not None:
        plain = AutoModelForCausalLM.from_pretrained(config.model, dtype=model.dtype).to(model.device).eval()
    rows = []
    for batch in arguments.batches:
        request = Request(
            config.env.episode,
            evaluation_tasks(config.env, "train", batch // arguments.group_size),
            arguments.group_size,
            config.env.turns,
        )
        timed = 0 if arguments.device == "cpu" else 1
        caches = (None, "static") if arguments.model else (None,)
        pilots = {}
        for cache in caches * 2:  # the first of each warms up
            policy: Policy = GeneratePolicy(plain, tokenizer, renderer, config.sampling, cache)
            pilots[cache] = _played(policy, request)[timed]
        fastest = max(pilots, key=lambda cache: pilots[cache])
        figures: dict[str, list[tuple[float, float]]] = {"heedful": [], "generate": []}
        for repeat in range(arguments.repeats + 1):
            for name in figures:
                policy = (
                    HFPolicy(model, renderer, config.sampling, seed=repeat)
                    if name == "heedful"
                    else GeneratePolicy(plain, tokenizer, renderer, config.sampling, fastest)
                )
                figure = _played(policy, request)
                if repeat:  # the first of each warms up
                    figures[name].append(figure)
            if repeat:
                pair = [figures[name][-1][timed] for name in ("heedful", "generate")]
                print(f"{batch} episodes, repeat {repeat}: {pair[0] / pair[1]:.2f}", flush=True)
        rows.append(_row(batch, figures, timed) | {"generate_cache": fastest or "dynamic"})
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "benchmark": "sampler",
        "model": {"name": Path(config.model).name, "parameters": sum(p.numel() for p in model.parameters())},
        "environment": config.env.name,
        "turns": config.env.turns,
        "tokens_per_turn": config.sampling.tokens_per_turn,
        "threads": arguments.threads,
        "device": name_of(arguments.device),
        "dtype": arguments.dtype,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        "rows": rows,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def _played(policy: Policy, request: Request) -> tuple[float, float]:
    """Play the episodes, and return sampled tokens per second of CPU time and of the clock."""
    wall, cpu = time.perf_counter(), time.process_time()
    groups = LockStep()(policy, request)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = sum(len(turn.reply.ids) for g in groups for t in g.trajectories for turn in t.turns)
    return tokens / cpu, tokens / wall


def _row(batch: int, figures: dict[str, list[tuple[float, float]]], timed: int) -> dict[str, object]:
    """Medians over the repeats, and the ratio of each repeat's pair: of CPU time (`timed` 0), or of the clock (1)."""
    ratios = [ours[timed] / theirs[timed] for ours, theirs in zip(figures["heedful"], figures["generate"], strict=True)]
    row: dict[str, object] = {"episodes": batch, "repeats": len(ratios)}
    for name, pairs in figures.items():
        row[f"{name}_tokens_per_cpu_second"] = round(statistics.median(cpu for cpu, _ in pairs))
        row[f"{name}_tokens_per_second"] = round(statistics.median(wall for _, wall in pairs))
    row["ratio_median"] = round(statistics.median(ratios), 2)
    row["ratio_range"] = [round(min(ratios), 2), round(max(ratios), 2)]
    return row


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="frozen_lake", help="preset to play")
    parser.add_argument("--model", default=None, help="path or hub name; default: the preset's seedling")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128], help="episodes played at once")
    parser.add_argument("--group-size", type=int, default=8, help="episodes per task (they share a first prompt)")
    parser.add_argument("--tokens", type=int, help="most tokens of a reply; default: the preset's")
    parser.add_argument("--turns", type=int, help="turns of an episode; default: the preset's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="of a loaded model's weights, on both sides")
    parser.add_argument("--families", nargs="+", help="model types of benchmarks/families, each beside uncached")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
