"""The formats that an audit reads. To add one, write a module like the others here and add a row to `FORMATS`.
Another package adds one through the entry point `heedful.log_readers`, with the names in `__all__`.

Promise: a log is recognised by the content of its rows, never by the name of its file.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.logs.records import Faults, Knowledge, Location, LoggedEpisode, Misfit, Row, unknown_of
from heedful.auditing.readers.own import OwnRows
from heedful.auditing.readers.ragen import RagenTrajectories
from heedful.auditing.readers.reader import Hints, RowReader, prompt_task, text_trajectory
from heedful.auditing.readers.trl import NumberedCompletions, TrlCompletions
from heedful.auditing.readers.verifiers import VerifiersResults, VerifiersTraces
from heedful.auditing.readers.verl import VerlRollouts
from heedful.boundary.registry import Registry

FORMATS = Registry(
    "heedful.log_readers",
    {
        "heedful rollouts": OwnRows,
        "verifiers traces": VerifiersTraces,
        "verifiers results": VerifiersResults,
        "RAGEN trajectories": RagenTrajectories,
        "verl rollouts": VerlRollouts,
        "numbered completions": NumberedCompletions,
        "TRL completions": TrlCompletions,
    },
    "format of a log",
)
"""Name -> reader; the first whose `fits` says yes to a row reads it. Those of packages come last."""


def recognise(rows: Sequence[Row]) -> str | None:
    """The format of the first row that any reader recognises; `None` where there is none."""
    return next((name for row in rows for name, reader in FORMATS.items() if reader.fits(row)), None)


__all__ = [
    "FORMATS",
    "Faults",
    "Hints",
    "Knowledge",
    "Location",
    "LoggedEpisode",
    "Misfit",
    "Row",
    "RowReader",
    "prompt_task",
    "recognise",
    "text_trajectory",
    "text_turn",
    "unknown_of",
]
