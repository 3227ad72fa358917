"""`heedful report`: the page of a run or a study again, or several runs on one page. No measurement is changed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from heedful.boundary import CommandLine, Positional, Shown, listed, tell

if TYPE_CHECKING:
    from heedful.report.outcome import Outcome


@dataclass(frozen=True, slots=True)
class ReportWords:
    """Write the page of a run again, or compare two to six runs on one page.

    A comparison shows the curves of the runs, their rollouts and maps side by side, and where their settings differ. A
    page needs no network and no server: open the file in a browser.

      heedful report runs/frozen_lake-grpo-s0-1
      heedful report runs/frozen_lake-grpo-s0-1 runs/frozen_lake-dr_grpo-s0-1 --out both.html
      heedful report runs/frozen_lake-grpo-seeds-1
      heedful report runs/frozen_lake-grpo-s0-1 --export tables
    """

    runs: Annotated[tuple[Path, ...], Positional("RUN")]
    """A run's folder, finished or not. The folder of several seeds or of a study gets its tables and its page again."""
    out: Annotated[Path | None, Shown("FILE")] = None
    """The file of a comparison. Default: comparison.html, in this folder."""
    fail_on: tuple[str, ...] = ("never",)
    """Alarms of one run at which the command ends with exit code 3: their names, or collapse, warning or notice for all
    that are at least that. Exit code 4: none of them could be judged."""
    json: bool = False
    """Print the outcome of one run as one JSON object, and everything else to standard error."""
    summary: Annotated[Path | None, Shown("FILE")] = None
    """Append the outcome of one run as Markdown to a file."""
    export: Annotated[Path | None, Shown("DIR")] = None
    """Write the data behind the page of one run into a folder, as tables: metrics, groups, episodes, turns, swaps."""
    export_as: Literal["parquet", "json"] = "parquet"
    """Format of these tables: parquet, or JSON lines."""


def main(argv: list[str]) -> int:
    line = CommandLine(ReportWords, argv, "heedful report")
    line.end()
    words, paths, out = line.words, line.words.runs, line.words.out
    missing = [str(path) for path in paths if not path.is_dir()]
    if missing:
        raise ValueError(f"Expected the folders of runs, found no folder at {', '.join(missing)}.")
    asked = words.json or words.summary is not None or words.fail_on != ("never",) or words.export is not None
    if asked and (len(paths) > 1 or (paths[0] / "study.json").exists()):
        raise ValueError("--fail-on, --json, --summary and --export are of one run: name one run's folder.")
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
    from heedful.report.outcome import Outcome, named_alarms

    named_alarms(words.fail_on)
    stream = sys.stderr if words.json else None
    tell(write_report(path), stream)
    if words.export is not None:
        from heedful.report.export import export

        for table in export(path, words.export, words.export_as):
            tell(table, stream)
    outcome = Outcome.of(path)
    for sentence in outcome.told_causes():
        tell(f"likely cause: {sentence}", stream)
    return concluded(outcome, words)


class Asked(Protocol):
    """What a command was asked to make of an outcome."""

    @property
    def fail_on(self) -> tuple[str, ...]: ...
    @property
    def json(self) -> bool: ...
    @property
    def summary(self) -> Path | None: ...


def concluded(outcome: Outcome, words: Asked) -> int:
    """Print and append the outcome as asked for. Returns the exit code, and says why it is not 0."""
    from heedful.report.outcome import named_alarms

    if words.json:
        tell(json.dumps(outcome.to_json(), ensure_ascii=False, indent=1))
    if words.summary is not None:
        with words.summary.open("a", encoding="utf-8") as stream:
            stream.write(outcome.markdown())
    code = outcome.code(words.fail_on)
    if code:
        found = [f"{one.name} at step {one.step}" for one in outcome.raised if one.name in named_alarms(words.fail_on)]
        said = f"alarms raised: {listed(found)}" if found else "none of these alarms could be judged"
        tell(f"--fail-on {','.join(words.fail_on)}: {said}.", sys.stderr)
    return code
