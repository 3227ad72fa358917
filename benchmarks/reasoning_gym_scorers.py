"""Scores that reasoning-gym pays for replies that answer nothing: every dataset, every kind of reply.

    PYTHONHASHSEED=0 python benchmarks/reasoning_gym_scorers.py              # writes docs/results/reasoning_gym.md
    PYTHONHASHSEED=0 python benchmarks/reasoning_gym_scorers.py --entries 3  # fewer entries, printed and not written

A dataset is

- clean if its scorer pays nothing for such replies,
- gated if its scorer pays less than full marks for them (then nothing below full marks counts, or with partial credit
  only the part above the floor),
- refused if its scorer pays for them in full, or has no right answer that it pays in full.

Entries come from the library's default settings.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from heedful_envs.adapters.library import FULL, load_library
from heedful_envs.adapters.reasoning_gym.scoring import (
    EXAMPLES,
    HASH_DEPENDENT,
    REFUSED,
    entry_of,
    not_handed_on,
    number_of,
    raw_score,
    right_answer,
)

PAGE = Path(__file__).parents[1] / "docs" / "results" / "reasoning_gym.md"
SECONDS = 20.0
"""Time limit for drawing a dataset's entries. Slow datasets have fewer entries."""

REPLIES = {
    "empty": lambda question: "",
    "None": lambda question: "None",
    "do not know": lambda question: "I do not know.",
    "random text": lambda question: "xyzzy plugh 42",
    "question": lambda question: question,
    "0": lambda question: "0",
}


def measure(name: str, entries: int) -> list[str]:
    """One row of the table."""
    paid: dict[str, list[float]] = {reply: [] for reply in REPLIES}
    right: list[float] = []
    others: list[float] = []
    begun = time.perf_counter()
    answers: list[str | None] = []
    drawn = []
    for number in range(entries):
        drawn.append(entry_of(name, "", number_of(name, "", 7_919 * number + 11)))
        if time.perf_counter() - begun > SECONDS:
            break
    seconds = (time.perf_counter() - begun) / len(drawn)
    for entry in drawn:
        try:
            answers.append(right_answer(name, entry))
        except ValueError:
            answers.append(None)
    for place, entry in enumerate(drawn):
        own, other = answers[place], answers[place - 1]
        if own is not None:
            right.append(raw_score(name, "", entry, own) or 0.0)
        if other is not None and other != own:
            others.append(raw_score(name, "", entry, other) or 0.0)
        for reply, make in REPLIES.items():
            text = make(entry["question"])
            if not not_handed_on(name, text) and text != own:
                paid[reply].append(raw_score(name, "", entry, text) or 0.0)
    worst = [max(values, default=0.0) for values in paid.values()]
    share = f"{sum(value >= FULL for value in others) / len(others):.2f}" if others else "-"
    return [
        name,
        str(len(drawn)),
        f"{1000 * seconds:.1f}",
        _least(right),
        *map(_number, worst),
        share,
        _rule(name, right, paid),
    ]


def _rule(name: str, right: Sequence[float], paid: dict[str, list[float]]) -> str:
    if name in REFUSED:
        return "refused"
    note = ", PYTHONHASHSEED=0" if name in HASH_DEPENDENT else ""
    meaningless = max(max(values, default=0.0) for reply, values in paid.items() if reply != "0")
    return ("gated" if meaningless > 0 else "clean") + note


def _least(right: Sequence[float]) -> str:
    return f"{min(right):.3g}" if right else "none"


def _number(value: float) -> str:
    return f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=0, help="entries of each dataset; printed and not written")
    chosen = parser.parse_args().entries
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise SystemExit("Set PYTHONHASHSEED=0: four datasets follow Python's hash seed.")
    warnings.simplefilter("ignore")
    names = [name for name in sorted(load_library("reasoning_gym", "factory").DATASETS) if name != "composite"]
    rows = []
    for name in names:
        rows.append(measure(name, chosen or 12))
        print(" | ".join(rows[-1]), flush=True)
    if not chosen:
        PAGE.write_text(page(rows), encoding="utf-8")


def page(rows: Sequence[Sequence[str]]) -> str:
    """The whole page."""
    counts = {rule: sum(row[-1].startswith(rule) for row in rows) for rule in ("clean", "gated", "refused")}
    head = ["dataset", "entries", "ms per entry", "right answer", *REPLIES, "another's answer, in full", "rule"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]
    reasons = [f"- `{name}`: {why}." for name, why in sorted(REFUSED.items())]
    examples = ", ".join(f"`{name}`" for name in EXAMPLES)
    return "\n".join(
        [
            "# What reasoning-gym's scorers pay for replies that answer nothing",
            "",
            f"Measured by `benchmarks/reasoning_gym_scorers.py` on reasoning-gym {version('reasoning-gym')} at the "
            f"default settings of {len(rows)} datasets: {counts['clean']} clean, {counts['gated']} gated, "
            f"{counts['refused']} refused.",
            "",
            "Columns:",
            "",
            f"- right answer: the lowest score of a right answer ({examples}: of the example in the metadata).",
            "- a reply's name: the highest score of that reply. `0` is sometimes right, so it does not count for the "
            "rule.",
            "- another's answer, in full: the share of entries that pay in full for the right answer of another entry "
            "(where it differs).",
            "- ms per entry: depends on the machine's load.",
            "",
            *table,
            "",
            "Refused:",
            "",
            *reasons,
            "",
        ]
    )


if __name__ == "__main__":
    main()
