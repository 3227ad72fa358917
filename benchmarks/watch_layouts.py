"""Runs written as TRL, verl, prime-rl and a plain loop write theirs, audited: which alarms are raised, and when.

    python -m benchmarks.watch_layouts --seeds 3    # one line for each run; goes on where it was stopped
    python -m benchmarks.watch_layouts --replay     # some of them once more, watched while they are written

The series are those of `benchmarks.scalar_series`, written by `benchmarks.layouts` into a folder that is removed
afterwards. `heedful audit` reads rollouts and scalars with its defaults, `--every 8` and `--validation-tasks 256`.
Where rldoctor and rlwatch are installed, they judge the scalars: rldoctor opens the file itself, rlwatch gets each line
through its own table of names. Neither reads consoles: they get the other file.

A step has 12 prompts of 4 episodes, half as many as in memory, at half the cost. The one exception is the collapse of
entropy. Its alarm needs a fall of success by 4 standard errors, too: in memory it came within 40 steps in 20 of 20 runs
with 8 episodes, and in 17 of 20 with 4 (seeds 0 to 19). So it has 8 here, as the in-memory study. The same with 4 is
shown beside it: 75% to 95% are expected in time.

What is expected, as written before the confirming runs (seeds from 9100 on in TRL, from 10100 in verl, from 11100 in
prime-rl, from 12100 in plain; earlier versions were looked at on seeds below 8200): no alarm in 400 healthy runs, the
named alarm in time in 95% of the runs of a scenario. Else what `scalar_series` expects with rollouts, in every layout,
but for

- KL blow-up in prime-rl, which logs no divergence from a reference: nothing is raised;
- entropy collapse: `low_entropy_collapse` within 40 steps, as thoughts and success are known;
- template collapse, which scalars do not show: `words_uninformed` within 25 steps;
- too hard with a format that is right in 60%: `reward_part_dominates` was not built, so nothing is required.

The blind reward is left out: no such log holds `progress`. A stalled run has no end to be audited.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.layouts import LAYOUTS, Layout, Written, write_run
from benchmarks.scalar_series import DROPS, HEALTHY, SCENARIOS, VALIDATION, Scenario, Series
from heedful.auditing.follow import Clock, Ends, follow
from heedful.auditing.run import Audit, audit
from heedful.auditing.scalars import scalar_rows
from heedful.auditing.settings import AuditSettings
from heedful.diagnostics.statistics.intervals import wilson

WORDS = frozenset({"words_uninformed", "template_collapse", "input_blind"})
COLLAPSE = replace(
    SCENARIOS["entropy collapse"],
    series=replace(SCENARIOS["entropy collapse"].series, words="one"),
    alarm="low_entropy_collapse",
    within=40,
    may=DROPS | WORDS,
)
STUDIED: Mapping[str, Scenario] = {
    **SCENARIOS,
    "too hard": replace(SCENARIOS["too hard"], series=replace(SCENARIOS["too hard"].series, form=lambda *_: 1.0)),
    "too hard, hidden": Scenario(
        Series(success=lambda step, since: 0.005, form=lambda step, since: 0.6), may=frozenset({"starvation"})
    ),
    "entropy rise": replace(
        SCENARIOS["entropy rise"],
        series=replace(SCENARIOS["entropy rise"].series, words="letters"),
        may=SCENARIOS["entropy rise"].may | WORDS,
    ),
    "entropy collapse": COLLAPSE,
    "entropy collapse, 4 episodes": COLLAPSE,
    "template collapse": Scenario(
        replace(HEALTHY, words="template"), "words_uninformed", 25, frozenset({"template_collapse"})
    ),
}
EIGHT = frozenset({"entropy collapse"})
"""Scenarios with 8 episodes of each prompt."""
REPLAYED = ("gradient not finite", "reward hacking", "template collapse")
UNKNOWN = {("KL blow-up", "prime-rl")}
"""Scenario and layout whose scalars do not hold what the alarm reads."""


def series_of(name: str) -> Series:
    return replace(STUDIED[name].series, members=8 if name in EIGHT else 4)


def audited(layout: Layout, log: Path, scalars: Path, out: Path) -> Audit:
    settings = AuditSettings(every=8, validation_tasks=VALIDATION, map=layout.map)
    return audit(log, scalars=[scalars], out=out, settings=settings, show=False)


def raised(done: Audit, origin: int) -> dict[str, int]:
    """Alarm -> the step at which it was first raised, the first step of the run being 0."""
    found: dict[str, int] = {}
    for line in done.metrics():
        for name, metric in line.metrics.items():
            if name.startswith("alarm/") and metric.value:
                found.setdefault(name.removeprefix("alarm/"), line.step - origin)
    return found


def rivals(scalars: Path) -> dict[str, str]:
    """What rldoctor (at the end) and rlwatch (at any step) say: the worst severity. Empty: not installed, or the tool
    reads no such file."""
    told = {}
    with suppress(ImportError):
        from rl_doctor import diagnose, load_run

        told["rldoctor"] = diagnose(load_run(str(scalars))).worst.name.lower()
    with suppress(ImportError):
        from rlwatch.config import RLWatchConfig
        from rlwatch.detectors import DetectorSuite
        from rlwatch.integrations.verl_tracking import _map_metrics

        suite, seen = DetectorSuite(RLWatchConfig()), list[str]()
        for row in scalar_rows(scalars):
            # Its table for verl holds the names of TRL and of a plain loop, too. It knows none of prime-rl's.
            if values := _map_metrics(dict(row.values)):
                seen += ["ok", *(alert.severity for alert in suite.check_step(row.step, **values))]
        if seen:
            told["rlwatch"] = next(each for each in ("critical", "warning", "info", "ok") if each in seen)
    return told


def measured(name: str, kind: str, seed: int) -> dict[str, Any]:
    layout, began = LAYOUTS[kind], time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        log, scalars = write_run(run, layout, series_of(name), seed)
        found = raised(audited(layout, log, scalars, Path(folder) / "audit"), layout.origin)
        seconds = round(time.process_time() - began, 1)
        told = rivals(run / layout.scalars[0].format(steps=100))
    return {"scenario": name, "layout": kind, "seed": seed, "raised": found, "rivals": told, "seconds": seconds}


@dataclass
class Trainer:
    """Writes a run in random pieces while a watch waits. Its clock is the watch's."""

    folder: Path
    pieces: Iterator[Written]
    rng: random.Random
    time: float = 1e9

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        for path, content, append in islice(self.pieces, self.rng.choice([0, 1, 4, 20])):
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab" if append else "wb") as stream:
                stream.write(content)
            os.utime(file, (self.time, self.time))


