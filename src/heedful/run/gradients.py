"""Signal and noise of a run's gradient at a checkpoint: fresh episodes are played, measured and stored.

The run is not changed but for its file of the measurement. Loads torch when it measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval

from heedful.boundary import Count, Threads, settings, to_json
from heedful.run.config import AttributionConfig, Buckets, GradientsConfig, TrainConfig
from heedful.storage import RunFolder
from heedful.training.ranks.parallel import DataParallel
from heedful.types import Group

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.run.parts import Parts


@settings(kw_only=True)
class GradientsSettings:
    """Settings of a measurement of gradients."""

    groups: Annotated[int, Interval(ge=2)] = 64
    """Tasks of the training split."""
    group_size: Annotated[int, Interval(ge=2)] = 16
    """Episodes per task. One half sorts and the other measures, so 8 or more."""
    buckets: Buckets = 6
    """Buckets of reward variance: one for constant groups, the others are quantiles of the rest."""
    memory_mb: Count = 3072
    """Room for all gradients together. Larger ones are projected."""
    at_once: Count = 1024
    """Most episodes played at once: lower it when memory is short."""
    attribution: AttributionConfig = field(default_factory=AttributionConfig)
    seed: int = 0
    """Seed of the tasks and of the sampling noise."""
    threads: Threads | None = None
    """CPU threads. none = as many as the run had."""
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None
    """Device of the computation. none = the run's device."""


def measure_gradients(
    folder: RunFolder, config: TrainConfig, step: int, settings: GradientsSettings, console: Console
) -> None:
    """Play, measure and store at one checkpoint."""
    from heedful.diagnostics.gradient.metrics import gradient_metrics
    from heedful.run.checkpoint import Checkpoint, checkpoints
    from heedful.run.evaluation.held_out import success_metric
    from heedful.run.parts import assemble
    from heedful.run.terminal import GrowthBar, progress_bar
    from heedful.storage import refuse_unwritable, write_gradients

    gradients = GradientsConfig(every=1, buckets=settings.buckets, memory_mb=settings.memory_mb)
    asked = replace(  # of a run in shards, whose checkpoints are whole, this process holds the whole model
        config,
        gradients=gradients,
        diagnostics=replace(config.diagnostics, enabled=False),
        parallel=DataParallel(),
    )
    refuse_unwritable(folder.gradients(step))
    checkpoint = Checkpoint(folder.checkpoint(step), step) if step else None
    origin = next((each.began() for each in checkpoints(folder.path / "checkpoints")), None)
    if checkpoint is not None:
        checkpoint.check("Restore it, or choose another checkpoint.")
    with GrowthBar(console) as bar:
        parts = assemble(asked, bar, checkpoint, began=origin)
    assert parts.gradient_meter is not None
    began = time.perf_counter()
    total = settings.groups * settings.group_size
    with progress_bar(console, f"step {step}: playing {total} episodes") as tell:
        groups = _play(asked, parts, step, settings, tell)
    with progress_bar(console, f"step {step}: gradients of {total} episodes") as tell:
        measured = parts.gradient_meter.measure(groups, tell)
    coefficients = {"kl": config.algorithm.kl, "entropy": parts.learner.entropy_coefficient}
    metrics = gradient_metrics(measured.noise, settings.buckets, coefficients)
    algorithm = to_json(asked)["algorithm"]
    facts = {  # the conditions of the measurement, for the record and the page
        "environment": config.env.name,
        "algorithm": str(algorithm["type"]),
        "task gradient": ", ".join(f"{name} {value}" for name, value in algorithm["advantage"].items()),
        "average": config.algorithm.average,
        "KL": f"{config.algorithm.kl_kind}, coefficient 1 (the run's own: {config.algorithm.kl:g})",
        "reference": "the policy that the run began with",
        "groups": settings.groups,
        "group_size": settings.group_size,
        "buckets": settings.buckets,
        "trajectories": measured.trajectories,
        "parameters": measured.parameters,
        "gradients": "kept whole" if measured.sketched is None else f"projected to {measured.sketched} numbers",
        "seed": settings.seed,
        "threads": config.threads,
        "seconds": round(time.perf_counter() - began, 1),
    }
    write_gradients(folder.gradients(step), step, facts, [*metrics, success_metric("success/rate", groups)])


def _play(
    config: TrainConfig, parts: Parts, step: int, settings: GradientsSettings, tell: Callable[[int, int], None]
) -> list[Group]:
    """Play fresh episodes with rewards shaped as in training, on the run's pool of tasks if it has one."""
    from heedful.envs.common.tagged import in_tags
    from heedful.policies import Weights, open_with
    from heedful.rollout import isolated
    from heedful.run.fresh import fresh_tasks, play_fresh

    env = in_tags(config.env, parts.renderer.tags)
    tasks = fresh_tasks(config, env, "train", settings.groups, "gradients", settings.seed)
    names = ("gradients", settings.seed, step)
    with (
        isolated(env, config.env_workers, config.env_timeout) as played,
        open_with(config.policy, Weights(parts.model, step, parts.saveable)) as source,
    ):
        size, at_once = settings.group_size, settings.at_once
        return play_fresh(config, parts, played, source, tasks, size, *names, at_once=at_once, tell=tell)
