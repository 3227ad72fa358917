"""Two nodes, as torchrun starts them: an agent on each, which meet at one address. Here both are on this machine.

A node is its agent and its rank in a session of their own, so killing the session is the loss of a machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.storage import RunFolder, read_metrics  # noqa: E402
from ports import lasting_port  # noqa: E402

LIMIT_S = 600
"""Only a test that hangs takes so long."""

STEPS = 6
CONFIG = ["--steps", str(STEPS), "--groups", "4", "--group-size", "4", "--checkpoint-every", "1", "--seed", "5"]
CONFIG += ["--evaluation.tasks", "8", "--evaluation.samples", "1", "--evaluation.search-tasks", "0"]


class Node:
    """One torchrun agent of two, with one rank."""

    def __init__(self, port: int, words: list[str], folder: Path, log: Path) -> None:
        meeting = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "0", "--local-addr", "127.0.0.1"]
        meeting += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"run-{port}"]
        line = [sys.executable, "-m", "torch.distributed.run", *meeting, "-m", "heedful", "train", *words]
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                line,
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
            )

    def lose(self) -> None:
        """Kill the agent and its rank at once, as a machine that is switched off."""
        ranks = _children(self.process.pid)
        for pid in [self.process.pid, *ranks]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)

    def end(self) -> int:
        return self.process.wait(LIMIT_S)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in tasks.read_text().split()]


def nodes(words: list[str], folder: Path, name: str) -> list[Node]:
    port = lasting_port()
    return [Node(port, words, folder, folder / f"{name}-{number}.log") for number in range(2)]


def finish(words: list[str], folder: Path, name: str) -> None:
    both = nodes(words, folder, name)
    try:
        codes = [node.end() for node in both]
    finally:
        for node in both:
            if node.process.poll() is None:
                node.lose()
    assert codes == [0, 0], "\n".join(node.said() for node in both)


def wait_for(found: Callable[[], bool], both: list[Node]) -> None:
    end = time.monotonic() + LIMIT_S
    while not found():
        assert all(node.process.poll() is None for node in both), "\n".join(node.said() for node in both)
        assert time.monotonic() < end, "\n".join(node.said() for node in both)
        time.sleep(0.05)


def readings(run: Path) -> list[tuple[int, str, object]]:
    """Step, name and value of all metrics but those of time."""
    return [
        (line.step, name, metric.value)
        for line in read_metrics(RunFolder(run).metrics)
        for name, metric in line.metrics.items()
        if not name.startswith("time/")
    ]


@pytest.mark.proof
@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds the ranks of an agent in /proc, as Linux has it"
)
def test_a_run_of_two_nodes_that_loses_one_is_resumed_with_the_same_bytes(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", 2)
    finish(["echo", *CONFIG, "--out", str(tmp_path / "whole")], tmp_path, "whole")
    assert max(step for step, _, _ in readings(tmp_path / "whole")) == STEPS

    killed = tmp_path / "killed"
    both = nodes(["echo", *CONFIG, "--out", str(killed)], tmp_path, "killed")
    try:
        wait_for(lambda: len(list((killed / "checkpoints").glob("step_*"))) >= 1, both)
        both[1].lose()
        assert both[0].end() != 0  # the other node notices, and ends
    finally:
        for node in both:
            if node.process.poll() is None:
                node.lose()
    assert json.loads((killed / "config.json").read_text())["steps"] == STEPS
    assert max((step for step, _, _ in readings(killed)), default=0) < STEPS

    finish(["--resume", str(killed)], tmp_path, "resumed")
    assert readings(killed) == readings(tmp_path / "whole")
    last = f"checkpoints/step_{STEPS:06d}"
    weights = [(tmp_path / run / last / "model.safetensors").read_bytes() for run in ("whole", "killed")]
    assert weights[0] == weights[1]
    shutil.rmtree(killed)
