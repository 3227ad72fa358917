"""How to choose prompts: every filter, and how much it keeps, where regularisers pull."""

from __future__ import annotations

from collections.abc import Mapping

from heedful.studies.declaration import Arm, Measure, Pair, Pool, Study, train
from research.catalogue.paper.lean_runs import CURVES, LEAN, WATCHED

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
"""Of the variance that `top_p` keeps."""

COUNTS = (4, 6, 8, 10)
"""Groups of 16 that `top_k` keeps."""

COEFFICIENT = 0.01
"""Of KL and entropy, until `regularised` names the setting of the largest effect."""

_FILTERS: Mapping[str, str] = {
    **{f"top_p_{p:g}": f"top_p --filter.p {p}" for p in SHARES},
    **{f"top_k_{k}": f"top_k --filter.k {k}" for k in COUNTS},
    **{name: name for name in ("min_p", "softmax", "shrunken", "soft_weight")},
    "random_0.5": "random_subset --filter.like top_p --filter.like.p 0.5",
    "random_0.9": "random_subset",
    "keep_all": "keep_all",
}
_POOLS = (
    Pool("top_p_0.8_to_0.98", ("top_p_0.8", "top_p_0.9", "top_p_0.95", "top_p_0.98")),
    Pool("top_p_0.5_and_0.6", ("top_p_0.5", "top_p_0.6")),
    Pool("top_p_0.5_to_0.8", ("top_p_0.5", "top_p_0.6", "top_p_0.7", "top_p_0.8")),
    Pool("top_k_4_to_10", tuple(f"top_k_{k}" for k in COUNTS)),
)
"""The paper's best shares, its worst ones, and two pools that keep about as many prompts: by share and by count."""

_POOLED = (
    Pair("top_p_0.8_to_0.98", "top_p_0.5_and_0.6"),
    Pair("top_p_0.8_to_0.98", "keep_all"),
    Pair("top_p_0.8_to_0.98", "random_0.9"),
    Pair("top_p_0.5_to_0.8", "top_k_4_to_10"),
    Pair("top_k_4_to_10", "keep_all"),
)
_CONTROLS = ("keep_all", "random_0.9")
_FEW = ("top_p_0.5", "top_p_0.7", "top_p_0.9", "top_p_1", "top_k_10", *_CONTROLS)


def selection() -> Study:
    """All filters on FrozenLake, with regularisers in force: success, and the cost of a fixed success."""
    return _selection("selection", "frozen_lake", 49, 0.5, tuple(_FILTERS), minutes=3.0)


def selection_sokoban() -> Study:
    """Shares of `top_p`, one `top_k` and the two controls on Sokoban, with regularisers in force."""
    return _selection("selection_sokoban", "sokoban", 33, 0.2, _FEW, minutes=7.0)


def _selection(name: str, env: str, steps: int, level: float, filters: tuple[str, ...], minutes: float) -> Study:
    pull = f"--algorithm.kl {COEFFICIENT} --algorithm.entropy {COEFFICIENT}"
    shares = {f"top_p_{p:g}": p for p in SHARES}
    arms = tuple(
        Arm(
            filter,
            train(env, f"{pull} --filter {_FILTERS[filter]} --steps {steps} {LEAN}"),
            level=shares.get(filter),
        )
        for filter in filters
    )
    compared = [filter for filter in filters if filter not in (*_CONTROLS, "random_0.5")]
    pairs = [Pair(filter, control) for control in _CONTROLS for filter in compared]
    whole = "random_0.5" in filters  # as many prompts as top_p_0.5
    if whole:
        pairs += [Pair("top_p_0.5", "random_0.5"), *_POOLED]
    else:
        pairs += [Pair("top_p_0.9", "top_k_10")]
    until = f"until success {level:g}"
    return Study(
        name,
        f"Which way to choose prompts gives most success on {env}, and which reaches a fixed one at the least cost?",
        arms,
        seeds=(0, 1, 2),
        pairs=tuple(pairs),
        pools=_POOLS if whole else (),
        measures=(
            *WATCHED,
            Measure(f"trained ids {until}", "tokens/update", "total_until", level, reaches="success/rate"),
            Measure(f"sampled ids {until}", "tokens/collect", "total_until", level, reaches="success/rate"),
            Measure(f"CPU seconds {until}", "time/cpu", "total_until", level, reaches="success/rate"),
            Measure("CPU seconds of a step", "time/cpu", "mean"),
        ),
        curves=CURVES,
        dial="share of the variance that top_p keeps",
        minutes=minutes,
        notes=(
            f"KL to the start and entropy bonus have coefficient {COEFFICIENT:g}, ten times the published one.",
            f"Success {level:g} is that of the training tasks, sampled, averaged over 8 steps (1,024 episodes). A run "
            "that never reaches it has no cost: it is missing from the means, and `reached in` counts the others.",
            "CPU seconds are those of collecting and updating, without evaluations and diagnostics.",
            "top_p 1 keeps every group that varies, and so does drop_constant. top_k keeps what the shares keep about "
            "as many of: compare at equal shares of prompts kept. random_0.5 and random_0.9 draw as many prompts as "
            "top_p .5 and .9 would keep.",
        ),
    )
