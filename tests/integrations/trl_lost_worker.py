"""A measurement in which one of two processes fails; executed once per process.

    RANK=0 WORLD_SIZE=2 ... python trl_lost_worker.py FOLDER MODEL

Rank 0 raises in its own code while the other one waits for questions, and while it waits for prompts. Then rank 1 is
killed while it scores.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import trl_worker
from tiny_trl import arguments, trainer_of

from heedful.integrations.trl import HeedfulConfig
from heedful.integrations.trl.choosing import PromptChoice
from heedful.measuring.diagnostician import Diagnostician
from heedful.rollout.choosers import Thompson


def trainer_in(folder: Path, model: Path, heedful: HeedfulConfig = trl_worker.HEEDFUL) -> Any:
    tasks = trl_worker.script()
    args = arguments(folder, num_generations=4, per_device_train_batch_size=6)
    return trainer_of(model, args, tasks, heedful=heedful, functions=("score", "other"))


def main(folder: Path, model: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])

    trainer = trainer_in(folder / "raises", model)

    def raises(*_: Any, **__: Any) -> Any:
        raise ValueError("a fault of rank 0 alone")

    chosen = trainer_in(folder / "chooses", model, replace(trl_worker.HEEDFUL, choose=Thompson(), outcome="score"))
    for made, where, name in ((trainer, Diagnostician, "measure"), (chosen, PromptChoice, "draw")):
        try:
            with patch.object(where, name, raises):  # only rank 0 calls it
                made.train()
        except (ValueError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)

    trainer = trainer_in(folder / "killed", model)
    if rank == 1:
        trainer.model.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        trainer.model.get_decoder().register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
