"""Test 5: success on Sokoban falls in ordinary training. Which part of rightness falls by then, and which before?

Every evaluation stores its episodes, and every even step its checkpoint. So the readings are taken after training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from heedful.console import SafeConsole
from heedful.diagnostics.actions.exchanged import exchange, exchange_answers
from heedful.diagnostics.actions.rightness import PARTS, rightness, worthiness
from heedful.envs.common.contract import rightness_of, worth_of
from heedful.envs.common.tagged import in_tags
from heedful.envs.sokoban import Sokoban
from heedful.measuring.swapped import read_exchange
from heedful.run.config import read_config
from heedful.run.evaluation.subjects import Subject, load
from heedful.storage import read_rollouts
from heedful.studies.paired import clopper_pearson, mean_over
from heedful.types import Metric
from research.detector.early_warning import Fall, find_fall
from research.rightness.figures import Figure, Result, figure, figure_of, once
from research.rightness.readings import GAP, MI
from research.rightness.trained import Trained, runs_of

ARM = {
    "sokoban": (
        "sokoban",
        "--algorithm.entropy 0.001 --groups 16 --group-size 8 --filter keep_all --steps 18 --checkpoint-every 1 "
        "--keep-checkpoints all --keep-rollouts all --evaluation.times 7 --evaluation.tasks 256",
    )
}
"""The arm `sokoban_keep_all` of `early_warning`, shorter, with one sampled episode a task and all checkpoints."""
TASKS = 64
"""Tasks of an evaluation whose thoughts and answers are exchanged, with all their episodes."""
KINDS = ("sampled", "greedy")
READ = tuple(f"{label}{part}" for label in ("right", "worth") for part in PARTS)
JUDGED = tuple(
    f"{kind}/{label}_by_{part}"
    for kind in KINDS
    for label in ("right", "worth")
    for part in ("thought", "prompt", "both")
)
"""The parts that may pass the test: of first actions and of whole answers, sampled and greedy."""
WHOLE = tuple(f"{kind}/{label}" for kind in KINDS for label in ("right", "worth"))
"""What the parts are parts of. Of greedy answers it is nearly success itself, so it cannot pass the test."""
GREEDY = "greedy/success"
ALIVE = "greedy/unsolved_but_solvable"
"""Not registered: greedy episodes that ended unsolved in a state from which a solution is left."""
TURNS = tuple(f"greedy/actions_of_turn_{turn}" for turn in range(1, 6))
"""Not registered: the mean number of actions that greedy replies of each turn execute."""

Readings = Mapping[str, Sequence[tuple[int, Metric]]]
"""Name -> the step and the reading of each evaluation, ascending."""


def falling_runs(seeds: Sequence[int], out: Path, until: float, small: bool = False) -> list[Trained]:
    """The runs that are over, trained now where they are not."""
    return list(runs_of(ARM, seeds, out, until, small))


def fallen(seeds: Sequence[int], out: Path, read: Path, until: float, small: bool = False) -> Result:
    """Test 5. `out`: the folder of the runs. `read`: the folder of what is read of them."""
    runs = [
        readings
        for run in falling_runs(seeds, out, until, small)
        if (readings := readings_of(run, read / f"s{run.seed}", until, 4 if small else TASKS)) is not None
    ]
    return judged(runs)


def readings_of(run: Trained, read: Path, until: float, tasks: int) -> Readings | None:
    """All readings of a run's evaluations. `None` if time is up before all are taken."""
    config = read_config(run.folder)
    found: dict[str, list[tuple[int, Metric]]] = {}
    for step in sorted(config.evaluation.at(config.steps)):
        path = read / f"step_{step}.json"
        if not path.exists() and time.time() >= until:
            return None
        for each in once(path, partial(_exchanged, run, step, tasks)):
            found.setdefault(each["name"], []).append((step, Metric(**each)))
    for line in run.lines:
        for name in (*(f"eval/val/{kind}/success" for kind in KINDS), MI, GAP):
            if name in line.metrics:
                found.setdefault(name.removeprefix("eval/val/"), []).append((line.step, line.metrics[name]))
    for step, _ in found.get(GREEDY, ()):
        for metric in _acted(config.env, run.folder.rollouts(step, "val_greedy")):
            found.setdefault(metric.name, []).append((step, metric))
    return found


