"""Sokoban without a filter: does the split of updates name what takes success, where readings of thoughts see nothing?

The cause is known: GRPO divides advantages by the deviation of a group, so groups that failed alike teach to act less
(docs/results/shaped.md). The runs are those of the registered test 5 of rightness.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from heedful.console import SafeConsole
from heedful.diagnostics.attribution import BEFORE, EXPLAINED, MEASURED, TOTAL
from heedful.run.attribution import attribute_update
from heedful.run.config import AttributionConfig, read_config
from heedful.storage import StoredGradients, read_gradients
from heedful.studies.paired import clopper_pearson
from heedful.types import Metric
from research.rightness.falls import falling_runs
from research.rightness.figures import Figure, Result, figure, figure_of
from research.rightness.registered import Registered
from research.rightness.trained import Trained

CAUSE = "step_constant"
"""The reward for executed actions, in groups of one outcome."""
STEPS = (2, 4, 6)
"""The updates that are judged."""
LATER = (10, 14)
"""Updates that are split where time is left, and judge nothing."""
UNNAMED = ("carried", "decay", BEFORE, TOTAL, MEASURED, EXPLAINED)
"""No candidates: what carries no name of a term, and what is no part."""
ASKED = AttributionConfig(prompts=108, thoughts=4, blocks=12)
SHAPED = "policy/advantage_without_outcome"

REGISTERED = Registered(
    "Sokoban without a filter: the parts of success",
    "For each seed the parts of success in the updates of steps 2, 4 and 6 are added up, each part over the three "
    "updates. Their half intervals are added in quadrature. A seed names its cause if the part with the lowest sum is "
    "`step_constant` and the interval of that sum is below 0. Passes if 3 of 3 seeds name it. A part is that of the "
    "step's own gradient. `carried` and `decay` are no candidates.",
    "Passes. Lowest beside it: `step_varied`, about a third of it. `solved_varied` is the largest positive part. The "
    "parts of the gap say nothing: no part of it that is clear of 0 is negative in all three seeds.",
    "The runs of test 5 of rightness. 108 fresh held-out tasks x 4 episodes for each update, in 12 blocks: with 72, a "
    "look at step 2 of another seed (900) read -.002 +- .003 for the cause. Cut: steps 2, 4 and 6 are judged in place "
    "of 2 to 16, since the rule speaks of the time before step 8. Steps 10 and 14 follow where time is left. No moment "
    "of single terms: they cost as much as the training itself: what earlier gradients carry has no name.",
    (41, 42, 43),
)


def unfiltered(seeds: Sequence[int], runs: Path, until: float, small: bool = False) -> Result:
    """The study. `runs`: the folder of the runs of test 5."""
    found = falling_runs(seeds, runs, until, small)
    asked = AttributionConfig(prompts=6, thoughts=2, blocks=3) if small else ASKED
    for step in (*STEPS, *LATER):
        for run in found:
            wanted = step < read_config(run.folder).steps and not run.folder.attribution(step).exists()
            if wanted and time.time() < until:
                # The seed of the fresh tasks is the step: other tasks for every update.
                attribute_update(run.folder, read_config(run.folder), step, asked, step, SafeConsole(quiet=True))
    return judged([run for run in found if all(run.folder.attribution(step).exists() for step in STEPS)])


def judged(runs: Sequence[Trained]) -> Result:
    """Whether every run names the cause."""
    figures, named = [figure("runs", len(runs))], 0
    for run in runs:
        stored = [read_gradients(run.folder.attribution(step)) for step in STEPS]
        for reading in ("success", "gap"):
            sums = added(reading, stored)
            lowest = min(sums, key=lambda part: float(sums[part].value or 0.0))
            clear = [part for part, metric in sums.items() if (metric.high or 0.0) < 0]
            if reading == "success":
                named += lowest == CAUSE and CAUSE in clear
            note = f"lowest: {lowest}; clear of 0 and negative: {', '.join(clear) or 'none'}"
            figures.append(figure(f"seed {run.seed}, {reading}: parts", len(sums), note=note))
            whole = added(reading, stored, (TOTAL, MEASURED))
            figures += [
                figure_of(f"seed {run.seed}, {reading}: {part}", metric) for part, metric in {**sums, **whole}.items()
            ]
        for step in (*STEPS, *LATER):
            if run.folder.attribution(step).exists():
                parts = added("success", [read_gradients(run.folder.attribution(step))])
                lowest = min(parts, key=lambda part: float(parts[part].value or 0.0))
                figures.append(
                    figure_of(f"seed {run.seed}, step {step}: lowest part of success, {lowest}", parts[lowest])
                )
        shares = [line.metrics[SHAPED].value for line in run.lines if line.step in STEPS and SHAPED in line.metrics]
        mean = sum(float(value or 0.0) for value in shares) / len(shares)
        figures.append(figure(f"seed {run.seed}: part of |advantage| from groups of one outcome", mean, len(shares)))
    low, high = clopper_pearson(named, len(runs)) if runs else (None, None)
    figures.append(Figure("runs that name the cause", named, len(runs), low, high))
    return Result(named == len(runs) if len(runs) == len(REGISTERED.seeds) else None, figures)


def added(reading: str, updates: Sequence[StoredGradients], parts: Sequence[str] = ()) -> dict[str, Metric]:
    """Part -> its sum over updates with independent fresh thoughts; their half intervals are added in quadrature.

    `parts`: by default all that are parts of a term. A part that an update lacks is 0 there.
    """
    prefix = f"attribution/{reading}/"
    names = parts or [
        part
        for part in dict.fromkeys(
            name.removeprefix(prefix) for one in updates for name in one.metrics if name.startswith(prefix)
        )
        if part not in UNNAMED
    ]
    return {
        part: summed(part, [one.metrics[prefix + part] for one in updates if prefix + part in one.metrics])
        for part in names
    }


def summed(name: str, found: Sequence[Metric]) -> Metric:
    """The sum of independent readings. Their half intervals are added in quadrature."""
    value = sum(float(each.value or 0.0) for each in found)
    half = math.hypot(*((each.high - each.low) / 2 for each in found if each.high is not None and each.low is not None))
    return Metric(name, value, sum(each.n or 0 for each in found), value - half, value + half)
