"""A study of seconds, to see the machinery work."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Lead, Measure, Pair, Separation, Study, settings, train
from heedful.studies.jobs import SamplingJob
from research.catalogue.metric_names import INFORMATION, SUCCESS


def smoke() -> Study:
    """Seconds on Echo: both kinds of jobs, a pair, a separation and leads, to see the machinery work."""
    small = (
        "--steps 4 --groups 4 --group-size 4 --evaluation.tasks 16 --evaluation.samples 2 --evaluation.times 3 "
        "--diagnostics.every 1 --diagnostics.full-every 2 --keep-rollouts evaluations --checkpoint-every 1"
    )
    sampled = settings("echo", "--groups 6 --group-size 4 --keep-rollouts none --diagnostics.words 0")
    return Study(
        "smoke",
        "Does the machinery of studies work?",
        (
            Arm("top_p", train("echo", small)),
            Arm("keep_all", train("echo", f"{small} --filter keep_all")),
            Arm("sampled", SamplingJob(sampled, batches=4)),
        ),
        seeds=(0, 1),
        pairs=(Pair("top_p", "keep_all"),),
        measures=(
            Measure("sampled success at the end", SUCCESS),
            Measure("gap per token", f"{INFORMATION}/gap_per_token", "mean"),
            Measure("first step with half of the prompts kept", "filter/kept_ratio", "first_at_least", 0.5),
        ),
        curves=(SUCCESS, "success/rate", f"{INFORMATION}/gap_per_token"),
        separations=(Separation("Trained against sampled", ("keep_all",), ("sampled",)),),
        leads=(Lead("Alarms", ("keep_all",), ("top_p",), SUCCESS, drift_free=10),),
        minutes=0.2,
    )
