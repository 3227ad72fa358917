"""Scores of models that are spread over ranks in unusual ways; executed once per rank.

RANK=0 WORLD_SIZE=4 ... python spread_worker.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from heedful.models.forward.spread import in_step
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer
from heedful.training.ranks.sharding import whole_tensor
from tiny_models import llama

PROMPTS = [tuple(range(1, 3 + extra)) for extra in range(7)]
THOUGHTS = [(3, 4, 5), (6, 7), (8,), (3, 4, 6, 7)]
KINDS: dict[str, dict[str, Any]] = {
    "over two of four": {"reshard_after_forward": 2},
    "in bfloat16": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)},
}


class Ranks:
    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, item: Any) -> list[Any]:
        gathered = [None] * self.size
        dist.all_gather_object(gathered, item)
        return gathered


def scored(kind: str) -> dict[str, Any]:
    """Scores on rank 0 before and after a step of training."""
    model: Any = llama(50).float()
    expected = HFScorer(model).cross_score(PROMPTS, THOUGHTS, [0] * 4, 1.0)
    for layer in model.get_decoder().layers:
        fully_shard(layer, **KINDS[kind])
    fully_shard(model, **KINDS[kind])
    scorer = DealtScorer(HFScorer(model), Ranks(), lambda: in_step(model, model.get_decoder()))
    matrices, norms, way = [], [], ""
    for _ in range(2):
        if dist.get_rank():
            scorer.answer()
        else:
            with scorer.asking():
                found = scorer.cross_score(PROMPTS, THOUGHTS, [0] * 4, 1.0)
            matrices.append(found.scores_MN)
            way = found.method
        model(input_ids=torch.tensor([[1, 2, 3]])).logits.float().sum().backward()
        norms.append(float(whole_tensor(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))))
        model.zero_grad()
    return {"found": matrices, "expected": expected.scores_MN, "way": way, "norms": norms}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.save({kind: scored(kind) for kind in KINDS}, folder / f"found-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
