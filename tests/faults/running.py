"""Commands of heedful that run with a fault, and the subjects that the tests of this folder do it to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import faulty
from faulty import Fault, Kind
from subjects import SUBJECTS

from warm import WarmProcess

LIMIT_S = 900.0
"""Only a command that hangs takes so long."""


@dataclass(frozen=True)
class Ended:
    """The end of one run of `heedful`."""

    code: int
    moments: int
    """File operations of the run. -1 where it was killed."""
    said: str

    @property
    def sentence(self) -> str:
        """The sentence in which it ended. Empty where there is none, or a traceback."""
        lines = [line for line in self.said.splitlines() if line.startswith("heedful: ")]
        return lines[-1] if lines and self.code in (1, 2) and "Traceback" not in self.said else ""


class Runner:
    """Runs `heedful` commands, each in a process that has loaded everything."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._count = log.with_name(log.name + ".count")
        paths = [*map(str, Path(__file__).parents[:2]), *filter(None, sys.path)]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def __call__(self, arguments: Sequence[str], folder: Path, fault: Fault | None = None) -> Ended:
        self._count.unlink(missing_ok=True)
        fault = fault or Fault(watched=str(folder))
        request = {"arguments": list(arguments), "log": str(self._log), "fault": asdict(fault)}
        code = WarmProcess([faulty.__file__, json.dumps(request)], folder, self._environment).wait(LIMIT_S)
        moments = int(self._count.read_text()) if self._count.exists() else -1
        return Ended(code, moments, self._log.read_text(encoding="utf-8", errors="replace"))


@dataclass(frozen=True)
class Whole:
    """A folder in which a subject has run without a fault."""

    folder: Path
    moments: int


class Bench:
    """The subjects in folders of their own: begun with a fault, gone on with, and run whole."""

    def __init__(self, heedful: Runner, prepare: Callable[[str], Path]) -> None:
        self._heedful = heedful
        self._wholes: dict[str, Whole] = {}
        self.folder = prepare
        """Makes a folder in which the commands of a subject can be run."""

    def start(self, name: str, folder: Path, kind: Kind = "none", moment: int = 0) -> Ended:
        """Begin, with a fault at this file operation in the folder."""
        return self._heedful(SUBJECTS[name].start.split(), folder, Fault(kind, moment, str(folder)))

    def resume(self, name: str, folder: Path) -> Ended:
        """Go on with what was begun in a folder."""
        return self._heedful(SUBJECTS[name].resume.split(), folder)

    def whole(self, name: str) -> Whole:
        """The subject without a fault. It is run once."""
        if name not in self._wholes:
            self.start(name, self.folder(name))  # what is grown or compiled once is there from now on
            folder = self.folder(name)
            ended = self.start(name, folder)
            assert ended.code == 0, ended.said
            self._wholes[name] = Whole(folder, ended.moments)
        return self._wholes[name]
