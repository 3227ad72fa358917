"""`heedful report`: the page of a run or a study again, or several runs on one page. No measurement is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.boundary import CommandLine, Positional, Shown, tell
from heedful.boundary.jsontext import read_json
from heedful.storage import RunFolder

if TYPE_CHECKING:
    from heedful.studies.declaration import Study

OLD_SEEDS = "seeds.json"
"""The list of seeds in folders that are older than `study.json`."""


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
    if (path / "study.json").exists() or (path / OLD_SEEDS).exists():
        from heedful.studies.running.progress import wide_console
        from heedful.studies.running.runner import reread_study

        declared = None if (path / "study.json").exists() else _old_seeds(path)
        return 0 if reread_study(path, wide_console(), declared) else 1
    from heedful.report import write_report

    tell(write_report(path))
    return 0


def _old_seeds(path: Path) -> Study:
    """The study of an older folder of seeds, which has no study.json."""
    from heedful.run.config import read_config
    from heedful.studies.declared import several_seeds

    rows = read_json(path / OLD_SEEDS)["seeds"]
    done = next(path / row["folder"] for row in rows if (path / row["folder"] / "config.json").exists())
    return several_seeds(read_config(RunFolder(done)), [row["seed"] for row in rows])
