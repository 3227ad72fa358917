"""`python -m heedful.diagnostics.catalogue docs/metrics.md` writes the catalogue's tables into the page."""

from __future__ import annotations

import sys
from pathlib import Path

from heedful.diagnostics.catalogue.page import with_tables

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Expected the page to bring up to date: python -m heedful.diagnostics.catalogue docs/metrics.md")
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
