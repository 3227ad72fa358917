"""`heedful report`: a run's page again, several runs on one page, or the table of a folder of seeds again.

Promise: reads run folders and writes pages; it never changes what a run measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.configuration import CommandLine, Positional, Shown


@dataclass(frozen=True, slots=True)
class ReportWords:
    """Write the page of a run again, or compare two to six runs on one page.

    A comparison shows curves and final values, and where the settings of the runs differ. A page needs no network and
    no server: open the file in a browser.

      heedful report runs/frozen_lake-grpo-s0-1
      heedful report runs/frozen_lake-grpo-s0-1 runs/frozen_lake-dr_grpo-s0-1 --out both.html
      heedful report runs/frozen_lake-grpo-seeds-1
    """

    runs: Annotated[tuple[Path, ...], Positional("RUN")]
    """A run's folder, finished or not. The folder of several seeds (heedful train --seeds) gets its table again."""
    out: Annotated[Path | None, Shown("FILE")] = None
    """The file of a comparison; default: comparison.html, in this folder."""


def main(argv: list[str]) -> int:
    line = CommandLine(ReportWords, argv, "heedful report")
    line.end()
    paths, out = line.words.runs, line.words.out
    missing = [str(path) for path in paths if not path.is_dir()]
    if missing:
        raise ValueError(f"Expected the folders of runs, found no folder at {', '.join(missing)}.")
    if len(paths) > 1:
        return _several(list(paths), out or Path("comparison.html"))
    if out is not None:
        raise ValueError(f"--out is for comparisons; the page of one run is its {paths[0] / 'report.html'}.")
    return _one(paths[0])


def _one(path: Path) -> int:
    from heedful.cli.seed_summary import FILE, summarise

    if (path / FILE).exists():
        from rich.console import Console

        summarise(path, Console(highlight=False))
        return 0
    from heedful.report import write_report

    print(write_report(path))
    return 0


def _several(paths: list[Path], out: Path) -> int:
    from heedful.report import write_comparison

    if out.is_dir():
        better = out / "comparison.html"
        raise ValueError(f"Expected a file for the comparison, found the folder {out}: --out {better}.")
    print(write_comparison(paths, out))
    return 0
