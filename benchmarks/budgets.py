"""Simulations of choosers and plans on pools of tasks with known chances of success, with a toy trainer. No model.

The choosers and plans are the ones of a run, called as a run calls them. Every arm has the same seeds, so differences
are paired. Intervals are 95%, over seeds. It takes some minutes on one core.

    python benchmarks/budgets.py         # writes benchmarks/results/budgets.json and docs/results/budgets.md
    python benchmarks/budgets.py --quick # 2 seeds, printed and not written

A pool has 256 tasks. A task is its log-odds, one number, drawn from one of two distributions:

- `u-shaped`: Beta(1/2, 1/2), most tasks almost solved or almost hopeless
- `hard`: Beta(1/2, 2), and one task in five is hopeless

**The toy trainer.** A step plays 128 episodes. Each group of n with k right moves its task's log-odds by the sum of
advantage x score over its members: sqrt(k (n - k) (n - 1) / n) under GRPO, and k (n - k) / n under the undivided
advantage, which weights by task multiply by (8 - 1) / (n - 1). The sum is divided by the weight of all episodes that
were trained on. Normal noise is added to all tasks. Its squared length is 1 / .12 of that of the expected signal at the
start without a choice, and it falls with the episodes. Then the step gets a fixed length. Besides, all log-odds drift
by a normal step of .1.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from heedful.diagnostics.alarms.watch import Alarms
from heedful.diagnostics.signal import episode_metrics
from heedful.diagnostics.statistics.intervals import mean_interval
from heedful.filters import Visit
from heedful.rollout import Chooser, Plan
from heedful.rollout.choosers import REMEMBERED, ByPool, InOrder, Listed, Offer, SkipSettled, Thompson
from heedful.rollout.plans import Dealt, Fixed, Sized
from heedful.rollout.rounds import Standing
from heedful.seeds import stream
from heedful.types import PROBE, Ending, Group, Task, Trajectory

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "budgets.md"

Row = dict[str, Any]

CHANCES = {"u-shaped": (0.5, 0.5, 0.0), "hard": (0.5, 2.0, 0.2)}
"""Name -> the Beta, and the share of hopeless tasks."""
TASKS, GROUPS, SIZE, STEPS, SEEDS = 256, 16, 8, 100, 8
NOISE = 1 / 0.12
"""Squared length of the noise in a step of 128 episodes, over that of the signal at the start."""
LENGTH = 4.0
"""Length of a step in log-odds. Chosen on two seeds, so that success without a choice ends near .73 on the u-shaped
pool."""
DRIFT = 0.1
HEALTHY = 20
"""Simulated runs in which alarms are counted."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What a run does. `after`: the schedule of another seed's run of this arm, on other tasks."""

    choose: Chooser = field(default_factory=InOrder)
    plan: Plan = field(default_factory=Fixed)
    by_task: bool = False
    after: str = ""


ARMS: Mapping[str, Arm] = {
    "in_order": Arm(),
    "thompson": Arm(Thompson()),
    "thompson, middle": Arm(Thompson(value="middle")),
    "skip_settled": Arm(SkipSettled()),
    "by_pool": Arm(ByPool()),
    "yoked to thompson": Arm(after="thompson"),
    "yoked to skip_settled": Arm(after="skip_settled"),
    "sized": Arm(plan=Sized()),
    "sized, tasks weigh alike": Arm(plan=Sized(), by_task=True),
    "equal sizes, tasks weigh alike": Arm(by_task=True),
    "dealt": Arm(plan=Dealt()),
    "thompson and sized": Arm(Thompson(), Sized()),
}


@dataclass(slots=True)
class Played:
    """The course of one simulated run."""

    schedule: list[list[tuple[int, int, bool]]] = field(default_factory=list)
    """For each step: task, episodes, and whether it is a probe."""
    right: list[list[int]] = field(default_factory=list)
    pq: list[float] = field(default_factory=list)
    """Mean of p (1 - p) over the episodes of a step."""
    mixed: list[float] = field(default_factory=list)
    trained: set[int] = field(default_factory=set)
    start: Any = None
    end: Any = None
    """Chances of all tasks."""


