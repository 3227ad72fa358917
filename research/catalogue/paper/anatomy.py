"""The paper's picture of the gradient, with a regulariser in force."""

from __future__ import annotations

from heedful.run.gradients import GradientsSettings
from heedful.studies.declaration import Arm, Measure, Study, train
from research.catalogue.paper.lean_runs import FIRST_TURNS, GREEDY, SUCCESS
from research.jobs import GradientsJob

STEPS = 80

FLAGS = (
    f"--algorithm.kl 0.01 --algorithm.entropy 0.01 --steps {STEPS} --filter keep_all --algorithm.minibatches 1 "
    "--checkpoint-every 40 --keep-checkpoints all --keep-rollouts none --evaluation.times 3 --evaluation.samples 2 "
    f"--diagnostics.every 20 --diagnostics.full-every 80 {FIRST_TURNS}"
)

TRENDS = (
    "task_undivided_trend",
    "task_divided_trend",
    "kl_trend",
    "entropy_trend",
    "task_undivided_trend_over_kl",
    "task_undivided_trend_over_entropy",
)


def gradients() -> Study:
    """GRPO and PPO with KL and entropy, and their gradients at the start, in the middle and at the end."""
    measurement = GradientsSettings(groups=128, group_size=16)
    arms = []
    for name in ("grpo", "ppo"):
        job = train("frozen_lake", f"--algorithm {name} {FLAGS}")
        arms.append(Arm(name, job))
        arms.append(
            Arm(
                f"{name}_gradients",
                GradientsJob(job.config, after=name, checkpoints=(0, STEPS // 2, STEPS), measurement=measurement),
            ),
        )
    places = (("start", 0, 0), ("middle", STEPS // 2, STEPS // 2), ("end", STEPS, STEPS))
    return Study(
        "gradients",
        "Does the task gradient climb with the variance of rewards while KL and entropy stay flat?",
        tuple(arms),
        seeds=(0, 1),
        measures=(
            *(
                Measure(f"{trend.replace('_', ' ')}, {place}", f"gradient/all/{trend}", from_step=first, to_step=last)
                for trend in TRENDS
                for place, first, last in places
            ),
            *(
                Measure(f"signal to noise of the task, {place}", "gradient/all/snr", from_step=first, to_step=last)
                for place, first, last in places
            ),
            *(
                Measure(f"{part} gradient of a group, {place}", f"gradient/all/{name}", from_step=first, to_step=last)
                for part, name in (
                    ("task", "task_group_norm"),
                    ("KL", "kl_group_norm"),
                    ("entropy", "entropy_group_norm"),
                )
                for place, first, last in places
            ),
            Measure("sampled success at the end", SUCCESS),
            Measure("greedy success at the end", GREEDY),
        ),
        minutes=9.0,
        keep_checkpoints=True,
        notes=(
            "KL and entropy have the coefficient 0.01, ten times the published one, so that they are in force.",
            "A trend is the slope of the norm of a single group's gradient over its rank by variance, over the mean "
            "norm. 1 = it grows by its mean from the lowest rank to the highest, 0 = flat. Ranked on one half of the "
            "members, measured on the other. Each measurement has its own interval over groups in the runs' pages.",
            "Gradients of KL and entropy are measured with a coefficient of 1. At the start KL is zero: the policy is "
            "its own reference.",
            "PPO takes one optimizer step per batch, as the others do.",
        ),
    )
