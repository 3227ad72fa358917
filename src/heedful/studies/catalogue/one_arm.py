"""The study of one configuration over several seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from heedful.algorithms.table import ALGORITHMS
from heedful.boundary import Choice
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Measure, Study
from heedful.studies.jobs import TrainingJob
from research.catalogue.metric_names import INFORMATION


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
