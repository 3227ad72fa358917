"""Updates and runs that one process or two make alike; executed once per process.

    RANK=0 WORLD_SIZE=2 ... python training_worker.py FOLDER CONFIG

Nine trajectories in three groups, of 4 to 17 tokens. Micro-batches of 40 padded tokens, so that the processes have
different numbers of them.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch.distributed.tensor import DTensor
from transformers import LlamaForCausalLM

from heedful import cli
from heedful.algorithms.entropy_control import EntropyTarget
from heedful.algorithms.table import ALGORITHMS, Algorithm, Grpo
from heedful.models.forward.token_logits import token_logits
from heedful.protocols import UsesCritic
from heedful.training.batch import UpdateSettings
from heedful.training.critic import Critic
from heedful.training.learner import Learner
from heedful.training.lora import Adapters
from heedful.training.ranks.parallel import ProcessRank
from heedful.training.ranks.sharding import Sharded, whole_tensor
from heedful.training.ranks.world import Joined, World
from heedful.training.samples import Row
from heedful.training.settings import CriticConfig, LoraConfig, OptimizerConfig
from heedful.types import TrainingSample
from tiny_models import narrow

VOCABULARY, BUDGET = 13, 20
OPTIMIZER = OptimizerConfig(lr=0.01, warmup_steps=0)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
IN_PIECES = ("grpo", "dapo", "gspo")
"""Rows of the table that are also trained with the model in pieces."""


def tiny(dtype: torch.dtype, seed: int = 0, tied: bool = False) -> LlamaForCausalLM:
    return narrow(VOCABULARY, seed, dtype, num_key_value_heads=1, tie_word_embeddings=tied)


def samples(count: int = 9, valued: bool = False) -> list[TrainingSample]:
    rng = random.Random(5)
    made = []
    for member in range(count):
        length = rng.randint(4, 17)
        trained = (False, True, *(rng.random() < 0.5 for _ in range(length - 2)))

        def per_token(low: int, high: int, trained: Sequence[bool] = trained) -> tuple[float, ...]:
            return tuple(rng.randint(low, high) / 8 if one else 0.0 for one in trained)

        made.append(
            TrainingSample(
                ids=tuple(rng.randrange(VOCABULARY) for _ in range(length)),
                trained=trained,
                logprobs=per_token(-30, -8),
                advantages=tuple((1.5 if member % 3 else -0.75) if one else 0.0 for one in trained),
                group=member // 3,
                member=member % 3,
                weight=1.0 + member % 2,
                values=per_token(-4, 4) if valued else (),
                returns=per_token(-8, 8) if valued else (),
            )
        )
    return made


def row_of(name: str) -> Algorithm:
    """A row of the table with everything on that a loss can have."""
    row = ALGORITHMS[name]()
    target = {"entropy_control": EntropyTarget(nats=2.5)} if name == "dapo" else {}
    return replace(row, kl=0.3, entropy=0.05, importance_cap=2.0 if name == "rloo" else None, **target)


def learner_of(world: World, algorithm: Algorithm, model: Any, *, pieces: bool, dtype: torch.dtype) -> Learner:
    critic = None
    if isinstance(algorithm.advantage, UsesCritic):
        kind = CriticConfig(kind="model", clip=0.2) if pieces else CriticConfig(kind="head", trunk=0.5, clip=0.2)
        critic = Critic(model, kind, OPTIMIZER, UpdateSettings(micro_batch_tokens=40, world=world))
    half = dtype == torch.bfloat16
    sharded = Sharded(model.float() if half else model, world, half=half) if pieces and world.size > 1 else None
    return Learner(
        model,
        algorithm,
        OPTIMIZER,
        UpdateSettings(temperature=0.7, micro_batch_tokens=40, world=world, sharded=sharded),
        reference=tiny(dtype, 1),
        critic=critic,
    )


def gradient(world: World, name: str, *, pieces: bool = False) -> dict[str, Any]:
    """Loss and gradient of one batch, in float32."""
    algorithm = row_of(name)
    valued = isinstance(algorithm.advantage, UsesCritic)
    learner = learner_of(world, algorithm, tiny(torch.float32), pieces=pieces, dtype=torch.float32)
    reading = learner.accumulate_gradient(samples(valued=valued), token_budget=BUDGET)
    parameters = list(learner.model.parameters())
    if learner.sharded is None:
        world.sum_gradients(parameters)
    whole = [whole_tensor(p.grad).flatten() for p in parameters if p.grad is not None]
    return {"gradient": torch.cat(whole), "loss": reading.loss, "tokens": reading.tokens}


def updates(
    world: World, name: str, *, pieces: bool = False, dtype: torch.dtype = torch.float64, folder: Path | None = None
) -> dict[str, Any]:
    """Two updates in float64, the second of a batch of which only one process has a sample."""
    algorithm = row_of(name)
    valued = isinstance(algorithm.advantage, UsesCritic)
    model = tiny(dtype)
    learner = learner_of(world, algorithm, model, pieces=pieces, dtype=dtype)
    metrics = learner.update(samples(valued=valued), scale=0.5, token_budget=BUDGET)
    metrics += learner.update(samples(1, valued), token_budget=BUDGET)
    found = {
        "metrics": [(metric.name, metric.value, metric.n) for metric in metrics],
        "weights": torch.cat([whole_tensor(p.detach()).flatten().clone() for p in model.parameters()]),
        "state": learner.state_dict(),
        "entropy coefficient": learner.entropy_coefficient,
    }
    if learner.critic is not None:
        rows = [
            Row(s.ids, tuple(0 if one else -1 for one in s.trained), s.logprobs, s.group, s.member, s.weight)
            for s in samples()
        ]
        found["values"] = learner.critic.values(rows)
    if learner.sharded is not None and folder is not None:
        weights = learner.sharded.weights()
        if world.is_rank_0:
            model.save_pretrained(folder, state_dict=weights)
    return found


def additions(world: World, dtype: torch.dtype, folder: Path) -> dict[str, Any]:
    """LoRA on a model in pieces: two updates with a KL penalty, and the model that is saved."""
    model = tiny(dtype)
    adapters = Adapters(model, LoraConfig(rank=2), seed=0)
    sharded = Sharded(model, world) if world.size > 1 else None
    rows = token_logits(model) if sharded is None else sharded.token_logits
    learner = Learner(
        model,
        row_of("grpo"),
        OPTIMIZER,
        UpdateSettings(temperature=0.7, micro_batch_tokens=40, world=world, sharded=sharded),
        reference=adapters.without(rows),
    )
    metrics = learner.update(samples(), scale=0.5, token_budget=BUDGET)
    metrics += learner.update(samples(1), token_budget=BUDGET)
    saved = adapters if sharded is None else adapters.over(sharded.weights())
    if world.is_rank_0:
        saved.save_pretrained(folder)
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    return {
        "metrics": [(metric.name, metric.value, metric.n) for metric in metrics],
        "weights": torch.cat([parameter.detach().flatten().clone() for parameter in learner.parameters]),
        "held": sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in frozen),
        "entropy coefficient": learner.entropy_coefficient,
        "state": learner.state_dict(),
    }


def windows(world: World) -> dict[str, Any]:
    """A model in pieces, used by each process as often as it likes, and trained in between."""
    model = tiny(torch.float64, tied=True)
    learner = learner_of(world, Grpo(), model, pieces=True, dtype=torch.float64)
    ids = torch.arange(12)[None] % VOCABULARY
    seen = []
    for _ in range(2):
        with learner.whole(), learner.whole(), torch.inference_mode():
            for _ in range(1 + 2 * world.rank):
                seen.append(model(input_ids=ids).logits[0, -1].clone())
        learner.update(samples(), token_budget=BUDGET)
    return {"logits": [seen[0], seen[-1]]}


def killed(run: Path, copy: Path) -> None:
    """The run as it was left by a kill behind step 2, its last checkpoint."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("step_000004", "report.html", "verdict.json"))


