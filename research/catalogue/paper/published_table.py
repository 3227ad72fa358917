"""The paper's table: four algorithms on FrozenLake and on further environments, and sizes of the model."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Study, train
from research.catalogue.paper.lean_runs import (
    CURVES,
    FILTERS,
    FIRST_TURNS,
    GAIN,
    GREEDY,
    INFORMATION,
    LEAN,
    ONE_OUTCOME,
    SUCCESS,
    WATCHED,
    against_controls,
    effect_against,
    pools_of_filters,
)

ALGORITHMS = ("ppo", "grpo", "dapo", "dr_grpo")

SIZES = {
    "0.13M": "--seedling.hidden 64 --seedling.layers 2 --seedling.heads 2 --seedling.kv-heads 1 --seedling.ffn 192 "
    "--seedling.lr 4e-3",
    "0.85M": "",
    "3M": "--seedling.hidden 256 --seedling.heads 8 --seedling.kv-heads 4 --seedling.ffn 704 --seedling.lr 1.5e-3",
    "10M": "--seedling.hidden 384 --seedling.layers 6 --seedling.heads 8 --seedling.kv-heads 4 --seedling.ffn 1024 "
    "--seedling.lr 1e-3",
}
"""Parameters -> recipe. Larger models grow at lower rates, on as many demonstrations."""

_PUBLISHED = "--algorithm.entropy 0.001"
"""The regulariser of the paper's main table."""


def algorithms() -> Study:
    """The paper's table: four algorithms, each without a filter, with it, and with as many prompts drawn at random."""
    lean = (
        "--algorithm.minibatches 1 --steps 60 --evaluation.times 2 --evaluation.samples 2 --keep-rollouts evaluations "
        f"--checkpoint-every 20 --diagnostics.every 20 --diagnostics.full-every 59 {FIRST_TURNS}"
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
            GAIN,
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


def matrix() -> Study:
    """The paper's table on Sokoban, Math and Countdown; FrozenLake is in `algorithms`."""
    steps = {"sokoban": 33, "math": 33, "countdown": 33}
    stems = {f"{env}_{name}": (env, name) for env in steps for name in ALGORITHMS}
    pools = {env: [f"{env}_{name}" for name in ALGORITHMS] for env in steps}
    arms = tuple(
        Arm(
            f"{stem}_{filter}",
            train(
                env,
                f"--algorithm {name} --algorithm.minibatches 1 {_PUBLISHED} --filter {filter} --groups 16 "
                f"--steps {steps[env]} {LEAN} --evaluation.tasks 200",
            ),
        )
        for stem, (env, name) in stems.items()
        for filter in FILTERS
    )
    return Study(
        "matrix",
        "What does choosing prompts by the spread of their rewards give four algorithms beyond FrozenLake?",
        arms,
        seeds=(0, 1, 2),
        pairs=against_controls((*stems, *pools)),
        measures=(*WATCHED, Measure("advantage of groups with one outcome", ONE_OUTCOME, "mean")),
        pools=pools_of_filters(pools),
        interactions=tuple(
            each
            for env in steps
            for each in effect_against([f"{env}_{name}" for name in ALGORITHMS if name != "grpo"], base=f"{env}_grpo")
        ),
        curves=(*CURVES, ONE_OUTCOME),
        minutes=7.0,
        notes=(
            "An entropy bonus of 0.001 and no KL penalty, as in the paper's main table.",
            "Each algorithm has the settings of its row of the table, at the preset's learning rate and one optimizer "
            "step per batch. They were not tuned one by one: compare within an algorithm, not across.",
            "DAPO draws further prompts until enough groups vary, whatever the filter: its keep_all trains on no "
            "constant group either, and it samples more.",
            "random_subset draws as many prompts as top_p (p = .9) would keep of the same batch.",
        ),
    )


def sizes() -> Study:
    """GRPO on seedlings of 0.13 to 10 million parameters, with the filter and its two controls."""
    steps = {"frozen_lake": 33, "math": 33}
    stems = {f"{env}_{size}": (env, size) for env in steps for size in SIZES}
    pools = {env: [f"{env}_{size}" for size in SIZES] for env in steps}
    pools |= {f"{env}_up_to_3M": of_all[:-1] for env, of_all in pools.items()}
    arms = tuple(
        Arm(
            f"{stem}_{filter}",
            train(env, f"{SIZES[size]} {_PUBLISHED} --filter {filter} --groups 16 --steps {steps[env]} {LEAN}".strip()),
            level=float(size.removesuffix("M")),
            line=f"{env} {filter}",
        )
        for stem, (env, size) in stems.items()
        for filter in FILTERS
    )
    return Study(
        "sizes",
        "Does what the filter gives depend on the size of the model?",
        arms,
        seeds=(0, 1, 2),
        pairs=against_controls((*stems, *pools)),
        measures=WATCHED,
        pools=pools_of_filters(pools),
        interactions=tuple(each for env in steps for each in effect_against([f"{env}_10M"], base=f"{env}_up_to_3M")),
        curves=CURVES,
        dial="million parameters",
        minutes=3.3,
        notes=(
            "Each size has one seedling per environment, grown on as many demonstrations at a lower rate "
            "the larger it is. The rate of reinforcement learning is the preset's for all.",
            "An entropy bonus of 0.001 and no KL penalty, as in the paper's main table.",
        ),
    )