def logistic(odds: Any) -> Any:
    return 1 / (1 + np.exp(-odds))


def beginning(prior: str, seed: int) -> Any:
    """Log-odds of a pool."""
    a, b, hopeless = CHANCES[prior]
    rng = np.random.default_rng([seed, 1])
    chances = rng.beta(a, b, TASKS).clip(1e-6, 1 - 1e-6)
    return np.log(chances / (1 - chances)) - np.where(rng.random(TASKS) < hopeless, 30.0, 0.0)


def play(prior: str, seed: int, arm: Arm, steps: int, other: Played | None = None) -> Played:
    """One run of an arm. `other`: the run whose schedule it follows."""
    odds, noise, found = beginning(prior, seed), np.random.default_rng([seed, 2]), Played()
    tasks = tuple(Task(str(place), place, "train") for place in range(TASKS))
    pool = Listed(tasks, random.Random(f"order {seed}"))
    memory: dict[str, list[Visit]] = {}
    moved = np.random.default_rng([seed, 3]).permutation(TASKS)
    found.start = logistic(odds)
    signal = expected_signal(odds, arm.by_task)
    for step in range(steps):
        if other is None:
            asks = asked(arm, pool, step, seed, lambda task: memory.get(task, ()))
        else:
            asks = [(int(moved[place]), size, probe) for place, size, probe in other.schedule[step]]
        chances = logistic(odds)
        # An episode of a task has its own draw, so arms that ask for the same episodes see the same outcomes.
        right = [
            int((np.random.default_rng([seed, 4, step, place]).random(size) < chances[place]).sum())
            for place, size, _ in asks
        ]
        pull, episodes = np.zeros(TASKS), 0.0
        for (place, size, _), k in zip(asks, right, strict=True):
            memory.setdefault(str(place), []).append(Visit(size, float(k), k * (size - k) / size, True))
            del memory[str(place)][:-REMEMBERED]
            if 0 < k < size:
                weight = (SIZE - 1) / (size - 1) if arm.by_task else 1.0
                pull[place] = weight * moves(k, size, arm.by_task)
                episodes += weight * size
                found.trained.add(place)
        total = sum(size for _, size, _ in asks)
        found.schedule.append(asks)
        found.right.append(right)
        found.pq.append(sum(size * chances[place] * (1 - chances[place]) for place, size, _ in asks) / total)
        found.mixed.append(fmean(0 < k < size for (_, size, _), k in zip(asks, right, strict=True)))
        if episodes:
            scale = signal * math.sqrt(NOISE * GROUPS * SIZE / episodes / TASKS)
            push = pull / episodes + noise.normal(size=TASKS) * scale
            odds = odds + LENGTH * push / np.linalg.norm(push)
        odds = odds + np.random.default_rng([seed, 5, step]).normal(size=TASKS) * DRIFT
    found.end = logistic(odds)
    return found


def moves(right: int, size: int, undivided: bool) -> float:
    """The pull of a group on its task's log-odds: the sum over members of advantage x score."""
    pull = right * (size - right) / size
    return pull if undivided else pull / math.sqrt(right * (size - right) / size / (size - 1))


def expected_signal(odds: Any, undivided: bool) -> float:
    """The length of the pull of one step without a choice, of the 16 x 8 episodes of random tasks, in expectation."""
    chances, pulls = logistic(odds), np.zeros(TASKS)
    for k in range(1, SIZE):
        pulls += math.comb(SIZE, k) * chances**k * (1 - chances) ** (SIZE - k) * moves(k, SIZE, undivided)
    return float(np.sqrt((pulls**2).mean() * GROUPS) / (GROUPS * SIZE))


