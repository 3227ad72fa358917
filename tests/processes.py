"""Starting one script in two processes that find each other, as torchrun does it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

LIMIT_S = 900
"""Only a test that hangs takes so long."""


def free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def run_in_two(script: str, folder: Path, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """What the two processes of `script FOLDER ARGUMENTS...` left in `found-<rank>.pt`."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_ports(1)[0]}
    workers = [
        subprocess.Popen(
            [sys.executable, script, str(folder), *arguments],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [worker.communicate(timeout=LIMIT_S)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, text in zip(workers, said, strict=True):
        assert worker.returncode == 0, text[-3000:]
    return [torch.load(folder / f"found-{rank}.pt", weights_only=False) for rank in range(2)]
