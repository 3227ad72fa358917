"""Commands of heedful that run with a fault, each in a fork of one process that has loaded everything."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from faulty import Fault


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
    """Runs `heedful` commands, each in a fork of one process that has loaded everything."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def __call__(self, arguments: Sequence[str], folder: Path, fault: Fault | None = None) -> Ended:
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "log": str(self._log),
            "fault": asdict(fault or Fault(watched=str(folder))),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code, moments = json.loads(self._process.stdout.readline())
        return Ended(code, moments, self._log.read_text(encoding="utf-8", errors="replace"))