def asked(
    arm: Arm, pool: Listed, step: int, seed: int, past: Callable[[str], Sequence[Visit]]
) -> list[tuple[int, int, bool]]:
    """The asks of a step, as `run.loop` makes them."""
    seen: set[str] = set()
    offer = Offer(pool, past, step, seen, stream(seed, "choose", step))

    def draw(count: int) -> Sequence[Task]:
        chosen = arm.choose.choose(count, offer)
        seen.update(task.id for task in chosen)
        return chosen

    now = Standing(GROUPS, SIZE, "outcome", draw, stream(seed, "plan", step), past, TASKS)
    return [(ask.task.seed, ask.members, PROBE in ask.task.tags) for ask in arm.plan.ask(now)]


def courses(prior: str, names: Sequence[str], seeds: int, steps: int) -> Iterator[tuple[str, list[Played]]]:
    """The runs of each arm. A yoked arm follows the next seed's run."""
    done: dict[str, list[Played]] = {}
    for name in names:
        arm = ARMS[name]
        others = [done[arm.after][(seed + 1) % seeds] if arm.after else None for seed in range(seeds)]
        done[name] = [play(prior, seed, arm, steps, others[seed]) for seed in range(seeds)]
        yield name, done[name]


def within(values: Sequence[float]) -> list[float]:
    """Mean and half of a 95% interval over seeds."""
    found = mean_interval(values)
    assert found is not None
    return [round(fmean(values), 4), round((found.high - found.low) / 2, 4)]


