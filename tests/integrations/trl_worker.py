"""Runs of HeedfulGRPOTrainer that one process or several make of the same script; executed once per process.

    RANK=0 WORLD_SIZE=2 ... python trl_worker.py MODEL FOLDER

Groups of 4 in generation batches of 12 rows: two processes hold 6 rows each, so the second group lies across them.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate.state import AcceleratorState, DistributedType
from tiny_trl import Gradients, Script, arguments, trainer_of, weights_of, written

from heedful.filters import DropConstant
from heedful.integrations.trl import HeedfulConfig
from heedful.integrations.trl.removal import KEPT
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.rollout.choosers import Thompson

GROUP, ROWS = 4, 12
UP, DOWN, FLAT = [0, 1, 0, 0], [1, 0.5, 1, 1], [1, 1, 1, 1]
STEPS = (
    [UP, DOWN, FLAT],  # 6 kept rows in the first process, 2 in the second
    [UP, FLAT, FLAT],  # the second process has none
    [FLAT, FLAT, FLAT],  # nobody has any
    [FLAT, UP, DOWN],  # 2 and 6
)
HEEDFUL = HeedfulConfig(filter=DropConstant(on="reward"), diagnostics=DiagnosticsConfig(every=1, full_every=2))
REFILLED = replace(HEEDFUL, sampling_batches=3)
SETTINGS = {"refilled": REFILLED, "chosen": replace(REFILLED, choose=Thompson(), outcome="score")}
RUNS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "beta": 0.1},
    "dapo": {"loss_type": "dapo", "num_iterations": 2},
    "batch": {"loss_type": "dr_grpo", "scale_rewards": "batch"},
    "objectives": {"loss_type": "luspo", "multi_objective_aggregation": "normalize_then_sum", "beta": 0.1},
    "sharded": {
        "loss_type": "dapo",
        "max_grad_norm": 0.1,
        "save_strategy": "steps",
        "save_steps": 2,
        "optim": "adamw_torch",
    },
    "refilled": {"loss_type": "dr_grpo", "scale_rewards": "batch"},
    "chosen": {"loss_type": "dr_grpo"},
}

EVALUATED = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "log_completions": True,
    "num_completions_to_print": 0,
    "save_strategy": "steps",
    "save_steps": 2,
}
"""What the first of them does besides."""


def script() -> Script:
    """Three tasks for each step, and one to evaluate on. In a flat group the second function is flat as well."""
    groups = [
        [{"score": value, "other": 0.0 if row is FLAT else place / 2} for place, value in enumerate(row)]
        for step in STEPS
        for row in step
    ]
    tasks = written([*groups, groups[0]])
    return Script([replace(task, prompt=f"{task.prompt}<think>") for task in tasks])


def run(model: Path, folder: Path, name: str, resume: str | None = None) -> dict[str, Any]:
    """One run; what this process knows at its end."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    with sharded_by_accelerate() if name == "sharded" and world > 1 else nullcontext():
        return _run(model, folder, name, world, resume)


def _run(model: Path, folder: Path, name: str, world: int, resume: str | None) -> dict[str, Any]:
    tasks, gradients, changes = script(), Gradients(), RUNS[name]
    data = tasks.dataset()
    groups = len(STEPS) * len(STEPS[0])
    cuts = 2 if world < 4 else 1
    args = arguments(
        folder,
        max_steps=len(STEPS) * changes.get("num_iterations", 1),
        num_generations=GROUP,
        gradient_accumulation_steps=cuts,
        per_device_train_batch_size=ROWS // cuts // world,
        learning_rate=0.01,
        **(EVALUATED | {"per_device_eval_batch_size": GROUP // world} if name == "grpo" else {}),
        **changes,
    )
    trainer = trainer_of(
        model,
        args,
        tasks,
        heedful=SETTINGS.get(name, HEEDFUL),
        functions=("score", "other"),
        callbacks=[gradients],
        train_dataset=data.select(range(groups)),
        eval_dataset=data.select(range(groups, len(data))),
    )
    assert (name == "sharded" and world > 1) == trainer.is_fsdp_enabled
    rows, apart, loss = list[int](), list[float](), trainer.compute_loss

    def noted(model: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        rows.append(len(batch["prompt_ids"]))
        if KEPT in batch:
            told = batch["sampling_per_token_logps"] + 4.0 + batch["completion_ids"] % 3  # as the script tells them
            apart.append(float((told * batch["completion_mask"] * batch[KEPT][:, None]).abs().max()))
        return loss(model, batch, *rest, **named)

    trainer.compute_loss = noted
    trainer.train(resume_from_checkpoint=resume)
    history = trainer.state.log_history
    found = {"weights": weights_of(trainer), "gradients": gradients.steps, "history": history}
    return found | {"most_rows": max(rows), "apart": max(apart)}


@contextmanager
def sharded_by_accelerate() -> Iterator[None]:
    """accelerate applies FSDP2 as `accelerate launch --use_fsdp` does on GPUs. It leaves it out on CPUs unless told."""
    settings = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    }
    made: Any = AcceleratorState.__init__

    def on_cpus(self: Any, *args: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        made(self, *args, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
        if self.__dict__.get("fsdp_plugin") is not None:
            self.distributed_type = DistributedType.FSDP

    with patch.dict(os.environ, settings), patch.object(AcceleratorState, "__init__", on_cpus):
        yield
    AcceleratorState._reset_state()


def main(folder: Path, model: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.freeze()  # each run collects garbage, and there is none among the packages' own objects
    world = int(os.environ["WORLD_SIZE"])
    found = {name: run(model, folder / name, name) for name in (RUNS if world == 2 else ["dapo"])}
    for name in ("grpo", "sharded") if world == 2 else ():
        again = folder / f"resumed {name}"
        if os.environ["RANK"] == "0":
            shutil.copytree(folder / name / "checkpoint-2", again / "checkpoint-2")
            shutil.copytree(folder / name / "heedful", again / "heedful")
        torch.distributed.barrier()
        found[again.name] = run(model, again, name, resume=str(again / "checkpoint-2"))
    torch.save(found, folder / f"found-{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
