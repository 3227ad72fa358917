"""The paper's table of algorithms and environments."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Study, train
from research.catalogue.paper.lean_runs import FILTERS, GREEDY, INFORMATION, SUCCESS, against_controls, effect_against
from research.catalogue.paper.published_table import ALGORITHMS


def algorithms() -> Study:
    """The paper's table: four algorithms, each without a filter, with it, and with as many prompts drawn at random."""
    lean = (
        "--algorithm.minibatches 1 --steps 60 --evaluation.times 2 --evaluation.samples 2 --keep-rollouts evaluations "
        "--checkpoint-every 20 --diagnostics.every 20 --diagnostics.full-every 59 --diagnostics.words 0 "
        "--diagnostics.swapped-rows 0 --diagnostics.any-turn 0"
    )
    arms = tuple(
        Arm(f"{name}_{filter}", train("frozen_lake", f"--algorithm {name} --filter {filter} {lean}"))
        for name in ALGORITHMS
        for filter in FILTERS
    )
    return Study(
        "algorithms",
        "What does choosing prompts by the spread of their rewards give PPO, GRPO, DAPO and Dr. GRPO on FrozenLake?",
        arms,
        seeds=(0, 1, 2),
        pairs=against_controls(ALGORITHMS),
        interactions=effect_against([name for name in ALGORITHMS if name != "grpo"], base="grpo"),
        measures=(
            Measure("gain of sampled success", SUCCESS, "change"),
            Measure("sampled success at the end", SUCCESS),
            Measure("greedy success at the end", GREEDY),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
            Measure("sampled tokens per step", "tokens/collect", "mean"),
            Measure("trained tokens per step", "tokens/update", "mean"),
            Measure("gap per token at the end", f"{INFORMATION}/gap_per_token"),
            Measure("token entropy at the end", "policy/entropy_per_token"),
        ),
        curves=(
            SUCCESS,
            "success/rate",
            "policy/entropy_per_token",
            "filter/kept_ratio",
            f"{INFORMATION}/gap_per_token",
        ),
        minutes=4.0,
        notes=(
            "All runs start from one seedling; a seed changes tasks, sampling and which prompts are drawn at random.",
            "Each algorithm has the settings of its row of the table, at one learning rate and one optimizer step per "
            "batch (the row of PPO takes two): they were not tuned one by one, so compare within an algorithm, not "
            "across.",
            "DAPO draws further prompts until enough groups vary, whatever the filter: its keep_all trains on no "
            "constant group either, and it samples more.",
            "Under keep_all the averages run over constant groups too, so the filter also changes the scale of the "
            "loss, which AdamW divides out; the random subset separates which prompts are kept from how many.",
        ),
    )
