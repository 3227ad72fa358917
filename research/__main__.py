"""`python -m research NAME`, from a checkout: a study of the paper, as `heedful study NAME` runs one of your own.

Without a name the studies are listed. `python -m research correlate FOLDER ...` correlates the readings of finished
runs with their success.
"""

from __future__ import annotations

import sys

from heedful.cli import study
from heedful.command_process import prepare_streams, run_command
from research.catalogue import STUDIES
from research.correlations import command


def run(argv: list[str]) -> int:
    """Do what the arguments say. Returns the exit code."""
    if argv[:1] == ["correlate"]:
        return run_command(lambda: command.main(argv[1:]))
    return run_command(lambda: study.main(argv, STUDIES, "python -m research"), study.KEPT)


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run(sys.argv[1:]))
