"""`python -m benchmarks.truth` simulates every case and writes the tables of `docs/results/coverage.md`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.truth import marks
from benchmarks.truth.declaration import CASES, ESTIMATORS
from benchmarks.truth.results import STORED, load, run
from benchmarks.truth.table import with_tables

PAGE = Path(__file__).parents[2] / "docs" / "results" / "coverage.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="simulate only the cases that the stored result lacks")
    parser.add_argument("--marks", type=int, metavar="BATCHES", help="simulate the marks anew, and nothing else")
    arguments = parser.parse_args()
    if arguments.marks is not None:
        marks.STORED.unlink(missing_ok=True)
        marks.run(ESTIMATORS, arguments.marks)
    else:
        if not arguments.keep:
            STORED.unlink(missing_ok=True)
        run(CASES)
        marks.run(ESTIMATORS)
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), load(), marks.load()), encoding="utf-8")
    print(f"Wrote {STORED.parent} and the tables of {PAGE}.")


if __name__ == "__main__":
    main()
