"""Echo whose first step waits for a file, so that a test can act while a step is going on.

The folder is read from WAITING_ECHO: `at_work` is made by the first step, which then waits for `go_on`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.envs.toys.echo import Echo, EchoEpisode
from heedful.types import Step

LIMIT_S = 300.0
"""No process of a test that failed waits for longer."""


@dataclass(frozen=True, kw_only=True)
class WaitingEcho(Echo):
    """See the module."""

    def episode(self) -> Any:
        return _Waiting(self)


class _Waiting(EchoEpisode):
    def step(self, response: str) -> Step:
        folder, until = Path(os.environ["WAITING_ECHO"]), time.monotonic() + LIMIT_S
        (folder / "at_work").touch()
        while not (folder / "go_on").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return super().step(response)
