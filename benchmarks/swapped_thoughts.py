"""A log in which a known share of the replies was swapped between prompts: what an audit should find is then known.

From one step of a log (rollouts of heedful or completions of TRL, as parquet) five steps are made: in step s, s
quarters of the replies stand under another prompt. At 4 no reply belongs to its prompt.

    python benchmarks/swapped_thoughts.py runs/NAME/rollouts/step_000000.parquet swapped.jsonl
    heedful audit swapped.jsonl --model PATH
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet

STEPS = 4


def rows_of(paths: list[Path], prompts: int, members: int) -> list[dict[str, Any]]:
    """Prompt and reply of the first `members` episodes of the first `prompts` prompts."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for row in pyarrow.parquet.read_table(path).to_pylist():
            ours = "reply_text" in row
            prompt, reply = (row["new_prompt_text"], row["reply_text"]) if ours else (row["prompt"], row["completion"])
            if not ours or row["turn"] == 1:
                found.setdefault(prompt, []).append(reply)
    whole = [(prompt, replies[:members]) for prompt, replies in found.items() if len(replies) >= members][:prompts]
    return [
        {"group": group, "member": member, "turn": 1, "new_prompt_text": prompt, "reply_text": reply}
        for group, (prompt, replies) in enumerate(whole)
        for member, reply in enumerate(replies)
    ]


def swapped(rows: list[dict[str, Any]], members: int, quarters: int, rng: random.Random) -> list[dict[str, Any]]:
    """The rows with `quarters` of 4 of every prompt's replies moved, each to the next prompt of a circle of its own."""
    groups, texts = sorted({row["group"] for row in rows}), {(row["group"], row["member"]): row for row in rows}
    giver = {}
    for member in rng.sample(range(members), members * quarters // STEPS):
        circle = rng.sample(groups, len(groups))
        giver |= {(group, member): circle[place - 1] for place, group in enumerate(circle)}
    return [
        {
            **row,
            "reply_text": texts[giver.get((row["group"], row["member"]), row["group"]), row["member"]]["reply_text"],
        }
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, nargs="+", help="parquet files of one step")
    parser.add_argument("out", type=Path, help="JSON lines for heedful audit")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--members", type=int, default=8)
    given = parser.parse_args()
    rows, rng = rows_of(given.log, given.prompts, given.members), random.Random(0)
    with given.out.open("w") as out:
        for quarters in range(STEPS + 1):
            for row in swapped(rows, given.members, quarters, rng):
                out.write(json.dumps({"step": quarters, **row}) + "\n")
    print(f"{len(rows)} replies of {len(rows) // given.members} prompts, {STEPS + 1} steps, in {given.out}")


if __name__ == "__main__":
    main()
