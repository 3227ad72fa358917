"""The generated runs of `benchmarks.layouts`: written as trainers write theirs, and read back by audits."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest
from audit_watching import read

from benchmarks.layouts import LAYOUTS, write_run
from benchmarks.scalar_series import HEALTHY, PROMPTS, sampled
from heedful.auditing.scalars import History, mapped, scalar_rows
from heedful.auditing.settings import AuditSettings

LOGS = Path(__file__).parent / "fixtures" / "scalars"
SERIES = replace(HEALTHY, members=4, norm=lambda step, since: math.nan if step == 5 else 0.4)
DRAWN = list(sampled(SERIES, 7, 6))
OTHERWISE = {
    # The reward of an evaluation has a part for the format, and the distance of log-probabilities is no divergence.
    "TRL": {"trainer/validation", "trainer/mismatch"},
    # It counts groups whose rewards are all 0 or all 1, and whole tokens.
    "prime-rl": {"trainer/zero_std", "trainer/length"},
}


@pytest.mark.parametrize(("kind", "way"), product(LAYOUTS, (0, 1)))
def test_a_generated_run_reads_back_in_every_layout(kind: str, way: int, tmp_path: Path) -> None:
    layout = LAYOUTS[kind]._replace(scalars=(LAYOUTS[kind].scalars[way],) * 2)
    log, scalars = write_run(tmp_path, layout, SERIES, 7, steps=6)
    history = History.of([scalars], mapped(layout.map))
    _, steps, faults = read(log, AuditSettings())
    told = {}
    for step in (step for step in steps if not history.is_evaluation(step)):
        members = [member for group in step.groups for member in group.trajectories]
        rewards, outcomes = [each.reward or 0.0 for each in members], [each.outcome for each in members]
        told[step.number - layout.origin] = [fmean(rewards), fmean(outcomes), len(step.groups)]
    assert faults.count == 0
    for at, drawn in enumerate(DRAWN):
        if kind == "TRL" and "trainer/validation" in drawn.values:
            assert at not in told  # an evaluation wrote over it
        else:
            assert told[at] == pytest.approx([drawn.rewards_PG.mean(), drawn.right_PG.mean(), PROMPTS])
        found = history.steps[at + layout.origin]
        same = (found.keys() & drawn.values.keys()) - OTHERWISE.get(kind, set())
        assert "trainer/mismatch" in found
        assert {"trainer/reward", "trainer/grad_norm", "trainer/entropy"} <= same
        assert {name: found[name] for name in same} == pytest.approx(
            {name: drawn.values[name] for name in same}, rel=1e-3, nan_ok=True
        )


def test_keys_of_scalars_are_those_that_the_trainers_wrote(tmp_path: Path) -> None:
    for kind, real, more in (
        ("TRL", LOGS / "trainer_state.json", {"sampling/sampling_logp_difference/mean"}),  # with vLLM alone
        ("verl", LOGS / "verl_console.txt", {"actor/pg_loss"}),  # not in this sample
    ):
        _, scalars = write_run(tmp_path / kind, LAYOUTS[kind], SERIES, 8, steps=6)
        theirs, ours = ({key for row in scalar_rows(file) for key in row.values} for file in (real, scalars))
        assert {key.replace("/sums/", "/stock/") for key in ours} - theirs == more