def compared(seeds: int, steps: int, tell: Callable[[str], None] = print) -> Iterator[Row]:
    """Every arm on every kind of pool, against no choice."""
    for prior in CHANCES:
        base: list[Played] = []
        for name, runs in courses(prior, list(ARMS), seeds, steps):
            base = base or runs
            hardest = [np.argsort(run.start)[: TASKS // 4] for run in runs]
            gains = [float(run.end.mean() - plain.end.mean()) for run, plain in zip(runs, base, strict=True)]
            hard = [
                float(run.end[places].mean() - plain.end[places].mean())
                for run, plain, places in zip(runs, base, hardest, strict=True)
            ]
            row = {
                "part": "arms", "prior": prior, "arm": name, "seeds": seeds, "steps": steps,
                "success": within([float(run.end.mean()) for run in runs]),
                "gain": within(gains),
                "hardest quarter": within(hard),
                "never trained": within([1 - len(run.trained) / TASKS for run in runs]),
                "mixed": within([fmean(run.mixed) for run in runs]),
                "pq": within([fmean(run.pq) for run in runs]),
            }  # fmt: skip
            tell(f"{prior}, {name}: {row['success']} {row['gain']}")
            yield row


def false_alarms(runs: int, steps: int) -> Iterator[Row]:
    """How often `success_drop` is raised in runs that get better all along, and by which reading of success."""
    for name, floor in (("probes, floor .125", 0.125), ("probes, floor .25", 0.25), ("the choice itself", 0.0)):
        raised, rises = 0, []
        for seed in range(runs):
            run, alarms = play("u-shaped", 100 + seed, Arm(Thompson(floor=floor)), steps), Alarms()
            names = set[str]()
            for step, (asks, right) in enumerate(zip(run.schedule, run.right, strict=True)):
                groups = [group(*ask, k) for ask, k in zip(asks, right, strict=True)]
                names |= {alarm.name for alarm in alarms.observe(step, episode_metrics(groups)).raised}
            raised += "success_drop" in names
            rises.append(float(run.end.mean() - run.start.mean()))
        yield {"part": "alarms", "reads": name, "raised": raised, "runs": runs, "steps": steps, "rise": within(rises)}


def group(place: int, size: int, probe: bool, right: int) -> Group:
    task = Task(str(place), place, "train", (PROBE,) if probe else ())
    members = (
        Trajectory(task, member, (), Ending.SOLVED if member < right else Ending.FAILED, float(member < right))
        for member in range(size)
    )
    return Group(task, tuple(members))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def plus_minus(found: Sequence[float], signed: bool = False) -> str:
    mean, half = found
    return f"{mean:+.3f} ± {half:.3f}" if signed else f"{mean:.3f} ± {half:.3f}"


def page(rows: Sequence[Row]) -> str:
    """docs/results/budgets.md."""
    arms = [row for row in rows if row["part"] == "arms"]
    seeds, steps = arms[0]["seeds"], arms[0]["steps"]
    tables = []
    for prior in CHANCES:
        lines = [
            [
                row["arm"],
                plus_minus(row["gain"], signed=True) if row["arm"] != "in_order" else plus_minus(row["success"]),
                "" if row["arm"] == "in_order" else plus_minus(row["hardest quarter"], signed=True),
                *(f"{row[name][0]:.2f}" for name in ("never trained", "mixed")),
                f"{row['pq'][0]:.3f}",
            ]
            for row in arms
            if row["prior"] == prior
        ]
        columns = ["arm", "gain in success", "of the hardest quarter", "never trained", "mixed groups", "p (1 - p)"]
        tables.append(f"### {prior}\n\n{table(columns, lines)}")
    alarms = [
        [row["reads"], f"{row['raised']} of {row['runs']}", plus_minus(row["rise"], signed=True)]
        for row in rows
        if row["part"] == "alarms"
    ]
    return f"""# Budgets: which tasks, and how many episodes each

[Choosers](../training.md#choosing-tasks-before-sampling) and [plans](../training.md#plans-episodes-of-a-step) on
simulated pools, whose chances of success are known. **No model was trained for this page.** It ranks rules and promises
no gain. Policies are trained in [another page](treatments.md).

Written by `python benchmarks/budgets.py` ([rows](../../benchmarks/results/budgets.json)): {seeds} seeds, {steps} steps
of {GROUPS * SIZE} episodes, pools of {TASKS} tasks, 95% intervals over seeds. Its docstring describes the toy trainer.

## What it says

{FINDINGS}
## Arms

The first row of each table is success at the end without a choice. Gains are against it, paired by seed. `never
trained`: share of tasks that no update used. `mixed groups` depends on the size of groups. `p (1 - p)` is a mean over
episodes. Arms whose tasks weigh alike take the undivided advantage, so `sized, tasks weigh alike` is compared with
`equal sizes, tasks weigh alike`.

{chr(10).join(f"{each}{chr(10)}" for each in tables)}
## Alarms

Simulated runs that get better all along, on the u-shaped pool. `success_drop` on the success of the probes, and on
that of the choice itself (`--choose.floor 0`). Any alarm is false.

{table(["success is read from", "runs with a false alarm", "rise of success over all tasks"], alarms)}
"""


FINDINGS = """\
- **Choosing tasks gains more than sizing groups.** `thompson` gains +.053 and +.056 on the two pools. The same schedule
  on other tasks, `yoked to thompson`, loses .016 and .009. So the choice counts, and not the repetition.
- **Looking at harder tasks pays.** p (1 - p)^2 gains +.053 and +.056, p (1 - p) +.026 and +.017. `skip_settled` gains
  +.020 and +.029, `by_pool` +.018 and +.023.
- **Sizes help as a change of objective.** `sized` gains +.024 and +.021 where each episode weighs alike. Where tasks
  weigh alike it ends .001 above equal sizes on both pools.
- **The price**: `thompson` never trains on .27 and .36 of the tasks, against .18 and .33 without a choice.
- **No false alarm** `success_drop` was seen, with probes or without. In this simulation the choice itself gives none
  either, so probes are not needed against false alarms. They keep the curve of success a reading of the policy.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="2 seeds of 20 steps, printed and not written")
    quick = parser.parse_args().quick
    rows = [
        *compared(2 if quick else SEEDS, 20 if quick else STEPS),
        *false_alarms(2 if quick else HEALTHY, 20 if quick else 60),
    ]
    if quick:
        print(page(rows))
        return
    (HERE / "results" / "budgets.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"Wrote {PAGE}.")


if __name__ == "__main__":
    main()
