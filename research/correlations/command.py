"""`python -m research correlate`: what the readings of finished runs of several studies say about success."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, complain, tell


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
    """Folders of studies or of runs. Every finished run below them is read once. One that cannot be read is named and
    left out, with exit code 1."""
    out: Annotated[Path, Shown("DIR")] = Path("runs/correlations")
    """Where correlations.json and correlations.md are written."""
    success: Annotated[str, Shown("METRIC")] = "eval/val/sampled/success"
    """The success to correlate with. success/rate is that of training episodes, whose rewards the variance shares."""


def main(argv: list[str]) -> int:
    line = CommandLine(CorrelateWords, argv, "python -m research correlate")
    line.end()
    from research.correlations.report import COURSES, WITH_SUCCESS, WITH_VARIANCE, write_correlations
    from research.correlations.runs import find_runs

    words = line.words
    metrics = [metric for table in (WITH_SUCCESS, WITH_VARIANCE) for metric, _ in table.values()]
    found = find_runs(words.folders, [words.success, *metrics, *COURSES.values()])
    tell(write_correlations(words.out, found, words.success))
    tell(f"written to {words.out}")
    for sentence in found.unreadable:
        complain(f"heedful: left out: {sentence}")
    return 1 if found.unreadable else 0
