"""Studies of models that see."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from research.catalogue.paper.lean_runs import GREEDY, INFORMATION, SUCCESS


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
            Measure("gain of sampled success", SUCCESS, "change"),
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
