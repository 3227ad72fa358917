"""The parts of updates: a table, sentences, and one panel of bars per reading. `attribution.html` holds them.

A reading whose total is far from its measured change is shown as it is: the first order of the step was not enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from heedful.boundary.jsontext import read_json
from heedful.diagnostics.attribution import BEFORE, EXPLAINED, GREEDY, MEASURED, TOTAL, is_clear
from heedful.report.drawing.bars import Bars, common_range, draw_bars
from heedful.report.drawing.chart import Curve, key
from heedful.report.drawing.numerals import numeral
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.gradients import cell, page_of
from heedful.report.record import Series
from heedful.storage import RunFolder, StoredGradients, read_gradients, write_whole
from heedful.types import Metric

READINGS = {
    "success": ("sampled success", "mean outcome"),
    "gap": ("gap", "nats"),
    "mi": ("mutual information", "nats"),
    "thought_entropy": ("entropy of a thought", "nats"),
    "right_by_thought": ("right by thought", "probability"),
    "greedy_success": ("greedy success", "mean outcome"),
}
"""Reading -> its title and its unit, the one by which causes are ranked first."""
_NOT_PARTS = (BEFORE, TOTAL, MEASURED, EXPLAINED)
UNNAMED = ("carried", "decay")
"""Parts that are no term of the loss, so no cause."""
LEAST_TAKEN = 0.01
"""Mean success that a part takes, at least, to be told as a cause. By its interval alone a part worth .003 was told in
2 of 12 healthy runs of a registered study, and with this size, which was registered as well, in none."""
MOST_ADDED = 7
"""Split updates that are added up: the most of that study's. In a sum over hundreds every part would be large."""
_MOST_PARTS = 5
"""Parts that a chart shows beside the measured change. The table has all of them."""
_LEAD = (
    "For each update, its largest parts to first order, beside the change measured on the same fresh thoughts. "
    "Lines are 95% intervals. Point at a bar for its value."
)


def part_names(stored: StoredGradients) -> list[str]:
    """The parts of the update, in order."""
    names = [name.split("/", 2)[2] for name in stored.metrics if name.startswith("attribution/")]
    return [name for name in dict.fromkeys(names) if name not in _NOT_PARTS]


def _read(stored: StoredGradients) -> list[str]:
    """What was read, or asked for."""
    return [name for name in READINGS if any(each.startswith(f"attribution/{name}/") for each in stored.metrics)]


def parts_table(stored: StoredGradients) -> list[list[str]]:
    """Heading, and one row per part, with the total, the measured change and their ratio below."""
    readings = [name for name in _read(stored) if f"attribution/{name}/{MEASURED}" in stored.metrics]
    rows = [["part", *(f"{READINGS[name][0]}, {READINGS[name][1]}" for name in readings)]]
    for part in (*part_names(stored), TOTAL, MEASURED, EXPLAINED, BEFORE):
        label = {EXPLAINED: "total / measured", BEFORE: "before the update"}.get(part, part)
        rows.append([label, *(cell(stored.metric(f"attribution/{name}/{part}")) for name in readings)])
    return rows


def told(stored: StoredGradients) -> list[str]:
    """The largest part that is clear of 0 of each reading, and what the numbers are."""
    if "why" in stored.facts:
        return [f"Step {stored.step}: not split, because {stored.facts['why']}."]
    found = []
    for name in _read(stored):
        title, unit = READINGS[name]
        measured = stored.metrics.get(f"attribution/{name}/{MEASURED}")
        if measured is not None and measured.value is None:
            found.append(f"Step {stored.step}, {title}: not read, because {measured.why}.")
            continue
        if name == GREEDY and measured is not None:
            found.append(f"Step {stored.step}, {title} ({unit}): changed by {cell(measured)}. It has no parts.")
            continue
        metrics = [(part, stored.metric(f"attribution/{name}/{part}")) for part in part_names(stored)]
        clear = [(part, metric) for part, metric in metrics if is_clear(metric)]
        clear.sort(key=lambda each: -abs(each[1].number or 0.0))
        parts = ", ".join(f"{part} {cell(metric)}" for part, metric in clear[:2]) or "no part is clear of 0"
        found.append(f"Step {stored.step}, {title} ({unit}): {parts}.")
    return [*found, f"These are parts {stored.facts.get('what', '')}."]


def cause(folder: RunFolder, step: int) -> str:
    """The part that took most of success in the newest split updates up to a step, as a sentence; empty without one.

    A part's changes are added up over at most `MOST_ADDED` updates, half intervals in quadrature. The lowest sum is
    told if its interval leaves 0 and it is at most -`LEAST_TAKEN`. The parts `UNNAMED` are no candidates. Where success
    was not read, it is the gap's lowest sum by its interval alone: for nats no size was registered.

    Source: the second rule of the study `attribution_causes`, which named the planted part in 12 of 12 runs and none in
    12 healthy ones. Deviation: there all split updates up to the first alarm of a collapse were added up, 2 to 7.
    """
    steps = [one for one in folder.attribution_steps() if one <= step][-MOST_ADDED:]
    stored = [read_gradients(folder.attribution(one)) for one in steps]
    for reading, unit, least, doubt in (
        ("success", "of mean success", LEAST_TAKEN, ""),
        (
            "gap",
            "nats of the gap between prompts",
            0.0,
            "; success was not read, and how much of the gap matters is not known",
        ),
    ):
        prefix = f"attribution/{reading}/"
        read = [one for one in stored if one.metric(prefix + TOTAL).number is not None]
        names = dict.fromkeys(part for one in read for part in part_names(one) if part not in UNNAMED)
        sums = {part: summed([one.metric(prefix + part) for one in read]) for part in names}
        if not sums:
            continue
        values = {part: metric.number or 0.0 for part, metric in sums.items()}
        worst, best = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        taken = -values[worst]
        if not is_clear(sums[worst]) or taken <= 0 or taken < least:
            return ""
        when = f"the update of step {read[-1].step}"
        if len(read) > 1:
            when = f"the {len(read)} split updates of steps {read[0].step} to {read[-1].step}"
        gave = is_clear(sums[best]) and values[best] > 0
        given = f"; {_words(best)} gave {numeral(values[best])}" if gave else ""
        said = f"In {when}, {_words(worst)} took {numeral(taken)} {unit}"
        return f"{said}{given}{doubt} (heedful gradients RUN --attribute)."
    return ""


