"""Starting one program in two or more processes that find each other, as torchrun does it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from warm import WarmProcess

LIMIT_S = 900
"""Only a test that hangs takes so long."""

ALONE_S = 300
"""The time in which a process must notice that the other one has failed."""


def run_in_two(
    program: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None, count: int = 2
) -> list[str]:
    """What the processes of `python PROGRAM...`, started in `folder`, print. All must end with 0.

    The store is kept here, as torchrun keeps it. It takes a free port, so no port can be taken by somebody else.
    """
    store = store_of(count)
    with started(range(count), program, folder, meeting_at(store) | dict(variables or {}), count) as ranks:
        said = ended(ranks)
    assert not any(rank.returncode for rank in ranks), "\n".join(text[-3000:] for text in said)
    return said


def store_of(count: int) -> TCPStore:
    """The store in which the ranks meet. It lives as long as the object."""
    return TCPStore("127.0.0.1", 0, count, True, timedelta(seconds=LIMIT_S), wait_for_workers=False)


def meeting_at(store: TCPStore) -> dict[str, str]:
    """The variables that send ranks to a store, as torchrun sets them."""
    return {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}


def found_in_two(script: str, folder: Path, arguments: Sequence[str] = (), count: int = 2) -> list[dict[str, Any]]:
    """What the processes of `script FOLDER ARGUMENTS...` left in `found-<rank>.pt`."""
    run_in_two([script, str(folder), *arguments], folder, count=count)
    return [torch.load(folder / f"found-{rank}.pt", weights_only=False) for rank in range(count)]


@contextmanager
def started(
    ranks: Sequence[int], program: Sequence[str], folder: Path, variables: Mapping[str, str], count: int = 2
) -> Iterator[list[WarmProcess]]:
    """These ranks of `count`, killed with the context."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": "1",
    }
    common |= {"PYTHONPATH": paths, **variables}
    processes: list[WarmProcess] = []
    try:
        for rank in ranks:
            environment = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(WarmProcess(program, folder, environment))
        yield processes
    finally:
        for process in processes:
            process.kill()


def ended(processes: Sequence[WarmProcess]) -> list[str]:
    """What they print until they end. When one fails, the others have `ALONE_S` to notice, so no failure takes long."""
    with ThreadPoolExecutor(len(processes)) as pool:
        printed = [pool.submit(process.communicate) for process in processes]
        try:
            end = time.monotonic() + LIMIT_S
            while time.monotonic() < end and not all(each.done() for each in printed):
                if any(process.poll() for process in processes):
                    end = min(end, time.monotonic() + ALONE_S)
                wait(printed, 0.2)
        finally:
            for process in processes:
                process.kill()
        return [each.result()[0] for each in printed]
