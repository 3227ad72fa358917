"""How often the alarm `action_uninformed` is false, and how soon it is raised, with the estimator of a run.

    python -m benchmarks.action_alarm             # prints both tables
    python -m benchmarks.action_alarm --runs 40   # fewer runs, for a look

A prompt calls for one action, drawn evenly. The policy takes it with a certainty, and otherwise any action.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from heedful.diagnostics.actions.information import action_information
from heedful.diagnostics.alarms.rules import INPUT_TO_ACTION, AlarmConfig, standard_rules
from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.studies.paired import clopper_pearson
from heedful.types import Metric

SIZES = ((8, 8, 2), (16, 8, 4))
"""Prompts, members, actions."""
CERTAINTY = {"deterministic": 1.0, "nearly deterministic": 0.8, "noisy": 0.5, "weak": 0.2, "independent": 0.0}
STILL = ("deterministic", "mostly one", "nearly deterministic", "weak")
READINGS, BEFORE, AFTER = 25, 6, 8
RULES = tuple(rule for rule in standard_rules(AlarmConfig()) if rule.name == "action_uninformed")


def reading(policy: str, prompts: int, members: int, actions: int, rng: np.random.Generator) -> Metric:
    """`grounding/input_to_action` of one batch. `mostly one`: 80% of the prompts call for the same action."""
    counts = []
    for _ in range(prompts):
        own = int(rng.integers(actions))
        if policy == "mostly one":
            chances_A = np.eye(actions)[0 if rng.random() < 0.8 else own]
        elif policy == "one":
            chances_A = np.eye(actions)[0]
        else:
            chances_A = (1 - CERTAINTY[policy]) / actions + CERTAINTY[policy] * np.eye(actions)[own]
        counts.append(rng.multinomial(members, chances_A))
    found = action_information(np.array(counts, dtype=np.float64))
    ends = (None, None) if found.interval is None else (found.interval.low, found.interval.high)
    return Metric(INPUT_TO_ACTION, found.value, prompts * members, *ends, clusters=found.clusters)


def raised(policies: Iterable[str], size: tuple[int, int, int], seeds: Sequence[int]) -> int | None:
    """The number of the reading at which the alarm is raised first, from 0."""
    rng = np.random.default_rng(seeds)
    steps = ((step, {INPUT_TO_ACTION: reading(policy, *size, rng)}) for step, policy in enumerate(policies))
    return next((alarm.step for alarm in first_raised(replay(steps, rules=RULES)).values()), None)


def still(runs: int) -> Iterable[str]:
    """Rows of runs in which nothing changes."""
    for size in SIZES:
        for policy in STILL:
            false = sum(raised([policy] * READINGS, size, [seed, size[0]]) is not None for seed in range(runs))
            most = clopper_pearson(false, runs).high
            yield f"{size[0]} x {size[1]}, {size[2]} actions | {policy} | {false} of {runs} | {most:.3f}"


def falls(runs: int) -> Iterable[str]:
    """Rows of runs whose policy changes after six readings."""
    for size in SIZES:
        for before in ("noisy", "nearly deterministic", "deterministic"):
            for after in ("one", "independent", "weak"):
                policies = [before] * BEFORE + [after] * AFTER
                steps = [raised(policies, size, [seed, size[0], 7]) for seed in range(runs)]
                delays = [step - BEFORE + 1 for step in steps if step is not None]
                delay = f"{median(delays):g}" if delays else "-"
                cells = f"{size[0]} x {size[1]}, {size[2]} actions", before, after, f"{len(delays)} of {runs}", delay
                yield " | ".join(cells)


def table(head: str, rows: Iterable[str]) -> list[str]:
    return [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows)]


def page(runs: int) -> str:
    """Both tables with what they are."""
    return "\n".join(
        [
            f"Runs of {READINGS} readings in which nothing changes, with the upper end of the exact 95% interval:",
            "",
            *table("prompts x members | policy | false alarms | at most", still(runs)),
            "",
            f"Runs that change after {BEFORE} readings, followed for {AFTER} more. The delay is the median in "
            "readings, 1 = at once. `one`: the same action under every prompt.",
            "",
            *table("prompts x members | before | after | raised | delay", falls(runs // 4)),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="simulated runs for each row where nothing changes")
    runs = parser.parse_args().runs
    print(page(runs))


if __name__ == "__main__":
    main()
