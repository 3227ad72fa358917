"""Cost and savings of heedful inside verl: CPU seconds of one update, with and without it, in one run.

One session of verl on a CPU plays one batch of FrozenLake's seedling. Then every variant takes the same rows, from the
sampled batch to the updated weights, starting from the same weights and optimizer. The variants take turns. The seconds
are those of the trainer's process and of all workers. Sampling is not among them. Run it with the environment of the
tests:

    PYTHONPATH=src $(.ci/verl-env) benchmarks/verl_overhead.py --repeats 5 --out benchmarks/results/verl_overhead.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "examples" / "verl_on_a_cpu"), str(HERE.parent / "tests" / "integrations" / "verl")]

from cpu_session import composed, prepare, ray_and_queue, trainer_of  # noqa: E402

from heedful_verl.settings import REGISTER  # noqa: E402

ENVIRONMENT = prepare([REGISTER])

import psutil  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import verl  # noqa: E402
from tiny_verl import Session, store  # noqa: E402
from train import settings  # noqa: E402
from verl.trainer.ppo.v1 import PPOTrainer  # noqa: E402

from heedful.boundary import to_json  # noqa: E402
from heedful.envs.common.tasks import TaskStream  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.integrations.watching.observer import Observer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.seedlings.grow import load_seedling  # noqa: E402
from heedful.seedlings.recipe import nano  # noqa: E402
from heedful_verl.tasks import task_rows, write_tasks  # noqa: E402

VARIANTS = ("plain", "keep_all", "filter", "filter_record", "filter_cheap", "filter_full")
"""verl alone; all groups kept and nothing recorded; the filter; with the record; with a cheap or a full measurement."""

NUMBERS = {"filter_cheap": 4, "filter_full": 0}
"""Variant -> the number of the batch, by which the diagnostics decide what is due. Others: 1, when nothing is due."""


def cpu_seconds() -> float:
    """The CPU seconds of this process and of Ray's workers so far."""
    own = psutil.Process()
    workers = [child for child in own.children(recursive=True) if child.name().startswith("ray::")]
    return sum(sum(process.cpu_times()[:2]) for process in [own, *workers])


class Bench:
    """The variants of one session."""

    def __init__(self, session: Session) -> None:
        self.session, self.trainer = session, session.trainer
        self.filter, self.observer = self.trainer._filter, self.trainer.observer
        self.record = self.observer.record, self.observer.tracker

    def run(self, name: str) -> dict[str, float]:
        """CPU and wall seconds of one update, from the sampled batch on."""
        balance = self._prepared(name)
        batch = self.session.batch()
        self.session.restore()
        cpu, wall, metrics = cpu_seconds(), time.perf_counter(), {}
        batch = balance(batch, metrics)
        batch = self.trainer._compute_old_log_prob(batch, metrics)
        batch = self.trainer._compute_advantage(batch, metrics)
        self.trainer._update_actor(batch, metrics)
        return {
            "cpu": cpu_seconds() - cpu,
            "wall": time.perf_counter() - wall,
            "rows": float(len(batch.keys)),
            "kept": float(metrics.get("filter/kept_ratio", 1.0)),
        }

    def _prepared(self, name: str) -> Callable[..., Any]:
        trainer, observer = self.trainer, self.observer
        self.session.set_loss("token-mean", counted=name.startswith("filter"))
        if name == "plain":
            return partial(PPOTrainer._balance_batch, trainer)
        chosen = KeepAll(on=self.filter.on) if name == "keep_all" else self.filter
        trainer._filter = observer.chooses = chosen
        trainer.drops = name != "keep_all"
        recorded = name not in ("keep_all", "filter")
        observer.record, observer.tracker = self.record if recorded else (None, None)
        observer.generation = NUMBERS.get(name, 1)
        return partial(type(trainer)._balance_batch, trainer)


def measured(given: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Variant -> one reading per repeat. The first turn of each warms up and is left out."""
    write_inputs(folder, given.prompts)
    more = [
        f"data.train_batch_size={given.prompts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={given.mini}",
        f"actor_rollout_ref.rollout.n={given.members}",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "heedful.diagnostics.share=null",
    ]
    config = composed([*settings(folder, 1), *more])
    with ray_and_queue(config, ENVIRONMENT, 1):
        trainer, manager = trainer_of(config)
        trainer.fit(manager)
        session = store(trainer, manager, folder, given.prompts)
        trainer.observer = reopened(trainer)
        bench = Bench(session)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for repeat in range(given.repeats + 1):
            order = VARIANTS if repeat % 2 else VARIANTS[::-1]
            for name in order:
                reading = bench.run(name)
                if repeat:
                    found[name].append(reading)
                print(f"{repeat} {name}: {reading}", flush=True)
        return found


def write_inputs(folder: Path, prompts: int) -> None:
    """The smallest seedling of FrozenLake, which grows in a minute, and a task file."""
    env = FrozenLake(instructions="brief")
    _, _, model = load_seedling(nano(), env, to_json(env), Tags(), lambda *progress: None)
    shutil.copytree(str(model), folder / "model")
    for split in ("train", "val"):
        write_tasks(folder / f"{split}.parquet", task_rows(env, TaskStream(env, split, 0).next(2 * prompts)))


def reopened(trainer: Any) -> Observer:
    """The observer with its record open again: `fit` closes it."""
    trainer._begun, trainer._resumed = False, None
    trainer._begin_record()
    return trainer.observer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--mini", type=int, default=2, help="prompts of a mini-batch; verl fills up to whole ones")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(given, Path(folder))
    summary = {
        "settings": {"prompts": given.prompts, "members": given.members, "mini": given.mini, "repeats": given.repeats},
        "versions": {"verl": verl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "readings": found,
    }
    if given.out:
        given.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    plain = statistics.median(reading["cpu"] for reading in found["plain"])
    for name, readings in found.items():
        cpu = [reading["cpu"] for reading in readings]
        print(
            f"{name:>14}: CPU s {statistics.median(cpu):.2f} ({min(cpu):.2f}, {max(cpu):.2f}), against plain "
            f"{statistics.median(cpu) / plain:.2f}, rows {readings[0]['rows']:.0f}, kept {readings[0]['kept']:.2f}"
        )


if __name__ == "__main__":
    main()
