"""The page of `heedful gradients`: signal, noise and regularisers by reward variance, one column per checkpoint.

The page is made only from the run's `gradients_<step>.json`. Every number has its interval, or the reason why it has
none. A signal that cannot be distinguished from zero is reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from heedful.diagnostics.catalogue import legend_of, mark_of
from heedful.report.drawing.bars import Bars, common_range, draw_bars
from heedful.report.drawing.chart import Curve, key
from heedful.report.drawing.numerals import numeral
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.record import Series
from heedful.report.templates import fill
from heedful.storage import MOST_STEP, RunFolder, StoredGradients, read_gradients, write_whole
from heedful.types import Metric
from heedful.version import __version__

FIGURES: tuple[tuple[str, str, tuple[tuple[str, str, int], ...]], ...] = (
    (
        "Task gradient: squared signal and squared noise",
        "Unbiased, of the mean gradient of each bucket's groups: the signal may fall below zero, the noise shrinks as "
        "groups are added, and together they are the squared norm.",
        (("signal²", "task_signal2", 1), ("noise²", "task_noise2", 2)),
    ),
    (
        "Task gradient of a single group: advantages not divided by the deviation",
        "Root mean square of the groups' norms, noise included: what the bound speaks of. It should climb.",
        (("R − mean", "task_undivided_group_norm", 1),),
    ),
    (
        "The same episodes, advantages divided by the group's deviation",
        "The bound no longer holds: advantages have the same size whatever the variance is.",
        (("(R − mean) / deviation", "task_divided_group_norm", 4),),
    ),
    (
        "KL penalty of a single group",
        "With a coefficient of 1, whatever the run's own is.",
        (("KL", "kl_group_norm", 3),),
    ),
    (
        "Entropy bonus of a single group",
        "With a coefficient of 1.",
        (("entropy", "entropy_group_norm", 5),),
    ),
    (
        "How much of the bound is used",
        "Norm of the gradient over its bound, of the mean gradient and of single groups (noise alone reaches one over "
        "the root of the members measured); and, squared and unbiased, of a prompt's expected gradient.",
        (
            ("mean gradient", "bound_tightness", 1),
            ("single groups", "bound_tightness_prompt", 2),
            ("expected, squared", "bound_tightness2_expected", 3),
        ),
    ),
)
"""Title, explanation and series (label, metric, hue) of each row of panels."""

TABLES: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "the task gradient",
        {
            "variance, sorted by": "sorted_variance",
            "variance, measured": "reward_variance",
            "signal²": "task_signal2",
            "noise²": "task_noise2",
            "signal² / noise²": "snr",
            "signal² of a prompt": "task_prompt_signal2",
        },
    ),
    (
        "norms of single groups",
        {
            "task, undivided": "task_undivided_group_norm",
            "task, divided": "task_divided_group_norm",
            "KL": "kl_group_norm",
            "entropy": "entropy_group_norm",
        },
    ),
    (
        "directions, and the bound",
        {
            "cosine task, KL": "cosine_task_kl",
            "cosine task, entropy": "cosine_task_entropy",
            "cosine KL, entropy": "cosine_kl_entropy",
            "bound, mean": "bound_tightness",
            "bound, groups": "bound_tightness_prompt",
            "bound², expected": "bound_tightness2_expected",
        },
    ),
)
"""Title and columns (heading -> metric) of each table."""
_BARE = frozenset({"sorted_variance", "reward_variance"})
"""Shown without their intervals."""


_LEAD = (
    "One panel per checkpoint, all panels of a row on one scale that begins at zero. Bucket 0 holds groups whose "
    "sorting half was constant; the others go up with the variance of the rewards. Under each name: its groups. A "
    "bucket is measured on the half of the members that did not choose it, <em>all</em> on all of them. Lines are 95% "
    "intervals over groups (in simulations those with a † held the truth in less than 90% of some cases); an arrow "
    "says that one goes on. A cross: nothing to read, point at it for the reason."
)


def write_gradients_page(folder: RunFolder) -> Path:
    """Write `gradients.html` from every stored measurement of a run, and return its path.

    Raises:
        ValueError: there is no measurement, or one cannot be read; the message names it.
    """
    stored = [read_gradients(folder.gradients(step)) for step in folder.gradient_steps()]
    if not stored:
        raise ValueError(
            f"Expected gradients_<step>.json in {folder.path}, found none: heedful gradients {folder.path}."
        )
    content = {
        "heading": "Signal and noise of the gradient",
        "lead": Markup(_LEAD),
        "sentences": list(dict.fromkeys(sentence for one in stored for sentence in sentences(one))),
        "rows": [(title, lead, panels(stored, series)) for title, lead, series in FIGURES],
        "tables": [(f"Step {one.step}: {title}", table(one, columns)) for one in stored for title, columns in TABLES],
    }
    write_whole(folder.gradients_page, page_of(folder, stored, content))
    return folder.gradients_page


def page_of(folder: RunFolder, stored: Sequence[StoredGradients], content: Mapping[str, object]) -> str:
    """The HTML of a page over stored measurements, with the conditions of each at its end."""
    measured = [(f"Step {one.step}", {fact: shown_fact(value) for fact, value in one.facts.items()}) for one in stored]
    about = {"name": folder.path.resolve().name, "version": __version__, "measured": measured}
    return fill("gradients.html", {**about, **content})


def sentences(stored: StoredGradients) -> list[str]:
    """What one measurement shows of the whole batch."""
    signal, noise = stored.metric("gradient/all/task_signal2"), stored.metric("gradient/all/task_noise2")
    prompts = stored.metric("gradient/all/task_prompt_signal2")
    if signal.number is None or noise.number is None or not signal.n:
        return [f"Step {stored.step}: unknown ({signal.why})."]
    size = stored.facts.get("group_size", "?")
    found = (
        f"Step {stored.step}, {signal.n} groups of {size}: squared signal {cell(signal)}, squared noise {cell(noise)}."
    )
    if signal.low is None or signal.low <= 0 or signal.number <= 0:
        found += " The signal cannot be distinguished from zero at this size."
    else:
        needed = signal.n * (noise.number / signal.number)
        many = "more than any number of" if needed > MOST_STEP else f"about {numeral(float(round(needed)))}"
        found += f" A batch of {many} such groups would hold as much signal as noise."
    names = [name for _, columns in TABLES for name in columns.values() if name not in _BARE]
    shown = [stored.metric(f"gradient/{bucket}/{name}") for bucket in buckets(stored) for name in names]
    said = [found, f"Step {stored.step}: a prompt's own expected gradient has the squared norm {cell(prompts)}."]
    return [sentence for sentence in (*said, legend_of(shown)) if sentence]


def buckets(stored: StoredGradients) -> list[str]:
    """The names of the scopes, buckets first."""
    names = {match[1] for name in stored.metrics if (match := re.match(r"gradient/(bucket_\d{1,9})/", name))}
    return [*sorted(names, key=lambda name: int(name.partition("_")[2])), "all"]


def table(stored: StoredGradients, columns: Mapping[str, str]) -> list[list[str]]:
    """Heading, and one row per bucket that holds a group."""
    rows = [["bucket", "groups", *columns]]
    for bucket in buckets(stored):
        groups = stored.metric(f"gradient/{bucket}/reward_variance").n
        if not groups:
            continue
        row = [bucket.removeprefix("bucket_"), str(groups)]
        for name in columns.values():
            metric = stored.metric(f"gradient/{bucket}/{name}")
            row.append(cell(replace(metric, low=None, high=None) if name in _BARE else metric))
        rows.append(row)
    return rows


def cell(metric: Metric) -> str:
    """Value and interval; a dash where there is none."""
    if metric.number is None:
        return "–"
    if metric.low is None or metric.high is None:
        return numeral(metric.number)
    return f"{numeral(metric.number)} [{numeral(metric.low)}, {numeral(metric.high)}{mark_of(metric)}]"


def panels(stored: Sequence[StoredGradients], series: Sequence[tuple[str, str, int]]) -> list[DrawnPanel]:
    """One panel per measurement, all on one scale."""
    drawn = []
    of_each = [
        tuple(
            Bars(label, hue, tuple(one.metric(f"gradient/{bucket}/{name}") for bucket in buckets(one)))
            for label, name, hue in series
        )
        for one in stored
    ]
    span = common_range(of_each)
    legend = tuple((key(Curve(label, Series("", ()), hue), stacked=True), label) for label, _, hue in series)
    for one, bars in zip(stored, of_each, strict=True):
        names = [bucket.removeprefix("bucket_") for bucket in buckets(one)]
        counts = [f"n {one.metric(f'gradient/{bucket}/reward_variance').n or 0}" for bucket in buckets(one)]
        title = f"Step {one.step}"
        svg = draw_bars(bars, names, counts, span, f"{title}: {', '.join(label for label, _, _ in series)}")
        drawn.append(DrawnPanel(title, "", svg, legend=legend))
    return drawn


def shown_fact(value: str | int | float | None) -> str | Markup:
    """One condition of a measurement."""
    return "none" if value is None else numeral(value) if isinstance(value, int | float) else value
