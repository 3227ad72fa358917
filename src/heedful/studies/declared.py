"""The studies that heedful declares itself: one configuration over several seeds, and a quick look."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from heedful.algorithms.table import ALGORITHMS
from heedful.boundary import Choice
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from heedful.studies.jobs import TrainingJob

INFORMATION = "information/first_turn"


def several_seeds(config: TrainConfig, seeds: Sequence[int]) -> Study:
    """The study of `heedful train ENV --seeds 0,1,2`: one arm, and what training gains."""
    split, algorithm = config.evaluation.split, Choice(ALGORITHMS).name_of(type(config.algorithm))
    measures = []
    for kind in ("sampled", "greedy"):
        metric = f"eval/{split}/{kind}/success"
        measures += [
            Measure(f"{kind} before", metric, "first", to_step=0),
            Measure(f"{kind} after", metric, from_step=1),
            Measure(f"{kind} gain", metric, "change"),
        ]
    return Study(
        re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{config.env.name}-{algorithm}").lstrip("_.-"),
        f"What does training with {algorithm} gain on held-out tasks of {config.env.name}?",
        (Arm("run", TrainingJob(replace(config, seed=0))),),
        tuple(seeds),
        measures=tuple(measures),
        curves=(
            f"eval/{split}/sampled/success",
            "success/rate",
            f"{INFORMATION}/mi",
            f"{INFORMATION}/gap_per_token",
            "policy/entropy_per_token",
            "filter/kept_ratio",
        ),
        notes=(
            "Gains are paired by task: the same held-out tasks are played before and after training.",
            "All seeds start from one warm start; a seed changes tasks, sampling and random choices.",
        ),
        keep_checkpoints=True,
        flat=True,
    )


def smoke() -> Study:
    """Seconds on Echo: two arms and a pair, to see the machinery work."""
    small = (
        "--steps 4 --groups 4 --group-size 4 --evaluation.tasks 16 --evaluation.samples 2 --evaluation.times 3 "
        "--diagnostics.every 1 --diagnostics.full-every 2 --keep-rollouts evaluations --checkpoint-every 1"
    )
    return Study(
        "smoke",
        "Does the machinery of studies work?",
        (
            Arm("top_p", train("echo", small)),
            Arm("keep_all", train("echo", f"{small} --filter keep_all")),
        ),
        seeds=(0, 1),
        pairs=(Pair("top_p", "keep_all"),),
        measures=(
            Measure("sampled success at the end", "eval/val/sampled/success"),
            Measure("gap per token", f"{INFORMATION}/gap_per_token", "mean"),
            Measure("first step with half of the prompts kept", "filter/kept_ratio", "first_at_least", 0.5),
        ),
        curves=("eval/val/sampled/success", "success/rate", f"{INFORMATION}/gap_per_token"),
        minutes=0.2,
    )
