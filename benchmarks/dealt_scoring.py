"""Seconds of one measurement: one process, and two ranks that share the pairs of thoughts and prompts, in turns.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m benchmarks.dealt_scoring
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m benchmarks.dealt_scoring --model smollm2 --prompts 6 --thoughts 32

Without `--model` a random Llama of 4 million parameters. Prompts of 60 to 120 tokens, thoughts of 20 to 40, one thread
for each process. Rank 0 asks one process, then the ranks with a whole model each, then the ranks with shards (FSDP2),
again and again, each round with texts of its own. A small first round is left out. A line has seconds, the CPU seconds
of rank 0 (those of gloo's threads too), and the largest difference of a score. For shards it has the passes of rank 0,
and the share of its time in FSDP2's gathers and their waits. The last lines have the median ratio to the one process of
the same round, the smallest and the largest.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.models.forward.spread import in_step
from heedful.models.load import load_model
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer

SIZES = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}


class Gloo:
    """The ranks of torch's default group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, item: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, item)
        return found


class Gathers:
    """The seconds that FSDP2 gathers and splits in this process, and the passes."""

    def __init__(self, body: Any) -> None:
        self.seconds, self.passes = 0.0, 0
        body.register_forward_pre_hook(self._count)
        for name in ("unshard", "wait_for_unshard", "reshard"):
            setattr(FSDPParamGroup, name, self._timed(getattr(FSDPParamGroup, name)))

    def _count(self, *_: Any) -> None:
        self.passes += 1

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*given, **named)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def main(name: str | None, prompts: int, thoughts: int, calls: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    if name is None:
        config = LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=4)  # type: ignore[arg-type]
        whole: Any = LlamaForCausalLM(config).eval()
    else:
        whole, _ = load_model(name, torch.device("cpu"))
    rng = random.Random(0)

    def texts(count: int, least: int, most: int) -> list[tuple[int, ...]]:
        return [tuple(rng.randrange(2048) for _ in range(rng.randint(least, most))) for _ in range(count)]

    def asked(prompts: int, thoughts: int) -> tuple[Any, ...]:
        return texts(prompts, 60, 120), texts(thoughts, 20, 40), [row % prompts for row in range(thoughts)], 1.0

    split = copy.deepcopy(whole)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in split.get_decoder().layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(split, mesh=mesh)
    gathers = Gathers(split.get_decoder())
    ranks = {
        "whole": DealtScorer(HFScorer(whole), Gloo()),
        "FSDP2": DealtScorer(HFScorer(split), Gloo(), partial(in_step, split, split.get_decoder())),
    }
    alone = HFScorer(whole)
    ratios: dict[str, list[list[float]]] = {way: [] for way in ranks}
    for number in range(1 + calls):
        given = asked(prompts, thoughts) if number else asked(2, 2)
        with timed() as one:
            expected = alone.cross_score(*given).scores_MN if dist.get_rank() == 0 else np.zeros(0)
        dist.barrier()
        for way, scorer in ranks.items():
            gathers.seconds, gathers.passes = 0.0, 0
            if dist.get_rank():
                scorer.answer()
                continue
            with scorer.asking(), timed() as several:
                scores = scorer.cross_score(*given).scores_MN
            if number == 0:
                continue
            ratios[way].append([mine / its for mine, its in zip(several, one, strict=True)])
            error = float(np.abs(scores - expected).max())
            times = f"{several[0]:.2f} s ({several[1]:.2f} CPU), one process {one[0]:.2f} s ({one[1]:.2f} CPU)"
            shares = f", {gathers.passes} passes, gathers {gathers.seconds / several[0]:.2f}" if way == "FSDP2" else ""
            print(f"{way}: {times}, {error:.1e} nats{shares}", flush=True)
    for way, found in ratios.items() if dist.get_rank() == 0 else ():
        for kind, values in zip(("time", "CPU time"), zip(*found, strict=True), strict=True):
            middle = statistics.median(values)
            print(f"{way}: {middle:.2f} of one process's {kind} ({min(values):.2f} to {max(values):.2f})", flush=True)
    dist.destroy_process_group()


@contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds, and CPU seconds of this process, of a `with` body: they are there at its end."""
    found: list[float] = []
    start, used = time.perf_counter(), time.process_time()
    yield found
    found += [time.perf_counter() - start, time.process_time() - used]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder, or smollm2")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--thoughts", type=int, default=32)
    parser.add_argument("--calls", type=int, default=5, help="rounds that count")
    arguments = parser.parse_args()
    main(arguments.model, arguments.prompts, arguments.thoughts, arguments.calls)