def torn(written: Iterator[Written], rng: random.Random) -> Iterator[Written]:
    """The same bytes, each writing in one to three pieces."""
    for path, content, append in written:
        cuts = sorted(rng.randrange(len(content)) for _ in range(rng.choice([0, 0, 1, 2])))
        for at, (begin, end) in enumerate(pairwise([0, *cuts, len(content)])):
            yield Written(path, content[begin:end], append or at > 0)


def replayed(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Watch a run while it is written, then audit it: alarms of both, and how many lines differ."""
    layout, rng = LAYOUTS[kind], random.Random(seed)
    settings = AuditSettings(every=8, validation_tasks=VALIDATION, map=layout.map)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        log, scalars = run / layout.log, run / layout.scalars[seed % 2].format(steps=100)
        log.parent.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(run, torn(layout.written(series_of(name), seed, 100), rng), rng)
        while not log.exists():
            trainer.sleep(2.0)
        follow(
            log, settings, scalars=[scalars], out=Path(folder) / "watch", ends=Ends(idle=300.0),
            clock=Clock(lambda: trainer.time, trainer.sleep),
        )  # fmt: skip
        assert next(trainer.pieces, None) is None
        done = audited(layout, log, scalars, Path(folder) / "audit")
        watched = Audit(Path(folder) / "watch")
        lines = [(each.path / "metrics.jsonl").read_text().splitlines() for each in (watched, done)]
        differ = sum(one != other for one, other in zip_longest(*lines))
        found = {"watched": raised(watched, layout.origin), "audited": raised(done, layout.origin)}
    return {"scenario": name, "layout": kind, "seed": seed, **found, "lines": len(lines[1]), "differ": differ}


def judged(line: Mapping[str, Any]) -> tuple[bool, set[str]]:
    """Whether the named alarm came in time, and the alarms that the scenario does not explain."""
    scenario, found = STUDIED[line["scenario"]], line["raised"]
    begin = 50 if scenario.within >= 0 else 0
    named = "" if (line["scenario"], line["layout"]) in UNKNOWN else scenario.alarm
    others = {alarm for alarm, step in found.items() if alarm not in {named, *scenario.may} or step < begin}
    return begin <= found.get(named, -1) <= 50 + scenario.within, others


def share(count: int, total: int) -> str:
    interval = wilson(count, total)
    return f"{count} of {total} ({interval.low:.2f} to {interval.high:.2f})"


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each scenario: what came in time in each layout, and in all of them.

    Intervals count series: one that was written in several layouts is good if each of them is.
    """
    tail = "in time (95%) | first raised (median) | other alarms | rldoctor | rlwatch"
    yield f"| scenario | alarm | {' | '.join(LAYOUTS)} | {tail} |"
    yield "|" + "---|" * (len(LAYOUTS) + 7)
    for name, scenario in STUDIED.items():
        runs = [line for line in lines if line["scenario"] == name]
        known = [line for line in runs if (name, line["layout"]) not in UNKNOWN]
        if not known:
            continue
        cells = []
        for kind in LAYOUTS:
            held = [line for line in runs if line["layout"] == kind]
            timely = f"{sum(judged(line)[0] for line in held)} of {len(held)}"
            cells.append(timely if scenario.alarm and (name, kind) not in UNKNOWN else f"- ({len(held)})")
        steps = [line["raised"][scenario.alarm] for line in known if scenario.alarm in line["raised"]]
        counts = Counter(alarm for line in runs for alarm in judged(line)[1])
        kinds = f" ({', '.join(f'`{alarm}` {count}' for alarm, count in counts.items())})" if counts else ""
        wrong = sum(bool(judged(line)[1]) for line in runs)
        late = {line["seed"] for line in known if not judged(line)[0]}
        series = {line["seed"] for line in known}
        timely = share(len(series - late), len(series)) if scenario.alarm else "-"
        others = []
        for tool in ("rldoctor", "rlwatch"):
            told = [line["rivals"][tool] for line in runs if tool in line["rivals"]]
            others.append(f"{sum(each in ('warning', 'critical') for each in told)} of {len(told)}" if told else "-")
        alarm = f"`{scenario.alarm}`" if scenario.alarm else "none"
        yield (
            f"| {name} | {alarm} | {' | '.join(cells)} | {timely} | {f'{median(steps):g}' if steps else '-'} | "
            f"{wrong} of {len(runs)}{kinds} | {' | '.join(others)} |"
        )
    healthy = [line for line in lines if "healthy" in line["scenario"]]
    if healthy:
        yield ""
        series = {(line["scenario"], line["seed"]) for line in healthy}
        wrong = {(line["scenario"], line["seed"]) for line in healthy if line["raised"]}
        yield f"False alarms in {len(healthy)} healthy runs: {share(len(wrong), len(series))} series."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each scenario and layout (default: %(default)s)")
    parser.add_argument("--healthy", type=int, default=8, help="runs of each healthy one (default: %(default)s)")
    parser.add_argument("--first", type=int, default=9100, help="the first seed (default: %(default)s)")
    parser.add_argument("--replay", action="store_true", help="watch some of the scenarios in each layout")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "watch_layouts.jsonl")
    chosen = parser.parse_args()
    if chosen.replay:
        for name in REPLAYED:
            for kind in LAYOUTS:  # odd seeds: TRL's console grows, and trainer_state.json does not
                print(json.dumps(replayed(name, kind, chosen.first + 1)), flush=True)
        return
    lines = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    done = {(line["scenario"], line["layout"], line["seed"]) for line in lines}
    ends = time.monotonic() + 60 * chosen.minutes
    # Seed by seed, healthy runs in proportion, so that a study that was stopped is balanced.
    wanted = sorted(
        (at / (chosen.healthy if "healthy" in name else chosen.seeds), name, kind, chosen.first + 1000 * place + at)
        for name in STUDIED
        for place, kind in enumerate(LAYOUTS)
        for at in range(chosen.healthy if "healthy" in name else chosen.seeds)
    )
    for _, name, kind, seed in wanted:
        if (name, kind, seed) not in done and time.monotonic() < ends:
            lines.append(measured(name, kind, seed))
            with chosen.out.open("a") as stream:
                stream.write(json.dumps(lines[-1]) + "\n")
            print(f"{name}, {kind}, {seed}: {lines[-1]['raised']}", file=sys.stderr, flush=True)
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
