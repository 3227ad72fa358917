"""One page that compares runs, and shows their rollouts side by side.

Every curve and every final value carries the interval it was measured with. The page says that these intervals, and
more seeds, decide which differences are noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.diagnostics.catalogue import unit_of
from heedful.report.drawing.chart import Axis, Curve, Frame, key
from heedful.report.drawing.numerals import interval, numeral
from heedful.report.drawing.panel import Panel, draw
from heedful.report.first import told
from heedful.report.page import embedded
from heedful.report.panels import splits
from heedful.report.record import RunRecord, Series, read_run
from heedful.report.templates import fill
from heedful.storage import refuse_typed, write_whole
from heedful.version import __version__

FIRST = 6
"""Charts above the rollouts."""
MOST_RUNS = 6
"""Most runs: the number of colours and shapes that a reader can distinguish."""

_FIGURES: tuple[tuple[str, str, Axis], ...] = (
    ("Success in training", "success/rate", Axis.SHARE),
    ("Reward", "reward/mean", Axis.FITTED),
    ("Reward, as the trainer says", "trainer/reward", Axis.FITTED),
    ("Mutual information, first turn", "information/first_turn/mi", Axis.FROM_ZERO),
    ("Ceiling of mutual information", "information/first_turn/mi_ceiling", Axis.FITTED),
    ("Gap per token, first turn", "information/first_turn/gap_per_token", Axis.FITTED),
    ("Retrieval accuracy, first turn", "retrieval/first_turn/accuracy", Axis.SHARE),
    ("Influence of the thought", "grounding/thought_influence", Axis.SHARE),
    ("Entropy of thoughts, given the prompt", "information/first_turn/entropy_conditional_per_token", Axis.FITTED),
    ("Entropy of the policy", "policy/entropy_per_token", Axis.FITTED),
    ("Replies executable as written", "format/valid_rate", Axis.SHARE),
    ("Groups kept by the filter", "filter/kept_ratio", Axis.SHARE),
    ("Groups whose members differ", "signal/mixed", Axis.SHARE),
    ("Length of a thought", "length/reasoning_tokens", Axis.FITTED),
    ("Gradient norm", "policy/gradient_norm", Axis.FITTED),
    ("KL to the sampler", "policy/kl_to_sampler", Axis.FITTED),
)
"""Title, metric, and axis."""

_ONLY_TABLED = ("/random/success", "/fixed/success", "/best/success", "/mi_ceiling")
"""Endings of metrics that hardly move: a row of the table says all."""


@dataclass(frozen=True, slots=True)
class FinalValue:
    """The last value of one metric in one run."""

    value: str
    interval: str
    note: str
    """At which step and of how many, or why there is none."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value is not the same in all runs."""

    key: str
    values: tuple[str, ...]


def write_comparison(runs: Sequence[Path | str], out: Path | str) -> Path:
    """Write a page that lays two to six runs over one another, and return its path.

    Raises:
        ValueError: fewer than two runs or more than six, a run cannot be read, or `out` is another file.
    """
    if not 2 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"Expected 2 to {MOST_RUNS} runs to compare, found {len(runs)}. Name their folders.")
    refuse_typed(Path(out), b"<!doctype html>")
    records = [read_run(Path(run)) for run in runs]
    figures = [*_evaluations(records), *_FIGURES]
    frame = Frame((min(run.steps[0] for run in records), max(run.steps[1] for run in records)))
    names = list(enumerate(zip(_names(records), records, strict=True), start=1))
    panels = []
    for title, metric, axis in figures:
        curves = tuple(Curve(name, _series(run, metric), hue) for hue, (name, run) in names)
        if not metric.endswith(_ONLY_TABLED):
            panels.append(draw(Panel(title, unit_of(metric), curves, axis, optional=True), frame))
    page = fill(
        "comparison.html",
        {
            "version": __version__,
            **embedded(records, Path(out), names=_names(records)),
            "runs": [(key(Curve(name, Series("", ()), hue)), name, run, told(run)) for hue, (name, run) in names],
            "first": FIRST,
            "panels": [panel for panel in panels if panel is not None and not panel.absent],
            "audited": all(run.audited for run in records),
            "finals": [
                (title, unit_of(metric), [_final(_series(run, metric)) for run in records])
                for title, metric, _ in figures
                if any(_series(run, metric).points for run in records)
            ],
            "config": _differences([run.config for run in records]),
            "environment": _differences([run.environment for run in records]),
        },
    )
    write_whole(out, page)
    return Path(out)


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Folder names, with as much of the path before them as tells them apart."""
    paths = [run.folder.path.resolve() for run in records]
    # The folder of a record inside another trainer is always called heedful.
    for parts in range(2 if any("trainer" in run.config for run in records) else 1, 6):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _evaluations(records: Sequence[RunRecord]) -> list[tuple[str, str, Axis]]:
    found = dict.fromkeys(split for run in records for split in splits(run))
    return [
        (f"Success on {split}, {how}", f"eval/{split}/{how}/success", Axis.SHARE)
        for split in found
        for how in ("sampled", "greedy", "random", "fixed")
        if any(run.get(f"eval/{split}/{how}/success").points for run in records)
    ]


def _series(run: RunRecord, metric: str) -> Series:
    """The values of a metric; of that of another model, where only another one has judged the thoughts."""
    family, _, rest = metric.partition("/")
    return run.get(f"{run.family(family)}/{rest}")


def _final(series: Series) -> FinalValue:
    if not series.numeric:
        why = (series.points[-1].metric.why or "no reason given") if series.points else "not recorded"
        return FinalValue("–", "", why)
    last = series.numeric[-1]
    of = "" if last.metric.n is None else f", n {last.metric.n:,}"
    return FinalValue(numeral(last.number or 0.0), interval(last.metric), f"step {last.step}{of}")


def _differences(flats: Sequence[Mapping[str, str]]) -> list[Difference]:
    keys = dict.fromkeys(key for flat in flats for key in flat)
    rows = [Difference(key, tuple(flat.get(key, "absent") for flat in flats)) for key in keys]
    return [row for row in rows if len(set(row.values)) > 1]
