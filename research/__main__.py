"""`python -m research NAME`, from a checkout: a study of the paper, as `heedful study NAME` runs one of your own.

Without a name the studies are listed. `python -m research correlate FOLDER ...` correlates the readings of finished
runs with their success.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, tell
from heedful.cli import KEPT, study
from heedful.command_process import prepare_streams, run_command
from research.catalogue import STUDIES


@dataclass(frozen=True, slots=True)
class CorrelateWords:
    """Correlate what was measured with success, over all finished runs below some folders.

    Spearman's and Pearson's correlation of information, entropy, variance of rewards, length and influence of the
    thought with evaluated success: within runs, between runs, and with the next evaluation. Intervals draw whole runs.
    Beside them: the correlations of the variance of rewards, and how it and the length of answers change in training.

      python -m research correlate runs/study-algorithms runs/study-regularised
      python -m research correlate runs --success success/rate

    Nothing is run and no run is changed.
    """

    folders: Annotated[tuple[Path, ...], Positional("FOLDER")]
    """Folders of studies or of runs. Every finished run below them is read once."""
    out: Annotated[Path, Shown("DIR")] = Path("runs/correlations")
    """Where correlations.json and correlations.md are written."""
    success: Annotated[str, Shown("METRIC")] = "eval/val/sampled/success"
    """The success to correlate with. success/rate is that of training episodes, whose rewards the variance shares."""


def correlate(argv: list[str]) -> int:
    """`python -m research correlate`: what the readings of finished runs of several studies say about success."""
    line = CommandLine(CorrelateWords, argv, "python -m research correlate")
    line.end()
    from research.correlations.report import COURSES, WITH_SUCCESS, WITH_VARIANCE, write_correlations
    from research.correlations.runs import find_runs

    words = line.words
    metrics = [metric for table in (WITH_SUCCESS, WITH_VARIANCE) for metric, _ in table.values()]
    found = find_runs(words.folders, [words.success, *metrics, *COURSES.values()])
    tell(write_correlations(words.out, found, words.success))
    tell(f"written to {words.out}")
    return 0


def run(argv: list[str]) -> int:
    """Do what the arguments say. Returns the exit code."""
    if argv[:1] == ["correlate"]:
        return run_command(lambda: correlate(argv[1:]))
    return run_command(lambda: study.main(argv, STUDIES, "python -m research"), KEPT["study"])


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run(sys.argv[1:]))
