"""What a folder of seeds adds up to: the table at the end of `--seeds`, `seeds.json`, `seeds.md` and a comparison page.

Promise: made from the run folders alone, so it can be made again after an interrupted seed was finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.report import write_comparison
from heedful.report.comparison import MOST_RUNS
from heedful.run.evaluation import paired_gain, success_metric
from heedful.run.subjects import read_config
from heedful.storage import RunFolder, read_rollouts, write_whole
from heedful.studies.seed_statistics import PooledGain, pool, task_gains, task_rates
from heedful.types import Metric

if TYPE_CHECKING:
    from rich.console import Console

FILE = "seeds.json"
KINDS = ("sampled", "greedy")


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed's run; its readings by kind (`sampled`, `greedy`)."""

    seed: int
    folder: RunFolder
    state: str
    """`done`, or why it is not."""
    regime: str = ""
    before: Mapping[str, Metric] = field(default_factory=dict)
    after: Mapping[str, Metric] = field(default_factory=dict)
    gain: Mapping[str, Metric] = field(default_factory=dict)
    """Paired by task."""
    by_task: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The gain of each task."""


@dataclass(frozen=True, slots=True)
class SeedSummary:
    """All seeds of one configuration."""

    results: tuple[SeedResult, ...]
    pooled: Mapping[str, PooledGain]
    """By kind, over the seeds that are done."""


def read_result(seed: int, folder: RunFolder, state: str) -> SeedResult:
    """What one seed's folder holds. A run with a verdict is done, whatever `state` says."""
    if not folder.verdict.exists():
        return SeedResult(seed, folder, state if state != "done" else "unfinished")
    config = read_config(folder)
    regime = str(json.loads(folder.verdict.read_text(encoding="utf-8")).get("regime", ""))
    before: dict[str, Metric] = {}
    after: dict[str, Metric] = {}
    gain: dict[str, Metric] = {}
    by_task: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        paths = [folder.rollouts(version, f"{config.evaluation.split}_{kind}") for version in (0, config.steps)]
        if not all(path.exists() for path in paths):
            missing = Metric(kind, None, 0, why="not evaluated both before and after")
            before[kind] = after[kind] = gain[kind] = missing
            by_task[kind] = {}
            continue
        first, last = (read_rollouts(path).groups for path in paths)
        before[kind], after[kind] = success_metric(kind, first), success_metric(kind, last)
        gain[kind] = paired_gain(f"gain/{kind}", first, last)
        by_task[kind] = task_gains(task_rates(first), task_rates(last))
    return SeedResult(seed, folder, "done", regime, before, after, gain, by_task)


def summarise(parent: Path, console: Console, states: Mapping[int, str] | None = None) -> SeedSummary:
    """Print the table of a folder of seeds and write `seeds.json`, `seeds.md` and, for 2 to 6 seeds, a comparison.

    `states`: what is known of each seed beyond its files; by default what `seeds.json` says.
    """
    listed = read_list(parent)
    results = tuple(
        read_result(seed, RunFolder(parent / name), (states or {}).get(seed, state)) for seed, name, state in listed
    )
    done = [result for result in results if result.state == "done"]
    pooled = {kind: pool(f"gain/{kind}", [result.by_task[kind] for result in done]) for kind in KINDS}
    summary = SeedSummary(results, pooled)
    write_whole(parent / FILE, json.dumps(_tree(summary), indent=1) + "\n")
    write_whole(parent / "seeds.md", markdown(summary))
    _print(summary, console)
    if 2 <= len(done) <= MOST_RUNS:
        page = write_comparison([result.folder.path for result in done], parent / "comparison.html")
        console.print(f"Comparison: {page}", soft_wrap=True)
    elif len(done) > MOST_RUNS:
        console.print(f"No comparison page: it shows at most {MOST_RUNS} runs. Choose: heedful report RUN_A RUN_B ...")
    console.print(f"Table:      {parent / 'seeds.md'}", soft_wrap=True)
    return summary


def write_list(parent: Path, seeds: Sequence[int]) -> None:
    """Note which seeds the folder is for, before any of them has begun."""
    rows = [{"seed": seed, "folder": f"s{seed}", "state": "waiting"} for seed in seeds]
    write_whole(parent / FILE, json.dumps({"seeds": rows}, indent=1) + "\n")


