"""`heedful report`: the page of a run or a study again, or several runs on one page. No measurement is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, tell


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
    """A run's folder, finished or not. The folder of several seeds or of a study gets its tables and its page again."""
    out: Annotated[Path | None, Shown("FILE")] = None
    """The file of a comparison. Default: comparison.html, in this folder."""


def main(argv: list[str]) -> int:
    line = CommandLine(ReportWords, argv, "heedful report")
    line.end()
    paths, out = line.words.runs, line.words.out
    missing = [str(path) for path in paths if not path.is_dir()]
    if missing:
        raise ValueError(f"Expected the folders of runs, found no folder at {', '.join(missing)}.")
    if len(paths) > 1:
        from heedful.report import write_comparison

        tell(write_comparison(list(paths), out or Path("comparison.html")))
        return 0
    if out is not None:
        raise ValueError(f"--out is for comparisons; the page of one run is its {paths[0] / 'report.html'}.")
    (path,) = paths
    if (path / "study.json").exists():
        from heedful.studies.running.progress import wide_console
        from heedful.studies.running.runner import reread_study

        return 0 if reread_study(path, wide_console()) else 1
    from heedful.report import write_report

    tell(write_report(path))
    return 0
