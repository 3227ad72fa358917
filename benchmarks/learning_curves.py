"""A figure of the learning curves of several seeds: success on held-out tasks over the training steps.

    heedful train countdown --seeds 0,1,2 --out runs/countdown
    python benchmarks/learning_curves.py runs/countdown docs/images/countdown.svg

It reads the folders of the seeds (`s0`, `s1`, ...) only. There is a line per seed and kind (sampled, greedy), with 95%
intervals over tasks as bars. The random and the best input-blind player are dashed lines.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 48, 470, 34, 276
COLOURS = {"sampled": ("#0072b2", "#3f98cc", "#7dbbe0"), "greedy": ("#c75000", "#dd7f3d", "#eeae82")}
STYLE = (
    'text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#5c646e}.h{font-size:14px;fill:#1d2126;'
    "font-weight:600}.grid{stroke:#ececea;fill:none}.axis{stroke:#8b939d;fill:none}"
)


@dataclass(frozen=True, slots=True)
class Reading:
    step: int
    value: float
    low: float
    high: float


def read(seed: Path, metric: str) -> list[Reading]:
    """The readings of one metric of a run, by step."""
    found = []
    for line in (seed / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        reading = row["metrics"].get(metric)
        if isinstance(reading, dict) and reading.get("value") is not None:
            found.append(Reading(row["step"], reading["value"], reading["low"], reading["high"]))
    return found


def figure(seeds: Sequence[Path], split: str, title: str) -> str:
    """The figure as SVG."""
    curves = {(kind, seed): read(seed, f"eval/{split}/{kind}/success") for kind in COLOURS for seed in seeds}
    if not all(curves.values()):
        empty = sorted({seed.name for (_, seed), readings in curves.items() if not readings})
        raise SystemExit(f"Expected evaluations of split {split} in every metrics.jsonl, found none in {empty}.")
    last = max(reading.step for readings in curves.values() for reading in readings)

    def across(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / last

    def up(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value

    parts = [f'<text class="h" x="{LEFT}" y="18">{title}</text>']
    for tenth in range(0, 11, 2):
        parts.append(f'<path class="grid" d="M{LEFT} {up(tenth / 10):.1f}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(tenth / 10) + 4:.1f}" text-anchor="end">{tenth / 10:g}</text>')
    for step in sorted({reading.step for readings in curves.values() for reading in readings}):
        parts.append(f'<text x="{across(step):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    parts.append(f'<text x="{RIGHT}" y="{BOTTOM + 36}" text-anchor="end">training steps</text>')
    for number, ((kind, seed), readings) in enumerate(curves.items()):
        colour = COLOURS[kind][seeds.index(seed) % 3]
        shift = 3.0 * (seeds.index(seed) - (len(seeds) - 1) / 2)
        places = [(across(reading.step) + shift, reading) for reading in readings]
        line = " ".join(f"{x:.1f},{up(reading.value):.1f}" for x, reading in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, reading in places:
            parts.append(f'<path d="M{x:.1f} {up(reading.low):.1f}V{up(reading.high):.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{up(reading.value):.1f}" r="3" fill="{colour}"/>')
        parts.append(f'<path d="M{RIGHT + 18} {TOP + 20 * number}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{RIGHT + 42}" y="{TOP + 4 + 20 * number}">{kind}, seed {seed.name[1:]}</text>')
    for name, label in (("random", "random player"), ("fixed", "best blind player")):
        readings = read(seeds[0], f"eval/{split}/{name}/success")
        for reading in readings[:1]:
            y = up(reading.value)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#8b939d" stroke-dasharray="5 4"/>')
            parts.append(f'<text x="{RIGHT + 8}" y="{y + 4:.1f}">{label} {reading.value:.2f}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="what `heedful train --seeds` wrote")
    parser.add_argument("out", type=Path, help="the figure, .svg")
    parser.add_argument("--split", default="val")
    parser.add_argument("--title", default="Success on held-out tasks, 95% intervals over tasks")
    settings = parser.parse_args()
    seeds = sorted(path.parent for path in settings.runs.glob("s*/metrics.jsonl"))
    if not seeds:
        raise SystemExit(f"Expected the folders s0, s1, ... of seeds in {settings.runs}, found none.")
    settings.out.write_text(figure(seeds, settings.split, settings.title), encoding="utf-8")


if __name__ == "__main__":
    main()
