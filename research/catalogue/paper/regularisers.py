"""The paper's mechanism: regularisers that pull on every prompt, with and without the filter."""

from __future__ import annotations

from heedful.studies.declaration import Arm, Measure, Pair, Study, train
from research.catalogue.paper.lean_runs import (
    CURVES,
    FILTERS,
    LEAN,
    WATCHED,
    against_controls,
    effect_against,
    pools_of_filters,
)

COEFFICIENTS = (0.0, 0.001, 0.01, 0.03)
"""Of the KL penalty and of the entropy bonus: none, the published value, ten and thirty times that."""

_STEPS = {"frozen_lake": 49, "sokoban": 33, "chain": 33}


def regularised() -> Study:
    """KL to the start and an entropy bonus, both at four strengths, on three environments, in three ways to choose."""
    stems = {
        f"{env}_{coefficient:g}": (env, coefficient, f"--algorithm.kl {coefficient} --algorithm.entropy {coefficient}")
        for env in _STEPS
        for coefficient in COEFFICIENTS
    }
    arms = tuple(
        Arm(
            f"{stem}_{filter}",
            train(env, f"{flags} --filter {filter} --steps {_STEPS[env]} {LEAN}"),
            level=coefficient,
            line=f"{env} {filter}",
        )
        for stem, (env, coefficient, flags) in stems.items()
        for filter in FILTERS
    )
    none, *strengths = COEFFICIENTS
    most = strengths[-1]
    pools = {f"{env}_pulled": [f"{env}_{c:g}" for c in strengths] for env in _STEPS}
    harm = tuple(Pair(f"{env}_{c:g}_keep_all", f"{env}_{none:g}_keep_all") for env in _STEPS for c in strengths)
    return Study(
        "regularised",
        "Does choosing prompts by the spread of their rewards help where regularisers pull on prompts without signal?",
        arms,
        seeds=(0, 1, 2),
        pairs=(*against_controls((*stems, *pools)), *harm),
        pools=pools_of_filters(pools),
        interactions=tuple(
            each
            for env in _STEPS
            for each in effect_against((f"{env}_{most:g}", f"{env}_pulled"), base=f"{env}_{none:g}")
        ),
        measures=(*WATCHED, Measure("KL to the start at the end", "policy/kl_to_reference")),
        curves=CURVES,
        dial="coefficient of KL and entropy",
        minutes=2.5,
        notes=(
            "The KL penalty (k2) pulls towards the policy before the first update. The entropy bonus is in nats per "
            "token. Both have the same coefficient, 0.001 in the paper, whose main table has the bonus alone.",
            "A dropped group enters no term of the loss. So the filter removes the regularisers' pull on the prompts "
            "that it drops, as the paper asks. What remains is averaged over the kept groups.",
            "random_subset draws as many prompts as top_p (p = .9) would keep of the same batch. It loses as much of "
            "the regularisers, and separates which prompts are kept from how many.",
            "All runs of an environment start from one seedling. A seed changes tasks, sampling and random choices.",
            "The pools named `pulled` are the three strengths above 0 together.",
            "KL to the start is measured only where it is in the loss, on the prompts that are trained on: of top_p "
            "these are the ones that it keeps.",
        ),
    )
