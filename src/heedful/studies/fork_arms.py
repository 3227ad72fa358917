"""What forks of a run can take away, and what they can give: each arm changes one thing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from heedful.diagnostics.behaviour_metrics import component_of
from heedful.filters import KeepAll, TopP
from heedful.report.record import RunRecord
from heedful.run.config import TrainConfig

NONE = "none"
MOST_REMOVALS = 6
MATTERING_PART = 0.01
"""A component of the reward that is a smaller part of all components is not taken away."""


@dataclass(frozen=True, slots=True)
class ForkArm:
    """One thing that a fork changes."""

    name: str
    kind: Literal["none", "removal", "cure"]
    words: str = ""
    """What is taken away, or given, as "without the filter"."""
    flags: str = ""
    """As typed beside `heedful train --resume RUN --checkpoint N`."""
    parts: tuple[str, ...] = ()
    """Of a removal: the parts of an update that it takes away, as attribution names them."""


def removals(config: TrainConfig, components: Sequence[str]) -> list[ForkArm]:
    """What can be taken away of a run, one thing at a time: at most `MOST_REMOVALS`."""
    algorithm, found = config.algorithm, list[ForkArm]()
    if algorithm.has_bonus:
        flags = "--algorithm.entropy 0 --algorithm.entropy-control constant"
        flags += " --on-collapse warn" * (config.on_collapse == "cut")
        found.append(ForkArm("no_bonus", "removal", "without the entropy bonus", flags, ("entropy",)))
    if algorithm.kl > 0:
        found.append(ForkArm("no_kl", "removal", "without the KL penalty", "--algorithm.kl 0", ("kl",)))
    if not isinstance(config.filter, KeepAll):
        kept = " --loss-scale kept" if config.loss_scale == "rho" else ""
        on = f" --filter.on {shlex.quote(config.filter.on)}" * (
            config.filter.on != KeepAll().on
        )  # dynamic sampling, too
        found.append(ForkArm("no_filter", "removal", "without the filter", f"--filter keep_all{on}{kept}"))
    rate = ForkArm("half_rate", "removal", "at half the learning rate", f"--optimizer.lr {config.optimizer.lr / 2!r}")
    rewards, taken = list[ForkArm](), {arm.name for arm in found}
    for component in components[: MOST_REMOVALS - len(found) - 1]:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"no_{component}")
        while name in taken:  # a reward may be called "bonus"
            name += "_"
        taken.add(name)
        words, flags = f"without the reward for {component}", ",".join([*config.without_rewards, component])
        parts = f"{component}_constant", f"{component}_varied"
        rewards.append(ForkArm(name, "removal", words, shlex.join(["--without-rewards", flags]), parts))
    return [*rewards, *found, rate]


def cures(config: TrainConfig, own: str = "") -> list[ForkArm]:
    """What could be given to a run. `own`: settings of the user's."""
    found = []
    if not (isinstance(config.filter, TopP) and config.filter.on == "outcome") and config.group_size > 1:
        flags = "--filter top_p --filter.on outcome"
        found.append(ForkArm("filter", "cure", "with the filter top_p on the outcome", flags))
    if config.algorithm.kl < 0.1:
        found.append(ForkArm("kl", "cure", "with a KL penalty of .1", "--algorithm.kl 0.1"))
    return [*found, *([ForkArm("own", "cure", f"with {own}", own)] if own else [])]


def components_beside_the_task(run: RunRecord, before: int) -> list[str]:
    """The components of the reward that pay for something else than the outcome, by their means up to a step.

    A component pays for the outcome if its mean is proportional to the success rate at every step. Those that are less
    than a hundredth of all components together are left out. The largest comes first.
    """
    rates = {
        point.step: float(point.number or 0.0) for point in run.get("success/rate").numeric if point.step <= before
    }
    means = {}
    for metric, series in run.series.items():
        if metric.startswith("reward/") and metric != "reward/mean":
            values = {point.step: float(point.number or 0.0) for point in series.numeric}
            means[component_of(metric)] = [values.get(step, 0.0) for step in rates]
    sizes = {name: fmean(map(abs, values)) for name, values in means.items() if values}
    least = MATTERING_PART * sum(sizes.values())
    rate = np.array(list(rates.values()))

    def of_the_task(values: Sequence[float]) -> bool:
        factor = float(rate @ np.array(values)) / (float(rate @ rate) or 1.0)
        return bool(np.allclose(values, factor * rate, rtol=1e-9, atol=1e-12))

    kept = [name for name, size in sizes.items() if size > least and not of_the_task(means[name])]
    return sorted(kept, key=lambda name: -sizes[name])
