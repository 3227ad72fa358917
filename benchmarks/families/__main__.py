"""Check all families whose stored result is missing, and write the table of docs/families.md. About three minutes.

    python -m benchmarks.families
    python -m benchmarks.families --anew                        # all families again
    python -m benchmarks.families --only qwen3_next mistral:80  # these again
    python -m benchmarks.families --anew --parts scorer         # one part of all again

A killed run goes on where it was.
"""

from __future__ import annotations

import argparse

import torch
import transformers

from benchmarks.families.check import PARTS, check, names
from benchmarks.families.results import PAGE, STORED, load, save, with_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anew", action="store_true", help="check all families again")
    parser.add_argument("--only", nargs="+", choices=names(), metavar="FAMILY", help="check these again")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="check these parts, keep the others")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = load()
    for name in asked.only or [name for name in names() if asked.anew or name not in rows]:
        known = rows.get(name)
        row = rows[name] = check(name) if known is None else known | check(name, asked.parts)
        save(rows)
        ways = ", ".join(f"{part} {one.way} {one.error} {one.seconds} s" for part, one in row.items())
        print(f"{name}: {ways}" + ("" if all(one.exact for one in row.values()) else "  <- NOT EXACT"), flush=True)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
    print(f"Wrote {STORED} and the table of {PAGE}.")


if __name__ == "__main__":
    main()
