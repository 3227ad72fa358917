"""`heedful train ENV --seeds 0,1,2`: one process per seed over one warm start, and what the seeds add up to.

Promise: every seed is an ordinary run that can be resumed and reported alone; Ctrl-C reaches all of them, and each
finishes its step and saves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from heedful.cli.seed_progress import SeedRow, SeedsView
from heedful.cli.seed_summary import summarise, write_list
from heedful.configuration import to_json
from heedful.storage import RunFolder, write_whole
from heedful.training.config import TrainConfig

POLL_SECONDS = 0.5
LAST_LINES = 12
"""Lines shown of the log of a seed that failed."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Child:
    """One seed: a run folder, the configuration it starts from and its log beside it, and the process."""

    seed: int
    folder: Path
    environment: str
    """The name the configuration gives to the environment."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def arguments(self) -> list[str]:
        """Of the `heedful` command that runs this seed."""
        return ["train", self.environment, "--config", str(self.config), "--out", str(self.folder)]

    @property
    def state(self) -> str:
        """`waiting`, `running`, `done`, `interrupted` or `failed`."""
        if self.process is None:
            return "waiting"
        code = self.process.poll()
        # Killed by the signal itself: it came before the run could listen for it.
        return {None: "running", 0: "done", 130: "interrupted", -signal.SIGINT: "interrupted"}.get(code, "failed")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "heedful", *self.arguments]

    def start(self) -> None:
        # A session of its own: the terminal's Ctrl-C must reach it once, through us, not twice (twice = stop at once).
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def interrupt(self) -> None:
        """Ask the run to finish its step and save; a second time: to stop at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)


def run_seeds(config: TrainConfig, seeds: list[int], out: Path | None) -> int:
    """Train every seed and print what they add up to.

    Writes into `out` (default: `runs/<env>-<algorithm>-seeds-<n>`): a run folder `s<seed>`, its configuration and log
    beside it, `seeds.json`, `seeds.md` and `comparison.html`.

    Returns:
        0, 1 if a seed failed, 130 if interrupted.

    Raises:
        ValueError: `out` holds something already, or the environment cannot be used.
    """
    console = _console()
    tree = to_json(config)
    named = RunFolder.open(out).path if out else None  # refused before the growth, not after
    _grow_once(config, console)
    parent = named or _claim("runs", f"{config.env.name}-{tree['algorithm']['type']}")
    children = [Child(seed, parent / f"s{seed}", tree["env"]["type"]) for seed in seeds]
    for child in children:
        write_whole(child.config, json.dumps(to_json(replace(config, seed=child.seed)), indent=2) + "\n")
    write_list(parent, seeds)
    workers = at_once(config)
    named_seeds = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    console.print(f"{named_seeds} in {parent}, {min(workers, len(seeds))} at a time", style="bold", soft_wrap=True)
    interrupted = _train(children, config, workers, console)
    failed = [child for child in children if child.state == "failed"]
    for child in failed:
        _show_failure(child, console)
    summarise(parent, console, {child.seed: child.state for child in children})
    if interrupted:
        _show_how_to_go_on(children, parent, console)
    return 1 if failed else 130 if interrupted else 0


def at_once(config: TrainConfig) -> int:
    """How many seeds train at a time: as many as have their threads; one where they would share an accelerator."""
    if config.device != "cpu":
        return 1
    return max(1, _cores() // config.threads)


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _console() -> Console:
    """The table of seeds is wider than the 80 columns that rich assumes where there is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def _claim(root: str, name: str) -> Path:
    """Make the first free `<root>/<name>-seeds-<n>`."""
    Path(root).mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = Path(root) / f"{name}-seeds-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _grow_once(config: TrainConfig, console: Console) -> None:
    """Have the seedling in the cache before the seeds start, so that none of them grows it and all show one start."""
    if config.model != "seedling":
        return
    import torch

    from heedful.terminal import GrowthBar
    from heedful.training.parts import load_policy

    torch.set_num_threads(config.threads)
    with GrowthBar(console) as bar:
        load_policy(config, torch.device("cpu"), bar)


def _train(children: Sequence[Child], config: TrainConfig, workers: int, console: Console) -> bool:
    """Run all children, `workers` at a time; whether they were interrupted."""
    evaluated = f"eval/{config.evaluation.split}/sampled/success"
    rows = [SeedRow(child.seed, RunFolder(child.folder).metrics, config.steps, evaluated) for child in children]
    try:
        with _passing_on_signals(children) as asked, SeedsView(rows, console) as view:
            while True:
                states = {child.seed: child.state for child in children}
                waiting = [child for child in children if child.state == "waiting"]
                running = list(states.values()).count("running")
                view.show(states)
                if not running and (asked or not waiting):
                    return bool(asked)
                for child in waiting[: 0 if asked else workers - running]:
                    child.start()
                    if asked:  # it came while this one was being started
                        child.interrupt()
                time.sleep(POLL_SECONDS)
    finally:
        # Whatever broke here, no run goes on unwatched.
        for child in children:
            child.interrupt()
        for child in children:
            if child.process is not None:
                child.process.wait()


@contextmanager
def _passing_on_signals(children: Sequence[Child]) -> Iterator[list[int]]:
    """Hand Ctrl-C, and a request to end, to every child; yields the signals that came."""
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for child in children:
            child.interrupt()

    earlier = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _show_failure(child: Child, console: Console) -> None:
    lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    code = child.process.returncode if child.process is not None else None
    console.print(f"seed {child.seed} failed (exit code {code}); the end of {child.log}:", style="red", soft_wrap=True)
    for line in lines:
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _show_how_to_go_on(children: Sequence[Child], parent: Path, console: Console) -> None:
    console.print("interrupted; go on with:", style="bold")
    for child in children:
        if child.state == "waiting" or (child.state == "interrupted" and not RunFolder(child.folder).config.exists()):
            console.print(f"  heedful {' '.join(child.arguments)}", markup=False, soft_wrap=True)
        elif child.state == "interrupted":
            console.print(f"  heedful train --resume {child.folder}", markup=False, soft_wrap=True)
    console.print(f"and then, for the table of all seeds: heedful report {parent}", markup=False, soft_wrap=True)
