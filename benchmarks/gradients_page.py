"""The tables of docs/results/gradients.md and its figure, from the measurements that the study `gradients` has stored.

    python -m research gradients
    python benchmarks/gradients_page.py runs/study-gradients

The tables replace what is between `<!-- table: NAME -->` and `<!-- end -->`. All buckets of all measurements go to
benchmarks/results/studies/gradients_buckets.md. The figure shows seed 0.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from heedful.report.drawing.bars import Bars, common_range, draw_bars
from heedful.report.drawing.numerals import numeral
from heedful.report.gradients import FIGURES, buckets, cell
from heedful.storage import RunFolder, StoredGradients, read_gradients
from heedful.types import Metric

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURE = DOCS / "results" / "gradients.md", DOCS / "images" / "gradients.svg"
BUCKETS = Path(__file__).parent / "results" / "studies" / "gradients_buckets.md"

TREND = {
    "undivided": "task_undivided_trend",
    "divided": "task_divided_trend",
    "KL": "kl_trend",
    "entropy": "entropy_trend",
    "undivided minus KL": "task_undivided_trend_over_kl",
    "undivided minus entropy": "task_undivided_trend_over_entropy",
}
LOWEST = {
    "task": "task_norm",
    "KL, times 0.01": "kl_weighted_norm",
    "entropy, times 0.01": "entropy_weighted_norm",
    "a group: task": "task_group_norm",
    "a group: KL": "kl_group_norm",
    "a group: entropy": "entropy_group_norm",
}

WHOLE = {
    "signal²": "task_signal2",
    "noise²": "task_noise2",
    "signal² / noise²": "snr",
    "signal² of a prompt": "task_prompt_signal2",
    "cosine task, KL": "cosine_task_kl",
    "cosine task, entropy": "cosine_task_entropy",
    "cosine KL, entropy": "cosine_kl_entropy",
    "bound, mean": "bound_tightness",
    "bound, groups": "bound_tightness_prompt",
    "bound², expected": "bound_tightness2_expected",
}
NORMS = {
    "undivided": "task_undivided_group_norm",
    "divided": "task_divided_group_norm",
    "KL": "kl_group_norm",
    "entropy": "entropy_group_norm",
}
ROWS = (
    "task, signal² (blue) and noise² (orange)",
    "one group, task with R − mean",
    "one group, divided by the deviation",
    "one group, KL",
    "one group, entropy",
)
"""Titles of the figure's rows; each is a row of the report's own page."""
COLOURS = ("0072b2", "c75000", "00845f", "b0568f", "a87400")

Measured = Mapping[str, StoredGradients]
"""`GRPO, seed 0, step 0` and so on -> measurement."""


def measured(study: Path) -> Measured:
    found = {}
    for arm in ("grpo", "ppo"):
        for path in sorted(study.glob(f"{arm}/s*[0-9]")):
            folder = RunFolder(path)
            for step in folder.gradient_steps():
                label = f"{arm.upper()}, seed {path.name.removeprefix('s')}, step {step}"
                found[label] = read_gradients(folder.gradients(step))
    return found


def table(stored: Measured, part: str, columns: Mapping[str, str]) -> list[list[str]]:
    rows = [["run", *columns]]
    for label, one in stored.items():
        rows.append([label, *(cell(one.metrics[f"gradient/{part}/{name}"]) for name in columns.values())])
    return rows


def bucket_table(stored: Measured) -> list[list[str]]:
    rows = [["run", "bucket", "groups", "variance, sorted by", "measured", *NORMS]]
    for label, one in stored.items():
        for bucket in buckets(one):
            metrics = {name.rpartition("/")[2]: one.metrics[name] for name in one.metrics if f"/{bucket}/" in name}
            variances = [metrics["sorted_variance"], metrics["reward_variance"]]
            if variances[1].n:
                facts = [bucket.removeprefix("bucket_"), str(variances[1].n), *map(_bare, variances)]
                rows.append([label, *facts, *(cell(metrics[name]) for name in NORMS.values())])
    return rows


def _bare(metric: Metric) -> str:
    return numeral(float(metric.value)) if isinstance(metric.value, int | float) else "–"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def figure(stored: Measured) -> str:
    """All panels of a row have one scale, except in the first row, where each run has its own."""
    width, height = 16 + 400 * len(stored), 34 + 258 * len(ROWS)
    style = 'text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#5c646e}'
    style += ".h{font-size:16px;fill:#1d2126;font-weight:600}.r{font-size:15px;fill:#1d2126}"
    style += ".grid{stroke:#ececea;fill:none}.axis{stroke:#8b939d;fill:none}"
    style += (
        ".bar{fill:none;stroke-width:1.6;opacity:.85}.area{stroke:none;opacity:.62}.lost{fill:none;stroke-width:1.4}"
    )
    for hue, colour in enumerate(COLOURS, 1):
        style += f".area.c{hue}{{fill:#{colour}}}.bar.c{hue},.lost.c{hue}{{stroke:#{colour}}}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="1500"><style>{style}</style>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for column, label in enumerate(stored):
        parts.append(f'<text class="h" x="{58 + 400 * column}" y="22">{label}</text>')
    for row, (title, (_, _, series)) in enumerate(zip(ROWS, FIGURES, strict=False)):
        top = 60 + 258 * row
        parts.append(f'<text class="r" x="18" y="{top - 8}">{title}</text>')
        bars = {
            label: tuple(
                Bars(name, hue, tuple(one.metrics[f"gradient/{bucket}/{metric}"] for bucket in buckets(one)))
                for name, metric, hue in series
            )
            for label, one in stored.items()
        }
        for column, (label, one) in enumerate(stored.items()):
            alike = [drawn for other, drawn in bars.items() if row or other.split(",")[0] == label.split(",")[0]]
            names = [bucket.removeprefix("bucket_") for bucket in buckets(one)]
            counts = [f"n {one.metrics[f'gradient/{bucket}/reward_variance'].n or 0}" for bucket in buckets(one)]
            panel = str(draw_bars(bars[label], names, counts, common_range(alike), title))
            inside = re.sub(r"<title>.*?</title>", "", re.sub(r"^<svg[^>]*>|</svg>$", "", panel))
            parts.append(f'<g transform="translate({8 + 400 * column} {top})">{inside}</g>')
    return "".join([*parts, "</svg>"]) + "\n"


def with_tables(page: str, tables: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """The page with new tables. Raises ValueError if it has no place for one."""
    for name, rows in tables.items():
        mark = f"<!-- table: {name} -->\n"
        before, found, rest = page.partition(mark)
        if not found:
            raise ValueError(f"The page has no line {mark.strip()!r}: where should the table go?")
        page = f"{before}{mark}{markdown(rows)}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def main(arguments: Sequence[str]) -> int:
    stored = measured(Path(arguments[0])) if len(arguments) == 1 else {}
    if not stored:
        print("Expected the folder of the study: python benchmarks/gradients_page.py runs/study-gradients")
        return 2
    tables = {
        "trend": table(stored, "all", TREND),
        "lowest": table(stored, "bucket_0", LOWEST),
        "whole": table(stored, "all", WHOLE),
    }
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    title = "# The gradient by bucket of reward variance: norm of a single group's gradient"
    BUCKETS.write_text(f"{title}\n\n{markdown(bucket_table(stored))}\n", encoding="utf-8")
    FIGURE.write_text(figure({label: one for label, one in stored.items() if "seed 0" in label}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