def train_alike(folder: Path, config: str) -> None:
    """A run of each kind, and two that go on where a kill left them: one of two processes, and one of one."""
    ways = [["echo", "--config", config, "--parallel", name, "--out", str(folder / name)] for name in ("data", "fsdp2")]
    ways += [["--resume", str(folder / name)] for name in ("again", "from-one")]
    for way in ways:
        if "--resume" in way and os.environ["RANK"] == "0" and not (folder / "again").exists():
            killed(folder / "data", folder / "copied")
            (folder / "copied").rename(folder / "again")  # whole from the moment at which the other rank sees it
        while "--resume" in way and not (folder / "again" / "config.json").exists():
            time.sleep(0.05)
        assert cli.run(["train", *way]) == 0


def main(folder: Path, config: str) -> None:
    torch.set_num_threads(1)
    place = ProcessRank.of(os.environ)
    with Joined(place, torch.device("cpu"), 900) as world:
        found: dict[str, Any] = {
            "gradients": {name: gradient(world, name) for name in ALGORITHMS},
            "updates": {name: updates(world, name) for name in ALGORITHMS},
            "gradients in pieces": {name: gradient(world, name, pieces=True) for name in IN_PIECES},
            "updates in pieces": {
                name: updates(world, name, pieces=True, folder=folder / f"model-{name}") for name in IN_PIECES
            },
            "critic beside pieces": updates(world, "ppo", pieces=True),
            "half in pieces": updates(world, "grpo", pieces=True, dtype=torch.bfloat16),
            "windows": windows(world),
        }
        for name, dtype in DTYPES.items() if find_spec("peft") is not None else ():
            found[f"additions in {name}"] = additions(world, dtype, folder / f"additions-{name}")
    torch.save(found, folder / f"found-{place.rank}.pt")
    train_alike(folder, config)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
