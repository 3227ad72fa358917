"""What comes before success falls in ordinary training: runs that are evaluated often, so that a reading can lead."""

from __future__ import annotations

from heedful.studies.catalogue.collapse import OF_COLLAPSE
from heedful.studies.catalogue.metric_names import SUCCESS
from heedful.studies.catalogue.paper.lean_runs import CURVES, LEAN, WATCHED
from heedful.studies.declaration import Arm, Lead, Study, train

_OFTEN = f"--steps 33 {LEAN} --evaluation.times 12 --diagnostics.every 1 --diagnostics.full-every 3"
"""Twelve evaluations, information at every step, and the influence of the thought at every evaluation."""

_CHAIN = "--env.turns 3 --env.least 6 --env.most 8 --algorithm.entropy 0.03 --groups 32 --group-size 4"
"""A setting in which the hunt found a collapse that nobody planted."""

_PUBLISHED = "--algorithm.entropy 0.001 --groups 16"
"""The regulariser of the paper's main table."""

_ARMS = {
    "chain_keep_all": ("chain", f"{_CHAIN} --filter keep_all"),
    "sokoban_keep_all": ("sokoban", f"{_PUBLISHED} --filter keep_all"),
    "chain_top_p": ("chain", f"{_CHAIN} --filter top_p"),
    "sokoban_top_p": ("sokoban", f"{_PUBLISHED} --filter top_p"),
    "frozen_lake_keep_all": ("frozen_lake", f"{_PUBLISHED} --filter keep_all"),
    "math_keep_all": ("math", f"{_PUBLISHED} --filter keep_all"),
}

_LOSING, _LEARNING = tuple(_ARMS)[:2], tuple(_ARMS)[2:]


def early_warning() -> Study:
    """GRPO in two settings that lose success with no cause planted, and in four that gain: evaluated every 3 steps."""
    return Study(
        "early_warning",
        "Does a reading of the thoughts say what success will do, where nobody planted a collapse?",
        tuple(Arm(name, train(env, f"{flags} {_OFTEN}")) for name, (env, flags) in _ARMS.items()),
        seeds=(31, 32, 33, 34),
        measures=WATCHED,
        curves=CURVES,
        leads=(
            Lead("Alarms of collapse", _LOSING, _LEARNING, SUCCESS, alarms=OF_COLLAPSE, drift_free=0),
            Lead("All alarms", _LOSING, _LEARNING, SUCCESS, drift_free=0),
        ),
        minutes=5.0,
        notes=(
            "chain_keep_all and sokoban_keep_all lost success in earlier studies, on other seeds. Nothing in them is "
            "made to collapse: every task is rewarded, and no demonstrated thought is a template.",
            "Twelve evaluations of each run, so that `heedful correlate` can relate a reading to success at the next "
            "one, with success now held fixed.",
            "Among all alarms, success_drop is success itself. So the alarms of collapse are counted alone as well.",
        ),
    )
