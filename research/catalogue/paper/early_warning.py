"""What comes before success falls in ordinary training: runs that are evaluated often, so that a reading can lead."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Study, train
from research.catalogue.collapse import OF_COLLAPSE
from research.catalogue.paper.lean_runs import CURVES, GREEDY, LEAN, WATCHED
from research.detector.early_warning import Lead

_OFTEN = f"--steps 33 {LEAN} --evaluation.times 12 --diagnostics.every 1 --diagnostics.full-every 3"
"""Twelve evaluations, information at every step, and the influence of the thought at every evaluation."""

_PUBLISHED = "--algorithm.entropy 0.001 --groups 16"
"""The regulariser of the paper's main table."""

_ARMS = {
    "sokoban_keep_all": ("sokoban", "keep_all"),
    "sokoban_top_p": ("sokoban", "top_p"),
    "frozen_lake_keep_all": ("frozen_lake", "keep_all"),
    "math_keep_all": ("math", "keep_all"),
}

_LOSING, _LEARNING = tuple(_ARMS)[:1], tuple(_ARMS)[1:]


def early_warning() -> Study:
    """GRPO in a setting that loses success with no cause planted, and in three that gain: evaluated every 3 steps."""
    return Study(
        "early_warning",
        "Does a reading of the thoughts say what success will do, where nobody planted a collapse?",
        tuple(
            Arm(name, train(env, f"{_PUBLISHED} --filter {filter} {_OFTEN}")) for name, (env, filter) in _ARMS.items()
        ),
        seeds=(31, 32, 33),
        measures=WATCHED,
        curves=CURVES,
        outcomes=(
            Lead("Alarms of collapse", _LOSING, _LEARNING, GREEDY, alarms=OF_COLLAPSE, drift_free=0),
            Lead("All alarms", _LOSING, _LEARNING, GREEDY, drift_free=0),
        ),
        minutes=6.0,
        notes=(
            "sokoban_keep_all lost success in earlier studies, on other seeds. Nothing there is made to collapse: "
            "every task is rewarded, and no thought is a template at the start.",
            "Chain is not among the arms. Where it collapses with no cause planted, too few episodes are solved at the "
            "start for success to fall. `detector` has it, with the causes planted and as many evaluations.",
            "Twelve evaluations of each run, so that `heedful correlate` can relate a reading to success at the next "
            "one, with success now held fixed.",
            "Among all alarms, success_drop is success itself. So the alarms of collapse are counted alone as well.",
            "The fall is one of greedy success. Sampled success on Sokoban begins at .13, and can hardly fall by 10 "
            "points beyond its noise.",
        ),
    )
