"""Rewards that pay for more than the outcome: what groups without a spread of outcomes teach, and who drops them."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from research.catalogue.paper.lean_runs import CURVES, LEAN, ONE_OUTCOME, WATCHED

CENTRED = "--algorithm.advantage.no-standardize"
"""Dr. GRPO's advantage: the reward minus the mean of the group, not divided by the group's standard deviation."""

ARMS = {
    "keep_all": "--filter keep_all",
    "random_subset": "--filter random_subset",
    "top_p_outcome": "--filter top_p",
    "top_p_reward": "--filter top_p --filter.on reward",
    "drop_constant_outcome": "--filter drop_constant",
    "drop_constant_reward": "--filter drop_constant --filter.on reward",
    "keep_all_centred": f"--filter keep_all {CENTRED}",
    "top_p_outcome_centred": f"--filter top_p {CENTRED}",
}


def shaped() -> Study:
    """Sokoban without a regulariser: filters on the outcome and on the reward, with advantages standardised or not."""
    arms = tuple(Arm(name, train("sokoban", f"{flags} --steps 33 {LEAN}")) for name, flags in ARMS.items())
    none, random, *others = ARMS
    pairs = [Pair(name, none) for name in (*others, random)]
    pairs += [Pair(name, random) for name in ("top_p_outcome", "top_p_reward")]
    pairs += [
        Pair("top_p_reward", "top_p_outcome"),
        Pair("drop_constant_outcome", "drop_constant_reward"),
        Pair("top_p_outcome_centred", "keep_all_centred"),
        Pair("top_p_outcome_centred", "top_p_outcome"),
    ]
    return Study(
        "shaped",
        "Where rewards pay for more than the outcome, what do groups teach whose episodes all failed?",
        arms,
        seeds=(1, 2, 3),
        pairs=tuple(pairs),
        measures=(
            *WATCHED,
            Measure("advantage of groups with one outcome, at the start", ONE_OUTCOME, "first"),
            Measure("advantage of groups with one outcome", ONE_OUTCOME, "mean"),
            Measure("reward for steps at the start", "reward/step", "first"),
            Measure("reward for steps at the end", "reward/step"),
            Measure("reward at the start", "reward/mean", "first"),
            Measure("reward at the end", "reward/mean"),
            Measure("tokens per reply at the end", "length/response_tokens"),
        ),
        curves=(*CURVES, ONE_OUTCOME, "reward/step", "reward/mean"),
        minutes=7.0,
        notes=(
            "Sokoban pays -0.1 for each executed action, +1 for a box on a target and +10 for the solution. So the "
            "episodes of a group that all failed differ in their actions alone, and the best of them acted least.",
            "Standardised advantages are divided by the group's standard deviation. There the smallest difference "
            "counts as much as the largest. `centred` leaves the division out, as Dr. GRPO does.",
            "A filter `on outcome` looks at solved or not, and drops groups that all failed. A filter `on reward` "
            "looks at the sum of the rewards, in which few groups are constant.",
            "The effect was first seen with seed 0 of `regularised`, which is not used here. keep_all, random_subset "
            "and top_p_outcome have the settings of its coefficient 0.",
            "All runs start from one seedling. A seed changes tasks, sampling and random choices.",
        ),
    )