def summed(found: Sequence[Metric]) -> Metric:
    """The sum of the readings that have a value. Without an interval where one of them has none and is not 0."""
    known = [metric for metric in found if metric.number is not None]
    value = math.fsum(metric.number or 0.0 for metric in known)
    halves = [(metric.high - metric.low) / 2 for metric in known if metric.low is not None and metric.high is not None]
    if any(metric.low is None and metric.number for metric in known):
        return Metric("", value, why="no interval")
    half = math.hypot(*halves)
    return Metric("", value, None, value - half, value + half)


def measured_causes(folder: RunFolder, step: int) -> list[str]:
    """What was measured of a run's causes up to a step: by its newest forks, then by a split update."""
    done = [path.parent for path in folder.forks.glob("*/results.json") if path.parent.name.isdecimal()]
    sentences = list[str]()
    for newest in sorted(done, key=lambda path: int(path.name))[-1:]:
        sentences += [
            f"Forks from step {found['checkpoint']}: {' '.join(found['sentences'][:2])} ({newest / 'study.html'})"
            for found in read_json(newest / "results.json")["outcomes"]  # none where no unchanged fork is over
        ]
    return [*sentences, *filter(None, [cause(folder, step)])]


def _words(part: str) -> str:
    """A part of an update, for a sentence."""
    for kind, groups in (("_constant", "of one outcome"), ("_varied", "whose outcome varies")):
        if part.endswith(kind):
            return f"the reward {part.removesuffix(kind)} in groups {groups}"
    regularisers = {"kl": "the KL penalty", "entropy": "the entropy bonus"}
    return regularisers.get(part, f"the part {part}")


def panel(stored: Sequence[StoredGradients], reading: str) -> DrawnPanel:
    """The largest parts of each update and its measured change, side by side with their intervals."""
    title, unit = READINGS[reading]
    sizes: dict[str, float] = {}
    for one in stored:
        for part in part_names(one):
            value = one.metric(f"attribution/{reading}/{part}").number
            if value is not None:
                sizes[part] = max(sizes.get(part, 0.0), abs(value))
    if not sizes and reading != GREEDY:
        return DrawnPanel(title, unit, absent="no update was split")
    hues = {part: hue for hue, part in enumerate(sorted(sizes, key=lambda part: -sizes[part])[:_MOST_PARTS], start=1)}
    bars = [
        Bars(part, hue, tuple(one.metric(f"attribution/{reading}/{part}") for one in stored))
        for part, hue in {**hues, MEASURED: _MOST_PARTS + 1}.items()
    ]
    steps = [f"step {one.step}" for one in stored]
    svg = draw_bars(bars, steps, [""] * len(steps), common_range([bars]), f"{title}: the parts of updates")
    legend = tuple((key(Curve(each.label, Series("", ()), each.hue), stacked=True), each.label) for each in bars)
    return DrawnPanel(title, unit, svg, legend=legend)


def moved_table(stored: StoredGradients, reading: str) -> list[list[str]]:
    """The episodes of the batch that moved a reading most in this step, with their largest terms and tokens."""
    rows = [["episode", "all terms", "largest terms", "tokens that moved most"]]
    for one in stored.moved:
        if one["reading"] == reading:
            terms = sorted(one["terms"].items(), key=lambda each: -abs(each[1]))[:2]
            rows.append(
                [
                    f"group {one['group']}, member {one['member']}",
                    numeral(one["total"]),
                    ", ".join(f"{name} {numeral(value)}" for name, value in terms),
                    ", ".join(f"{text!r} {numeral(value)}" for text, value in one["tokens"]),
                ]
            )
    return rows


def write_attribution_page(folder: RunFolder) -> Path:
    """Write `attribution.html` from every split update of a run, and return its path."""
    stored = [read_gradients(folder.attribution(step)) for step in folder.attribution_steps()]
    tables = [(f"Step {one.step}: the parts of the update", parts_table(one)) for one in stored]
    read = {reading for one in stored for reading in _read(one)}
    for one in stored:
        for reading in dict.fromkeys(each["reading"] for each in one.moved):
            title = f"Step {one.step}: episodes of the batch whose gradient moved {READINGS[reading][0]} most"
            tables.append((title, moved_table(one, reading)))
    content = {
        "heading": "Which part of the loss moved the thoughts",
        "lead": _LEAD,
        "sentences": list(dict.fromkeys(sentence for one in stored for sentence in told(one))),
        "rows": [("Parts of each update", "", [panel(stored, reading) for reading in READINGS if reading in read])],
        "tables": tables,
    }
    write_whole(folder.attribution_page, page_of(folder, stored, content))
    return folder.attribution_page
