"""Studies of models other than seedlings of text: pretrained ones, and ones that see."""

from __future__ import annotations

from heedful.models.cache import SMOLLM2
from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from research.catalogue.paper.lean_runs import GAIN, GREEDY, INFORMATION, SUCCESS


def pretrained() -> Study:
    """SmolLM2 after its warm start: all weights and LoRA, with the filter and without."""
    lean = (
        "--threads 1 --keep-rollouts all --checkpoint-every 5 "
        "--diagnostics.share none --diagnostics.any-turn 0 --diagnostics.swapped-rows 0"
    )
    lora = "--lora.rank 16 --optimizer.lr 5e-4"
    # Each answer of Math is an action of its own, so exchanging thoughts costs more there.
    environments = {"bandit": "", "math": "--diagnostics.grounding-rows 10 --diagnostics.grounding-columns 5"}
    arms = tuple(
        Arm(f"{env}_{name}{end}", train(env, f"{weights} {filter} {lean} {watched}", model=SMOLLM2))
        for env, watched in environments.items()
        for name, weights in (("full", ""), ("lora", lora))
        for end, filter in (("", ""), ("_keep_all", "--filter keep_all"))
    )
    return Study(
        "pretrained",
        "What does RL give a pretrained model after its warm start, and does its reasoning collapse?",
        arms,
        seeds=(0, 1),
        pairs=tuple(Pair(arm.name, f"{arm.name}_keep_all") for arm in arms if not arm.name.endswith("_keep_all")),
        measures=(
            Measure("sampled success before", SUCCESS, "first", to_step=0),
            GAIN,
            Measure("gain of greedy success", GREEDY, "change"),
            Measure("change of mutual information", f"{INFORMATION}/mi", "change"),
            Measure("change of the gap per token", f"{INFORMATION}/gap_per_token", "change"),
            Measure("change of retrieval accuracy", "retrieval/first_turn/accuracy", "change"),
            Measure("change of the influence of the thought", "grounding/thought_influence", "change"),
            Measure("change of the accuracy of a judge of the texts", "text/judge_accuracy", "change"),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
        ),
        curves=(SUCCESS, "success/rate", "policy/entropy_per_token", "filter/kept_ratio"),
        minutes=25.0,
        notes=(
            "Needs the extra smollm2. All runs of an environment start from one warm start of all weights, about a "
            "quarter of an hour on two cores.",
            "LoRA (rank 16) learns with 5e-4, and all weights with 8e-5 on Bandit and 3e-5 on Math.",
        ),
        keep_checkpoints=True,
    )


def visual() -> Study:
    """The same boards as a picture, as text, and as both, with the filter and without."""
    small = "--keep-rollouts evaluations --checkpoint-every 20"
    shown = {
        "image": "",
        "image_and_text": "--env.observation image_and_text",
        "text": "--env.observation both --seedling.vision-width 0",
    }
    arms = tuple(
        Arm(f"{env}_{form}{end}", train(f"{env}_image", f"{small} {flags} {filter}"))
        for env in ("frozen_lake", "sokoban")
        for form, flags in shown.items()
        for end, filter in (("", ""), ("_keep_all", "--filter keep_all"))
    )
    names = [arm.name for arm in arms if not arm.name.endswith("_keep_all")]
    return Study(
        "visual",
        "Does an agent learn from pictures what it learns from text, and does it go on reading them?",
        arms,
        seeds=(0, 1, 2),
        pairs=(
            *(Pair(name, f"{name}_keep_all") for name in names),
            *(Pair(f"{env}_image", f"{env}_text") for env in ("frozen_lake", "sokoban")),
            *(Pair(f"{env}_image_and_text", f"{env}_text") for env in ("frozen_lake", "sokoban")),
        ),
        measures=(
            Measure("sampled success before", SUCCESS, "first", to_step=0),
            GAIN,
            Measure("gain of greedy success", GREEDY, "change"),
            Measure("change of mutual information", f"{INFORMATION}/mi", "change"),
            Measure("gap per token before", f"{INFORMATION}/gap_per_token", "first", to_step=0),
            Measure("change of the gap per token", f"{INFORMATION}/gap_per_token", "change"),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
        ),
        curves=(SUCCESS, "success/rate", f"{INFORMATION}/gap_per_token"),
        minutes=12.0,
        notes=(
            "The seedlings of all arms have the same Llama and the same number of demonstrated episodes. Those of text "
            "have no vision tower.",
        ),
    )