def read_list(parent: Path) -> list[tuple[int, str, str]]:
    """(seed, folder name, state) as `seeds.json` lists them. Raises a sentence if it cannot be read."""
    path = parent / FILE
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["seeds"]
        return [(int(row["seed"]), str(row["folder"]), str(row["state"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"Expected the list of seeds that `heedful train --seeds` writes in {path}, found {error!r}. "
            "Name the runs themselves: heedful report RUN_A RUN_B."
        ) from error


def shown(metric: Metric, signed: bool = False) -> str:
    """A value with its interval; a dash where there is none."""
    if not isinstance(metric.value, int | float):
        return "-"
    form = "+.3f" if signed else ".3f"
    text = f"{metric.value:{form}}"
    return text if metric.low is None or metric.high is None else f"{text} [{metric.low:{form}}, {metric.high:{form}}]"


def _cells(result: SeedResult) -> list[str]:
    if result.state != "done":
        return [str(result.seed), "-", "-", "-", "-", result.state]
    return [
        str(result.seed),
        shown(result.before["sampled"]),
        shown(result.after["sampled"]),
        shown(result.gain["sampled"], signed=True),
        shown(result.gain["greedy"], signed=True),
        result.regime,
    ]


_HEADER = ("seed", "sampled before", "sampled after", "sampled gain", "greedy gain", "regime")


def _sentences(summary: SeedSummary) -> list[str]:
    done = sum(result.state == "done" for result in summary.results)
    if not done:
        return ["No seed is done: there is nothing to pool."]
    lines = []
    for kind, pooled in summary.pooled.items():
        seeds, tasks = pooled.over_seeds, pooled.over_tasks
        if seeds.value is None or pooled.lowest is None or pooled.highest is None:
            lines.append(f"{kind} gain: unknown ({seeds.why})")
            continue
        over_seeds = shown(seeds, signed=True) + (f" ({seeds.why})" if seeds.why else "")
        over_tasks = shown(tasks, signed=True) + (f" ({tasks.why})" if tasks.why else "")
        lines += [
            f"{kind} gain over {seeds.n} seeds (would another seed gain as much?): {over_seeds}; "
            f"from {pooled.lowest:+.3f} to {pooled.highest:+.3f}",
            f"{kind} gain over {tasks.n} tasks (would these seeds gain as much on other tasks?): {over_tasks}",
        ]
    return lines


def markdown(summary: SeedSummary) -> str:
    """The table and the pooled gains, for people."""
    rows = [_HEADER, ["---"] * len(_HEADER), *(_cells(result) for result in summary.results)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {sentence}" for sentence in _sentences(summary)]
    head = "Success on held-out tasks before and after training, with 95% intervals; gains are paired by task."
    reports = [
        f"- seed {result.seed}: `{result.folder.report.parent.name}/{result.folder.report.name}`"
        for result in summary.results
        if result.state == "done"
    ]
    return "\n".join([head, "", *table, "", *notes, "", "Reports:", "", *reports, ""])


def _print(summary: SeedSummary, console: Console) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in _HEADER:
        table.add_column(column)
    for result in summary.results:
        table.add_row(*_cells(result))
    console.print(table)
    for sentence in _sentences(summary):
        console.print(f"  - {sentence}", soft_wrap=True)
    for result in summary.results:
        if result.state == "done":
            console.print(f"Report {result.seed}:   {result.folder.report}", soft_wrap=True)


def _tree(summary: SeedSummary) -> dict[str, Any]:
    def metric(reading: Metric) -> dict[str, Any]:
        return {name: getattr(reading, name) for name in ("value", "low", "high", "n", "why")}

    def gains(result: SeedResult) -> dict[str, Any]:
        stages = {"before": result.before, "after": result.after, "gain": result.gain}
        return {kind: {stage: metric(readings[kind]) for stage, readings in stages.items()} for kind in KINDS}

    return {
        "seeds": [
            {"seed": result.seed, "folder": result.folder.path.name, "state": result.state}
            | (gains(result) | {"regime": result.regime} if result.state == "done" else {})
            for result in summary.results
        ],
        "pooled": {
            kind: {
                "over_seeds": metric(pooled.over_seeds),
                "over_tasks": metric(pooled.over_tasks),
                "lowest": pooled.lowest,
                "highest": pooled.highest,
            }
            for kind, pooled in summary.pooled.items()
        },
    }
