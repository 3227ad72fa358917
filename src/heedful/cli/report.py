"""`heedful report`: a run's page again, several runs on one page, or the table of a folder of seeds again.

Promise: reads run folders and writes pages; it never changes what a run measured.
"""

from __future__ import annotations

from pathlib import Path

from heedful.cli.words import asks_for_help, take

HELP = """usage: heedful report RUN
       heedful report RUN_A RUN_B ... [--out FILE]
       heedful report SEEDS

  RUN              a run's folder, finished or not: writes its report.html again
  RUN_A RUN_B ...  two to six runs: curves and final values on one page, and where their settings differ
  SEEDS            the folder of a `heedful train --seeds ...`: its table again, after a seed was resumed and finished
  --out FILE       the comparison's file (default: comparison.html, in this folder)

The page needs no network and no server: open the file in a browser."""


def main(argv: list[str]) -> int:
    if asks_for_help(argv):
        print(HELP)
        return 0
    out = take(argv, "out")
    flags = [word for word in argv if word.startswith("-")]
    if flags:
        raise ValueError(f"`heedful report` knows --out only, found {' '.join(flags)}.")
    if not argv:
        raise ValueError("Expected one or more run folders after `heedful report`.")
    paths = [Path(word) for word in argv]
    missing = [str(path) for path in paths if not path.is_dir()]
    if missing:
        raise ValueError(f"Expected the folders of runs, found no folder at {', '.join(missing)}.")
    if len(paths) == 1:
        if out is not None:
            raise ValueError(f"--out is for comparisons; the page of one run is its {paths[0] / 'report.html'}.")
        return _one(paths[0])
    return _several(paths, Path(out or "comparison.html"))


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
