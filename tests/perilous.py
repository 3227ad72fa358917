"""An environment that does what it is told, however bad: importable by worker processes and by the server."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Observation, Step, Task


@dataclass(frozen=True)
class Perilous:
    """Counts its replies; a reply such as `die` or `hang` is obeyed. `begin` is obeyed at the start of each episode."""

    begin: str = ""
    turns: int = 5
    name = "perilous"
    summary = "Do as the agent says."

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(seed), seed)

    def episode(self) -> Any:
        if self.begin == "make raises":
            raise RuntimeError("nothing can be made")
        return Peril(self)


class Unloadable(Perilous):
    """Cannot be rebuilt in another process."""

    def __setstate__(self, state: Any) -> None:
        raise LookupError("no such thing here")


class Peril:
    def __init__(self, env: Perilous) -> None:
        self.env, self.count = env, 0

    def start(self, task: Task, member: int) -> Any:
        obey(self.env.begin)
        self.name = f"{task.id}/{member}"
        return "no observation" if self.env.begin == "no observation" else Observation(f"0 {self.name}")

    def step(self, response: str) -> Any:
        obeyed = obey(response)
        if obeyed is not None:
            return obeyed
        self.count += 1
        over = self.count >= self.env.turns
        return Step(
            observation=Observation(f"{self.count} {self.name} {os.getpid()}", f"so far {self.count}"),
            rewards={"count": self.count / 3, "kelvin": 1e-17},
            ending=Ending.FAILED if over else None,
            outcome=0.1 * self.count / 3 if over else None,
            actions=(response,),
            effect=f"ü {response}",
            state=str(os.getpid()) if response == "pid" else "",
        )


def obey(word: str) -> Any:
    """Returns what the environment is to answer, if it is to answer something strange."""
    word, _, argument = word.partition(" ")
    if word == "die":
        os._exit(7)
    elif word == "exit":
        sys.exit(9)
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "segfault":
        ctypes.string_at(0)
    elif word == "hang":
        time.sleep(1e6)
    elif word == "spin":
        while True:
            pass
    elif word == "child":
        child = subprocess.Popen(["sleep", "1000"])
        Path(argument).write_text(str(child.pid))
    elif word == "die-once":
        if not Path(argument).exists():
            Path(argument).touch()
            os._exit(7)
    elif word == "raise":
        raise KeyError("lost")
    elif word == "strange":
        return {
            "none": "nothing of the kind",
            "nan": Step(Observation(""), {"a": float("nan")}),
            "outcome": Step(Observation(""), {}, Ending.SOLVED),
            "ending": Step(Observation("x"), {}, "over"),
            "actions": Step(Observation("x"), actions=(1,)),
            "text": Step(Observation(None)),
        }[argument]
    elif word == "scribble":
        for descriptor in range(3, 1024):
            try:
                os.write(descriptor, b"\x00\x00\x00\x05hello")
            except OSError:
                continue
    return None
