"""`python -m benchmarks.truth` simulates every case and writes the table of coverage into `docs/coverage.md`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.truth.declaration import CASES
from benchmarks.truth.results import STORED, load, run
from benchmarks.truth.table import with_table

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="simulate only the cases that the stored result lacks")
    if not parser.parse_args().keep:
        STORED.unlink(missing_ok=True)
    run(CASES)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
    print(f"Wrote {STORED} and the table of {PAGE}.")


if __name__ == "__main__":
    main()
