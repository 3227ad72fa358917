"""A hunt for a collapse that nobody planted, and its candidates again on fresh seeds, with their controls."""

from __future__ import annotations

import itertools

from heedful.studies.declaration import Arm, Pair, Pool, Study, train
from research.catalogue.paper.lean_runs import CURVES, FILTERS, INFORMATION, LEAN, WATCHED
from research.detector.candidates import Hunt
from research.factorial import Factor, Factorial

_STEPS = 33

_ENVIRONMENTS = {
    "chain": ("--env.turns 3", "--env.turns 3 --env.least 6 --env.most 8", "1.5e-4", "6e-4"),
    "sokoban": ("", "--env.shortest 6", "8e-5", "3.2e-4"),
    "math": ("", "--env.largest 20", "1e-4", "4e-4"),
}
"""Environment -> flags of the preset's difficulty and of a harder one, the preset's learning rate and four times it."""

_LEVELS = (0, 1)

_FRESH = (11, 12, 13, 14)
"""Seeds on which candidates are repeated."""

_CANDIDATES = ("l0_d1_g0", "l1_d0_g0", "l1_d1_g1")
"""The settings on Chain that collapsed in the hunt: all with the higher entropy bonus and without a filter."""


_CONTROLLED = (("top_p", "keep_all"), ("top_p", "random_subset"), ("lower_bonus", "keep_all"))


def natural() -> Study:
    """Half of a grid of two levels: regulariser x learning rate x difficulty x group size x filter, on three."""
    arms = tuple(
        _arm(env, entropy, rate, difficulty, group)
        for env in _ENVIRONMENTS
        for entropy, rate, difficulty, group in itertools.product(_LEVELS, repeat=4)
    )
    return Study(
        "natural",
        "Does reasoning collapse from a healthy start, where nobody planted a cause?",
        arms,
        seeds=(0,),
        measures=WATCHED,
        curves=CURVES,
        outcomes=(
            Hunt(
                "Collapse that nobody planted",
                (f"{INFORMATION}/mi", "grounding/thought_influence"),
                fresh_seeds=_FRESH,
            ),
            *map(_factorial, _ENVIRONMENTS),
        ),
        minutes=4.0,
        notes=(
            "Names: entropy bonus 0.001 or 0.03 (e), the preset's learning rate or four times it (l), the preset's "
            "difficulty or a harder one (d), 32 groups of 4 or 8 of 16 (g), keep_all or top_p (f).",
            "48 of 96 settings: the filter follows from the other four, so that all effects of one setting and of two "
            "can be told apart (a half fraction of resolution V).",
            "A candidate has lost a third of its start, in the mean of two readings, while 90% of the replies are "
            "valid, and more than two standard errors. Influence is read every 8 steps, and MI every 4.",
            "No KL penalty, which would hold the policy at the start. Every task is rewarded, and no demonstrated "
            "thought is a template.",
            "The share of candidates is that of this grid, not of all runs that people make.",
        ),
    )


def natural_repeated() -> Study:
    """The candidates of the hunt on fresh seeds, beside the filter, as many random prompts, and a lower bonus."""
    arms = [
        Arm(f"{stem}_{control}", train("chain", f"{_flags('chain', entropy, *levels)} --filter {filter}"))
        for stem, levels in zip(_CANDIDATES, ((0, 1, 0), (1, 0, 0), (1, 1, 1)), strict=True)
        for control, entropy, filter in (
            *((name, 1, name) for name in FILTERS),
            ("lower_bonus", 0, "keep_all"),
        )
    ]
    return Study(
        "natural_repeated",
        "Do the collapses that the hunt found come again on fresh seeds, and what prevents them?",
        tuple(arms),
        seeds=_FRESH,
        pairs=tuple(Pair(f"{stem}_{arm}", f"{stem}_{control}") for stem in _CANDIDATES for arm, control in _CONTROLLED)
        + tuple(Pair(arm, control) for arm, control in _CONTROLLED),
        measures=WATCHED,
        pools=tuple(
            Pool(control, tuple(f"{stem}_{control}" for stem in _CANDIDATES)) for control in (*FILTERS, "lower_bonus")
        ),
        curves=CURVES,
        outcomes=(Hunt("Collapse on fresh seeds", (f"{INFORMATION}/mi", "grounding/thought_influence")),),
        minutes=3.5,
        notes=(
            "Three settings of Chain, named as in `natural`: learning rate (l), difficulty (d), groups (g). Entropy "
            "bonus 0.03, and 0.001 in the arms lower_bonus, which have no filter.",
            "The settings were chosen by the hunt on seed 0. These seeds were not.",
            "No KL penalty. Every task is rewarded, and no demonstrated thought is a template.",
        ),
    )


