"""Tests 4 and 7: runs that collapse or stay healthy, and what the split and the alarms say of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heedful import resume, train
from heedful.diagnostics.alarms.conditions import Rule
from heedful.diagnostics.alarms.rules import AlarmConfig, changes, standard_rules
from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.storage import RunFolder, StepMetrics, read_metrics
from heedful.studies import settings
from heedful.studies.paired import clopper_pearson
from research.correlations.report import success_entries
from research.correlations.runs import find_runs
from research.detector.roc import Sample, area
from research.rightness.figures import Figure, Result, figure
from research.rightness.readings import BY_THOUGHT, GAP, MI

_WATCHED = (
    "--group-size 4 --steps 27 --checkpoint-every 27 --keep-rollouts none --threads 1 --diagnostics.share none "
    "--diagnostics.every 3 --diagnostics.full-every 3 --diagnostics.any-turn 0 --diagnostics.swapped-rows 0 "
    "--diagnostics.words 0 --diagnostics.grounding-rows 64 --evaluation.times 10 --evaluation.tasks 96 "
    "--evaluation.samples 1 --evaluation.search-tasks 16"
)
_SMALL = "--steps 6 --seedling.steps 20 --evaluation.tasks 8 --evaluation.times 3"
_MIXED = "--seedling.imperfect 0.1 --seedling.steps 300 --seedling.template"
CHAIN = {
    "healthy_quarter": f"{_MIXED} 0.25",
    "healthy_half": f"{_MIXED} 0.5",
    "template": f"{_MIXED} 0.25 --env.unrewarded 0.75 --env.fluency 0.1 --filter keep_all",
    "noise_mixed": f"{_MIXED} 0.5 --env.unrewarded 0.75 --filter keep_all --algorithm.entropy 0.1 --optimizer.lr 3e-4",
}
"""Arm -> flags of `heedful train chain`: the recipes of docs/results/chain.md."""
COLLAPSED, HEALTHY = ("template", "noise_mixed"), ("healthy_quarter", "healthy_half")
OTHERS = ("echo", "bandit", "frozen_lake")
"""Further environments, with their presets, as healthy runs."""
SUCCESS = "eval/val/sampled/success"


def unhelpful() -> Rule:
    """The alarm `thought_unhelpful`: the part of the thought fell by half of its level, and by .1 at least."""
    (change,) = changes(AlarmConfig(), "down", 0.5, BY_THOUGHT, floor=0.1)
    return Rule("thought_unhelpful", ((replace(change, design=replace(change.design, baseline=3, confirm=2)),),))


_KINDS = {"template": ("template",), "noise": ("noise_mixed",)}
RIVALS = ("action_uninformed", "entropy_rise")


@dataclass(frozen=True, slots=True)
class Trained:
    """One run that is over."""

    arm: str
    seed: int
    folder: RunFolder

    @property
    def lines(self) -> Sequence[StepMetrics]:
        return read_metrics(self.folder.metrics)

    def last(self, metric: str) -> float:
        """Its last reading."""
        values = [each.number for line in self.lines if (each := line.metrics.get(metric)) is not None]
        return [value for value in values if value is not None][-1]


def runs_of(
    arms: Mapping[str, tuple[str, str]], seeds: Sequence[int], out: Path, until: float, small: bool
) -> Iterator[Trained]:
    """The runs of every seed, seed by seed: trained now, gone on with, or read where they are over.

    `arms`: name -> preset and flags. `until`: no run begins or goes on after this time. Seeds with a run that is not
    over give nothing.
    """
    for seed in seeds:
        found = []
        for arm, (name, flags) in arms.items():
            folder = RunFolder(out / arm / f"s{seed}")
            if not folder.verdict.exists() and time.time() < until:
                if folder.config.exists():
                    resume(folder.path, show=False)
                else:
                    asked = settings(name, f"{_WATCHED} {flags} {_SMALL if small else ''}")
                    train(replace(asked, seed=seed), out=folder.path, show=False)
            if folder.verdict.exists():
                found.append(Trained(arm, seed, folder))
        if len(found) == len(arms):
            yield from found


def chain_runs(seeds: Sequence[int], out: Path, until: float, small: bool = False) -> list[Trained]:
    """The runs of test 4, of whole seeds."""
    return list(runs_of({arm: ("chain", flags) for arm, flags in CHAIN.items()}, seeds, out, until, small))


def separated(seeds: Sequence[int], out: Path, until: float, small: bool = False) -> Result:
    """Test 4."""
    runs = chain_runs(seeds, out, until, small)
    if not runs:
        return Result(None, [figure("whole seeds", 0, note="no seed has all of its runs")])
    sides = {side: [run for run in runs if run.arm in arms] for side, arms in (("x", COLLAPSED), ("y", HEALTHY))}
    figures = [figure("whole seeds", len({run.seed for run in runs}))]
    areas: dict[str, float] = {}
    for title, metric in {"right_by_thought": BY_THOUGHT, "mutual information": MI, "gap per token": GAP}.items():
        collapsed, healthy = (Sample(tuple(run.last(metric) for run in side)) for side in sides.values())
        found = area(collapsed, healthy, direction="lower")
        ends = (None, None) if found.interval is None else found.interval
        areas[metric] = found.value
        figures.append(Figure(f"{title}: area at the last measurement", found.value, len(runs), *ends))
    value, low, high = _difference(*([[run.last(BY_THOUGHT), run.last(MI)] for run in side] for side in sides.values()))
    figures.append(Figure("area of right_by_thought less that of mutual information", value, len(runs), low, high))
    for arm in CHAIN:
        ends_of = [(run.last(BY_THOUGHT), run.last(SUCCESS)) for run in runs if run.arm == arm]
        means = np.mean(ends_of, axis=0)
        figures.append(figure(f"{arm}: right_by_thought, success at the end", float(means[0]), note=f"{means[1]:.3f}"))
    leads = _leads([run.folder.path for run in runs])
    figures += leads
    inside = [each.low is not None and each.high is not None and -0.2 <= each.low <= each.high <= 0.2 for each in leads]
    return Result(areas[BY_THOUGHT] >= 0.95 and low > 0 and all(inside[:2]), figures)


def _difference(x_R2: Sequence[Sequence[float]], y_R2: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The difference of two metrics' areas and its 95% interval: runs are drawn anew within their side."""

    def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        less = (x[:, None] < y[None]) + 0.5 * (x[:, None] == y[None])
        found: np.ndarray = less.mean(axis=(0, 1))
        return found

    rng, x, y = np.random.default_rng(0), np.array(x_R2), np.array(y_R2)
    drawn = np.array(
        [apart(x[rng.integers(len(x), size=len(x))], y[rng.integers(len(y), size=len(y))]) for _ in range(4000)]
    )
    low, high = np.quantile(drawn[:, 0] - drawn[:, 1], (0.025, 0.975))
    whole = apart(x, y)
    return float(whole[0] - whole[1]), float(low), float(high)


