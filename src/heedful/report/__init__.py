"""One self-contained HTML page per run, and one that compares runs.

Promise: a page is made only from the files of its runs, loads nothing else, and shows what is missing as missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.report.comparison import write_comparison
    from heedful.report.page import write_report

__all__ = ["write_comparison", "write_report"]

__getattr__ = lazily(
    __name__,
    {
        "write_comparison": "heedful.report.comparison",
        "write_report": "heedful.report.page",
    },
)