def _acted(env: Any, path: Path) -> list[Metric]:
    """How many actions the turns of stored episodes execute, and how many episodes a solution was left to."""
    members = [one for group in read_rollouts(path, replies=False).groups for one in group.trajectories]
    found = []
    for turn, name in enumerate(TURNS):
        counts = [len(one.turns[turn].actions) for one in members if one.turns[turn:]]
        if counts:
            found.append(Metric(name, fmean(counts), len(counts)))
    if isinstance(env, Sokoban):
        left = [
            not one.success and env.right_actions(one.task, [turn.actions for turn in one.turns]) is not None
            for one in members
        ]
        found.append(Metric(ALIVE, fmean(left), len(left)))
    return found


def _exchanged(run: Trained, step: int, tasks: int) -> list[dict[str, Any]]:
    """The split of an evaluation's episodes, by the weights that played them."""
    found: list[Metric] = []
    config = read_config(run.folder)
    weights = run.folder.checkpoint(step) if step else None
    with load(Subject(f"step {step}", config, weights, step), SafeConsole(quiet=True)) as loaded:
        from heedful.scorers.hf import HFScorer

        env, scorer = in_tags(config.env, loaded.renderer.tags), HFScorer(loaded.model)
        for kind in KINDS:
            groups = read_rollouts(run.folder.rollouts(step, f"val_{kind}")).groups
            asked = (ask(groups, 2 * tasks, tasks) for ask in (exchange, exchange_answers))
            actions, answers = (read_exchange(scorer, one, config.sampling.temperature) for one in asked)
            metrics = (*rightness(*actions, rightness_of(env)), *worthiness(*answers, worth_of(env)))
            found += [replace(each, name=f"{kind}/{each.name}") for each in metrics if each.name in READ]
    return list(map(asdict, found))


def fall_of(readings: Sequence[tuple[int, Metric]]) -> Fall | None:
    """The first evaluation below that before training, beyond the intervals of both: two standard errors."""
    return find_fall(readings, points=0.0)


def judged(runs: Sequence[Readings]) -> Result:
    """Whether one part falls no later than greedy success in every run whose greedy success falls."""
    falls = [run for run in runs if fall_of(run[GREEDY]) is not None]
    at = [None if (found := fall_of(run[GREEDY])) is None else found.step for run in runs]
    by_ten = [None if (found := find_fall(run[GREEDY], points=0.1)) is None else found.step for run in runs]
    figures = [
        figure("runs", len(runs)),
        figure("runs whose greedy success falls", len(falls), len(runs), f"at steps {_shown(at)}"),
        figure("by 10 points", sum(step is not None for step in by_ten), len(runs), f"at steps {_shown(by_ten)}"),
    ]
    in_time: dict[str, int] = {}
    for name in (*JUDGED, *WHOLE, "sampled/success"):
        steps = [None if (found := fall_of(run.get(name, ()))) is None else found.step for run in runs]
        pairs = [(step, success) for step, success in zip(steps, at, strict=True) if success is not None]
        in_time[name] = sum(step is not None and step <= success for step, success in pairs)
        earlier = sum(step is not None and step < success for step, success in pairs)
        low, high = clopper_pearson(in_time[name], len(falls)) if falls else (None, None)
        note = f"falls at steps {_shown(steps)}; before greedy success in {earlier}"
        figures.append(
            Figure(f"{name}: falls no later than greedy success", in_time[name], len(falls), low, high, note)
        )
    for name in (GREEDY, "sampled/success", *(f"{kind}/{one}" for kind in KINDS for one in READ), MI, GAP):
        figures += _course(name, runs)
    for name in (*TURNS, ALIVE):
        for step in dict.fromkeys(step for run in runs for step, _ in run.get(name, ())):
            values = [each.value for run in runs for at, each in run[name] if at == step]
            title = f"not registered, {name}, step {step}"
            figures.append(figure_of(title, mean_over(title, [float(value or 0.0) for value in values])))
    if len(falls) < 2:
        return Result(None, figures)
    return Result(any(in_time[name] == len(falls) for name in JUDGED), figures)


def _course(name: str, runs: Sequence[Readings]) -> list[Figure]:
    """The mean over runs before training, and the change to the last reading."""
    ends = [
        (values[0], values[-1])
        for run in runs
        if len(values := [each.number for _, each in run.get(name, ()) if each.number is not None]) > 1
    ]
    changes: dict[str, list[Any]] = {
        f"{name}: before training": [first for first, _ in ends],
        f"{name}: change to the end": [last - first for first, last in ends],
    }
    return [figure_of(title, mean_over(title, values)) for title, values in changes.items()]


def _shown(steps: Sequence[int | None]) -> str:
    return ", ".join("never" if step is None else str(step) for step in steps)