def _leads(folders: Sequence[Path]) -> list[Figure]:
    """Correlation within runs with success at the next evaluation, success now held fixed; that of the split first."""
    titles = {"right_by_thought": BY_THOUGHT, "mutual information": MI, "the step itself": "step"}
    runs = find_runs(folders, [SUCCESS, *titles.values()]).runs
    return [
        Figure(
            f"{title}, next success given now, {entry.method}",
            found.value,
            found.readings,
            found.low,
            found.high,
            found.why,
        )
        for title, metric in titles.items()
        for entry in success_entries(runs, SUCCESS, metric, title)
        if entry.view == "next given now" and (found := entry.found)
    ]


def alarmed(seeds: Sequence[int], out: Path, until: float, small: bool = False) -> Result:
    """Test 7: the runs of test 4, and healthy runs of three further environments."""
    runs = chain_runs(seeds, out, until, small)
    for name in OTHERS:
        runs += runs_of({name: (name, "")}, seeds[:2], out, until, small)
    rules = (unhelpful(), *(rule for rule in standard_rules(AlarmConfig()) if rule.name in RIVALS))
    raised: dict[tuple[str, int], dict[str, int]] = {}
    for run in runs:
        found = first_raised(replay(((line.step, line.metrics) for line in run.lines), rules=rules))
        raised[run.arm, run.seed] = {name: alarm.step for name, alarm in found.items()}
    figures: list[Figure] = []
    counts: dict[tuple[str, str], int] = {}
    for rule in rules:
        for kind, arms in {**_KINDS, "healthy": (*HEALTHY, *OTHERS)}.items():
            steps = [by_rule.get(rule.name) for (arm, _), by_rule in raised.items() if arm in arms]
            hits = counts[rule.name, kind] = sum(step is not None for step in steps)
            if steps:
                shown = ", ".join("none" if step is None else str(step) for step in steps)
                ends = clopper_pearson(hits, len(steps))
                figures.append(
                    Figure(f"{rule.name}: raised in {kind} runs", hits, len(steps), *ends, f"at steps {shown}")
                )
    of = {kind: sum(arm in arms for arm, _ in raised) for kind, arms in _KINDS.items()}
    if not all(of.values()):
        return Result(None, figures)

    def does(name: str) -> bool:
        return all(counts[name, kind] >= 10 / 12 * of[kind] for kind in of) and counts[name, "healthy"] <= 1

    figures += [figure(f"{name} alone passes", float(does(name))) for name in RIVALS]
    return Result(does("thought_unhelpful") and not any(map(does, RIVALS)), figures)
