"""What the studies of the paper's claims share: lean runs, three ways to choose prompts, and what is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heedful.studies.declaration import Interaction, Measure, Pair, Pool

SUCCESS = "eval/val/sampled/success"
GREEDY = "eval/val/greedy/success"
INFORMATION = "information/first_turn"
ONE_OUTCOME = "policy/advantage_without_outcome"

FIRST_TURNS = "--diagnostics.words 0 --diagnostics.swapped-rows 0 --diagnostics.any-turn 0"
"""Thoughts of first turns alone are scored, and the values of their tokens are not stored."""

LEAN = (
    "--keep-rollouts evaluations --checkpoint-every 20 --evaluation.times 3 --evaluation.tasks 256 "
    f"--evaluation.samples 2 --diagnostics.every 4 --diagnostics.full-every 16 {FIRST_TURNS}"
)
"""Three evaluations, and information every 4 steps, in full every 16: a run of 16 k + 1 steps ends with a full reading.
Training episodes are not stored."""

FILTERS = ("top_p", "keep_all", "random_subset")
"""The filter and its two controls. `random_subset` draws as many prompts as `top_p` would keep of the same batch."""

GAIN = Measure("gain of sampled success", SUCCESS, "change")

WATCHED = (
    GAIN,
    Measure("gain of greedy success", GREEDY, "change"),
    Measure("sampled success at the end", SUCCESS),
    Measure("greedy success at the end", GREEDY),
    Measure("mutual information at the end", f"{INFORMATION}/mi"),
    Measure("change of mutual information", f"{INFORMATION}/mi", "change"),
    Measure("gap per token at the end", f"{INFORMATION}/gap_per_token"),
    Measure("change of the gap per token", f"{INFORMATION}/gap_per_token", "change"),
    Measure("influence of the thought at the end", "grounding/thought_influence"),
    Measure("change of the influence of the thought", "grounding/thought_influence", "change"),
    Measure("token entropy at the end", "policy/entropy_per_token"),
    Measure("entropy given the prompt at the end", f"{INFORMATION}/entropy_conditional_per_token"),
    Measure("valid replies at the end", "format/valid_rate"),
    Measure("share of prompts kept", "filter/kept_ratio", "mean"),
    Measure("variance of rewards", "signal/reward_variance", "mean"),
    Measure("trained tokens per step", "tokens/update", "mean"),
)

CURVES = (
    SUCCESS,
    "success/rate",
    f"{INFORMATION}/mi",
    f"{INFORMATION}/gap_per_token",
    "grounding/thought_influence",
    "policy/entropy_per_token",
    "filter/kept_ratio",
    "signal/reward_variance",
)


def against_controls(stems: Iterable[str]) -> tuple[Pair, ...]:
    """For each setting, named `STEM_FILTER`: the filter against no filter, and against as many prompts at random."""
    filter, *controls = FILTERS
    return tuple(Pair(f"{stem}_{filter}", f"{stem}_{control}") for stem in stems for control in controls)


def effect_against(stems: Iterable[str], base: str) -> tuple[Interaction, ...]:
    """Does the filter, against no filter, give more in settings than in the setting `base`? Arms: `STEM_FILTER`."""

    def effect(stem: str) -> Pair:
        return Pair(f"{stem}_{FILTERS[0]}", f"{stem}_{FILTERS[1]}")

    return tuple(Interaction(effect(stem), effect(base)) for stem in stems)


def pools_of_filters(stems: Mapping[str, Iterable[str]]) -> tuple[Pool, ...]:
    """Pool -> its settings: for each filter one pool of all its arms, named `POOL_FILTER`."""
    return tuple(
        Pool(f"{name}_{filter}", tuple(f"{stem}_{filter}" for stem in of_pool))
        for name, of_pool in stems.items()
        for filter in FILTERS
    )
