"""One self-contained HTML page per run, and one that compares runs.

Promise: a page is made from the files of its runs alone, loads nothing from anywhere, and shows what is missing as
missing.
"""

from heedful.report.comparison import write_comparison
from heedful.report.page import write_report

__all__ = ["write_comparison", "write_report"]
