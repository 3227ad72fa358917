"""`python -m research NAME`, from a checkout: a study of the paper, as `heedful study NAME` runs one of your own.

Without a name the studies are listed. `python -m research correlate FOLDER ...` correlates the readings of finished
runs with their success. `python -m research rightness` runs the registered tests of the split of rightness, and
`python -m research causes` those of the split of updates. `python -m research templates` simulates why templates
grow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

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


def correlate(words: CorrelateWords) -> None:
    """What the readings of finished runs of several studies say about success."""
    from research.correlations.report import COURSES, WITH_SUCCESS, WITH_VARIANCE, write_correlations
    from research.correlations.runs import find_runs

    metrics = [metric for table in (WITH_SUCCESS, WITH_VARIANCE) for metric, _ in table.values()]
    found = find_runs(words.folders, [words.success, *metrics, *COURSES.values()])
    tell(write_correlations(words.out, found, words.success))
    tell(f"written to {words.out}")


@dataclass(frozen=True, slots=True)
class RightnessWords:
    """Run the registered tests of the split of rightness, or go on with them.

    Rules, predictions and seeds stand in research/rightness/registered.py. Each test ends in one file of results. What
    a test has measured is stored at once, so the same command goes on after an interruption.

      python -m research rightness
      python -m research rightness --only 1,2
    """

    only: Annotated[tuple[int, ...], Shown("N,...")] = ()
    """Numbers of the tests. Empty: all of them."""
    out: Annotated[Path, Shown("DIR")] = Path("runs/rightness")
    """Where test_N.json is written, and what the tests store."""
    minutes: float = 1e6
    """No training run begins later than this. What is judged are the seeds whose runs are over."""
    small: bool = False
    """Other seeds and tiny sizes, to see that the code works. Their results say nothing."""


def rightness(words: RightnessWords) -> None:
    """The registered tests of the split of rightness."""
    from research.rightness.judges import run_test

    for number in words.only or range(1, 10):
        tell(run_test(number, words.out, time.time() + 60 * words.minutes, words.small))


@dataclass(frozen=True, slots=True)
class TemplatesWords:
    """Simulate why templates grow: policies over listed thoughts, whose prompts share weights or do not.

      python -m research templates

    It takes two minutes of CPU time. docs/why_templates.md tells what the figures say.
    """

    out: Annotated[Path, Shown("DIR")] = Path("runs/templates")
    """Where templates.json and the pictures are written."""
    small: bool = False
    """Tiny sizes, to see that the code works."""


def templates(words: TemplatesWords) -> None:
    """The simulation of shared weights."""
    from research.causes.tabular import write_templates

    tell(f"written to {write_templates(words.out, words.small)}")


@dataclass(frozen=True, slots=True)
class CausesWords:
    """Run the registered study of the split of updates on Sokoban without a filter, or go on with it.

    Rule, prediction and seeds stand in research/causes/unfiltered.py. The runs are those of the fifth registered test
    of rightness: they are trained now where they are not there.

      python -m research causes
    """

    runs: Annotated[Path, Shown("DIR")] = Path("runs/rightness/trained")
    """The folder of the runs."""
    out: Annotated[Path, Shown("DIR")] = Path("runs/causes")
    """Where unfiltered.json is written."""
    minutes: float = 1e6
    """No run and no split of an update begins later than this. What is judged are the runs that have all of them."""
    small: bool = False
    """Another seed and tiny sizes, to see that the code works. The results say nothing."""


def causes(words: CausesWords) -> None:
    """The registered study of the split of updates."""
    from research.causes.unfiltered import REGISTERED, unfiltered
    from research.rightness.judges import SMALL, written

    seeds = (SMALL,) if words.small else REGISTERED.seeds
    result = unfiltered(seeds, words.runs, time.time() + 60 * words.minutes, words.small)
    tell(written(words.out / "unfiltered.json", result, REGISTERED, seeds, words.small))


COMMANDS: Mapping[str, tuple[type, Callable[[Any], None]]] = {
    "correlate": (CorrelateWords, correlate),
    "rightness": (RightnessWords, rightness),
    "templates": (TemplatesWords, templates),
    "causes": (CausesWords, causes),
}
"""Commands that are no study: their words, and what they do."""


def run(argv: list[str]) -> int:
    """Do what the arguments say. Returns the exit code."""
    name = argv[0] if argv else ""
    if name not in COMMANDS:
        return run_command(lambda: study.main(argv, STUDIES, "python -m research"), KEPT["study"])
    words, command = COMMANDS[name]

    def follow() -> int:
        line: CommandLine[Any] = CommandLine(words, argv[1:], f"python -m research {name}")
        line.end()
        command(line.words)
        return 0

    return run_command(follow)


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run(sys.argv[1:]))
