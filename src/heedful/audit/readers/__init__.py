"""The formats that an audit reads. To add one, write a module like the others here and add a row to `FORMATS`.

Promise: a log is recognised by the content of its rows, never by the name of its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.audit.readers.numbered import NumberedCompletions
from heedful.audit.readers.own import OwnRows
from heedful.audit.readers.ragen import RagenTrajectories
from heedful.audit.readers.reader import Hints, Reader
from heedful.audit.readers.trl import TrlCompletions
from heedful.audit.readers.verifiers import VerifiersResults, VerifiersTraces
from heedful.audit.readers.verl import VerlRollouts
from heedful.audit.records import Row

FORMATS: Mapping[str, type[Reader]] = {
    "heedful rollouts": OwnRows,
    "verifiers traces": VerifiersTraces,
    "verifiers results": VerifiersResults,
    "RAGEN trajectories": RagenTrajectories,
    "verl rollouts": VerlRollouts,
    "numbered completions": NumberedCompletions,
    "TRL completions": TrlCompletions,
}
"""Name -> reader; the first whose `fits` says yes to a row reads it."""


def recognise(rows: Sequence[Row]) -> str | None:
    """The format of the first row that any reader recognises; `None` where there is none."""
    return next((name for row in rows for name, reader in FORMATS.items() if reader.fits(row)), None)


__all__ = ["FORMATS", "Hints", "Reader", "recognise"]