def candidate_flags() -> dict[str, str]:
    """The settings of the candidates, by name, with the higher bonus and without a filter's name."""
    levels = zip(_CANDIDATES, ((0, 1, 0), (1, 0, 0), (1, 1, 1)), strict=True)
    return {stem: _flags("chain", 1, *found) for stem, found in levels}


def natural_causes() -> Study:
    """A candidate of the hunt with and without a KL penalty, in episodes of three turns and of one."""
    bonus = _flags("chain", 1, 0, 1, 0)
    arms = [
        Arm(f"{name}{suffix}", train("chain", f"{bonus} {turns} --algorithm.kl {kl} --filter keep_all"))
        for name, turns in (("three_turns", ""), ("one_turn", "--env.turns 1"))
        for suffix, kl in (("", 0.0), ("_kl", 0.03))
    ]
    return Study(
        "natural_causes",
        "What does the collapse that nobody planted need: several turns, or that no KL penalty holds the policy?",
        tuple(arms),
        seeds=(21, 22, 23),
        pairs=(
            Pair("three_turns_kl", "three_turns"),
            Pair("one_turn_kl", "one_turn"),
            Pair("one_turn", "three_turns"),
            Pair("one_turn_kl", "three_turns_kl"),
        ),
        measures=WATCHED,
        curves=CURVES,
        outcomes=(Hunt("Collapse", (f"{INFORMATION}/mi", "grounding/thought_influence")),),
        minutes=3.5,
        notes=(
            "Chain with 6 to 8 steps, entropy bonus 0.03, the preset's learning rate, 32 groups of 4, no filter: the "
            "setting l0_d1_g0 of `natural`, which collapsed there. These seeds were not used before.",
            "The KL penalty has the strength of the bonus, as in `regularised`.",
            "Each number of turns has a seedling of its own. So they differ in success at the start as well.",
        ),
    )


def _factorial(env: str) -> Factorial:
    """The five settings on one environment."""
    levels = {_name(env, *found): found for found in itertools.product(_LEVELS, repeat=4)}

    def at(place: int) -> tuple[str, ...]:
        return tuple(name for name, found in levels.items() if (*found, sum(found) % 2)[place])

    return Factorial(
        f"What the settings do on {env}",
        tuple(levels),
        (
            Factor("entropy bonus 0.03", "0.001", at(0)),
            Factor("four times the learning rate", "the preset's", at(1)),
            Factor("harder tasks", "the preset's", at(2)),
            Factor("8 groups of 16", "32 of 4", at(3)),
            Factor("top_p", "keep_all", at(4)),
        ),
    )


def _name(env: str, entropy: int, rate: int, difficulty: int, group: int) -> str:
    """The filter is on where an odd number of the other four settings is."""
    return f"{env}_e{entropy}_l{rate}_d{difficulty}_g{group}_f{(entropy + rate + difficulty + group) % 2}"


def _arm(env: str, entropy: int, rate: int, difficulty: int, group: int) -> Arm:
    """One setting, from the level of each factor."""
    filter = ("keep_all", "top_p")[(entropy + rate + difficulty + group) % 2]
    flags = f"{_flags(env, entropy, rate, difficulty, group)} --filter {filter}"
    return Arm(_name(env, entropy, rate, difficulty, group), train(env, flags))


def _flags(env: str, entropy: int, rate: int, difficulty: int, group: int) -> str:
    easy, hard, slow, fast = _ENVIRONMENTS[env]
    groups, members = ((32, 4), (8, 16))[group]
    return (
        f"{(easy, hard)[difficulty]} --algorithm.entropy {(0.001, 0.03)[entropy]} --optimizer.lr {(slow, fast)[rate]} "
        f"--groups {groups} --group-size {members} --steps {_STEPS} {LEAN} --diagnostics.full-every 8"
    )
