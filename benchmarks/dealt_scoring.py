"""Seconds of one measurement: one process, and ranks that share the pairs of thoughts and prompts.

    python -m benchmarks.dealt_scoring
    torchrun --nproc-per-node 2 -m benchmarks.dealt_scoring [--sharded]

A random Llama of 4 million parameters, 16 prompts, 32 thoughts, one thread for each process. The first call is left
out. Each of the others is one line: seconds, and the largest difference from one process's scores in nats.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.models.forward.spread import in_step
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer

PROMPTS, THOUGHTS, CALLS = 16, 32, 5
SIZES = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}


class Gloo:
    """The ranks of torch's default group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, item: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, item)
        return found


def main(sharded: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=4)).eval()
    rng = random.Random(0)

    def texts(count: int, least: int, most: int) -> list[tuple[int, ...]]:
        return [tuple(rng.randrange(2048) for _ in range(rng.randint(least, most))) for _ in range(count)]

    prompts, thoughts = texts(PROMPTS, 60, 120), texts(THOUGHTS, 20, 40)
    own = [row % PROMPTS for row in range(THOUGHTS)]
    alone = HFScorer(model)
    ask = partial(alone.cross_score, prompts, thoughts, own, 1.0)
    if "RANK" not in os.environ:
        timed("one process", ask, None)
        return
    dist.init_process_group("gloo")
    expected = np.asarray(ask().scores_MN)
    body = model.get_decoder()
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in body.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        scorer = DealtScorer(HFScorer(model), Gloo(), partial(in_step, model, body))
    else:
        scorer = DealtScorer(HFScorer(model), Gloo())
    if dist.get_rank() == 0:
        with scorer.asking():
            asked = partial(scorer.cross_score, prompts, thoughts, own, 1.0)
            timed(f"{dist.get_world_size()} ranks{', FSDP2' if sharded else ''}", asked, expected)
    else:
        scorer.answer()
    dist.destroy_process_group()


def timed(name: str, ask: Callable[[], Any], expected: Any) -> None:
    ask()
    for _ in range(CALLS):
        start = time.perf_counter()
        scores = np.asarray(ask().scores_MN)
        took = time.perf_counter() - start
        error = 0.0 if expected is None else float(np.abs(scores - cast(Any, expected)).max())
        print(f"{name}: {took:.2f} s, {error:.1e} nats", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sharded", action="store_true", help="spread the weights over the ranks with FSDP2")
    main(parser.parse_args().sharded)
