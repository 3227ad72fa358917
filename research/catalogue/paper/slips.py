"""Reward variance that is no signal: FrozenLake on ever more slippery ice."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Study, train
from research.catalogue.paper.lean_runs import (
    CURVES,
    FILTERS,
    LEAN,
    SUCCESS,
    WATCHED,
    against_controls,
    effect_against,
    pools_of_filters,
)

SLIPS = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0)

_POOLS = {
    "slip_0_to_0.5": [f"slip_{slip:g}" for slip in SLIPS if slip <= 0.5],
    "slip_0.8_and_1": [f"slip_{slip:g}" for slip in SLIPS if slip > 0.5],
}
"""Where the paper sees a gain, and where it sees none."""


def noise() -> Study:
    """FrozenLake at six slips, with the filter and its two controls, the ceiling and the share of luck beside it."""
    arms = tuple(
        Arm(
            f"slip_{slip:g}_{filter}",
            train("frozen_lake", f"--env.slip {slip} --filter {filter} --steps 49 {LEAN}"),
            level=slip,
            line=filter,
        )
        for slip in SLIPS
        for filter in FILTERS
    )
    return Study(
        "noise",
        "Where does choosing prompts by the spread of their rewards stop to help, as the spread becomes luck?",
        arms,
        seeds=(0, 1, 2),
        pairs=against_controls((*(f"slip_{slip:g}" for slip in SLIPS), *_POOLS)),
        pools=pools_of_filters(_POOLS),
        interactions=effect_against(["slip_0.8_and_1"], base="slip_0_to_0.5"),
        measures=(
            *WATCHED,
            Measure("share of the variance that is luck", "signal/luck_share", "mean"),
            Measure("the same among the prompts kept", "signal/luck_share_kept", "mean"),
            Measure("best possible success", "eval/val/best/success", "first"),
            Measure("random player's success", "eval/val/random/success", "first"),
            Measure("sampled success before", SUCCESS, "first", to_step=0),
        ),
        curves=(*CURVES, "signal/luck_share", "signal/luck_share_kept"),
        dial="slip",
        minutes=2.5,
        notes=(
            "Each slip has a seedling of its own, grown from a solver that plans as if the ice did not slip: about 2.5 "
            "minutes each, six in all. A seed changes tasks, sampling and random choices.",
            "The best possible success is exact for the evaluated tasks. It is found by value iteration, for an agent "
            "that sees the lake before each turn and fixes the actions of a turn beforehand.",
            "Luck: the replies of each episode are played four times more under fresh noise. They do not react to "
            "where the noise leads, and replies that run out count as not solved.",
            "Without slip there is no luck, and its share is not measured.",
        ),
    )
