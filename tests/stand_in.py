"""In place of the processes that a study starts: runs and growths of models without torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from heedful.studies.running import processes

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

behaviour, path = sys.argv[1], Path(sys.argv[2])
job = path.suffix == ".json"
if not job:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    (path / "began").write_text(repr(time.time()))
    with path.with_name(path.name + ".began").open("a") as often:
        often.write("x")
if behaviour in ("fails", "is killed"):
    print("its last words", flush=True)
    if behaviour == "is killed":
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(5)
if behaviour.startswith("waits for "):
    end = time.monotonic() + 60
    while not Path(behaviour.removeprefix("waits for ")).exists():
        if time.monotonic() > end:
            sys.exit(7)
        time.sleep(0.02)
if behaviour == "waits":
    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    (Path() if job else path).joinpath("listening").touch()
    while not asked:
        time.sleep(0.02)
    time.sleep(0.3)  # the step it is in
    print("asked", len(asked))
    sys.exit(130)
if job:
    path.with_suffix(".grown").touch()
    sys.exit(0)
row = {"step": 0, "time": 0.0, "metrics": {"success/rate": 0.25, "eval/val/sampled/success": 0.25}}
(path / "metrics.jsonl").write_text(json.dumps(row) + chr(10))
(path / "checkpoints").mkdir(exist_ok=True)
if behaviour == "alarms":
    sys.exit(3)
(path / "verdict.json").write_text(json.dumps({"sentences": [], "regime": "learning", "figures": {}}))
(path / "ended").write_text(repr(time.time()))
"""


def in_place_of_heedful(monkeypatch: pytest.MonkeyPatch, behaviours: Mapping[str, str]) -> None:
    """`behaviours`: a run as `s0` or `arm/s0`, or the job of a growth as `1.json` -> `fails`, `is killed`, `waits` (for
    Ctrl-C), `waits for PATH` or `alarms`. Whatever is not named succeeds."""

    def command(words: list[str]) -> list[str]:
        place = (
            words.index("--job") + 1 if "--job" in words else words.index("--trust") - 1 if "--trust" in words else -1
        )
        path = Path(words[place])
        names = f"{path.parent.name}/{path.name}", path.name
        behaviour = next((behaviours[name] for name in names if name in behaviours), "works")
        return [sys.executable, "-S", "-c", PROGRAM, behaviour, str(path)]

    monkeypatch.setattr(processes, "heedful_command", command)
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.02)
