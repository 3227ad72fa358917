"""heedful inside TRL with a real vLLM: an engine in TRL's process, and a server for two ranks.

TRL needs vLLM in its own environment, so the runs are programs (trl_vllm.py, which names the stand-ins for a GPU).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from real_vllm import PYTHON, SOURCE, RealVllm  # noqa: E402

from processes import LIMIT_S, meeting_at, store_of  # noqa: E402

MEAN, LARGEST = "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max"
CLOSE = 1e-4
"""Nats between the same weights in float32 in vLLM and in transformers."""


def ran(folder: Path, arguments: Sequence[str], ranks: Sequence[Mapping[str, str]] = ({},)) -> list[dict[str, Any]]:
    """The runs that each process found, with their weights."""
    settings = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = [os.environ[PYTHON], str(Path(__file__).with_name("trl_vllm.py")), *arguments]
    logs = [folder / f"log-{rank}" for rank in range(len(ranks))]
    processes = [
        subprocess.Popen(
            command, env={**os.environ, **settings, **own}, stdout=log.open("wb"), stderr=subprocess.STDOUT
        )
        for own, log in zip(ranks, logs, strict=True)
    ]
    try:
        codes = [process.wait(LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * len(ranks), "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)
    found = []
    for rank in range(len(ranks)):
        weights = torch.load(folder / f"weights-{rank}.pt")
        told = json.loads((folder / f"found-{rank}.json").read_text())
        found.append({name: {**told[name], "weights": weights[name]} for name in told})
    return found


@pytest.fixture(scope="module")
def colocated(
    no_other_session: None, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("colocated")
    return ran(folder, ["colocate", str(seedling_folder), str(folder)])[0]


@pytest.fixture(scope="module")
def served(vllm: RealVllm, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The runs of two ranks."""
    folder, store = tmp_path_factory.mktemp("served"), store_of(2)
    common = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **meeting_at(store)}
    ranks = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return ran(folder, ["server", str(seedling_folder), str(folder), vllm.url], ranks)


def assert_same_policy(run: Mapping[str, Any], steps: int = 3) -> None:
    """Everything sampled has the learner's log-probability, and so has each row that the loss gets: the engine holds
    the learner's weights, and no row is mixed up by filter and refill."""
    assert len(run["record"]) == steps
    assert max(line[LARGEST] for line in run["record"]) < CLOSE
    assert 0 < max(run["apart"]) < CLOSE


def test_a_colocated_engine_holds_the_learners_weights_at_every_step_also_in_refills(colocated: Any) -> None:
    run = colocated["measured"]
    assert_same_policy(run)
    assert max(line["filter/draws"] for line in run["record"]) > 1
    assert any(line["filter/dropped/constant"] for line in run["record"])
    assert all(line["information/first_turn/mi"] is not None for line in run["record"])


def test_measuring_does_not_disturb_a_colocated_engine(colocated: Any) -> None:
    assert torch.equal(colocated["measured"]["weights"], colocated["unmeasured"]["weights"])
    assert colocated["measured"]["apart"] == colocated["unmeasured"]["apart"]


def test_a_run_with_a_colocated_engine_resumes_where_it_was(colocated: Any) -> None:
    assert torch.equal(colocated["resumed"]["weights"], colocated["measured"]["weights"])
    assert_same_policy(colocated["resumed"])


def test_an_environment_is_played_by_a_colocated_engine_whose_lower_precision_is_seen(colocated: Any) -> None:
    lines = colocated["played"]["record"]
    assert len(lines) == 3
    assert all(line["success/rate"] is not None for line in lines)
    assert all(CLOSE < line[MEAN] < 0.1 for line in lines)


def test_a_server_samples_for_two_ranks_with_the_learners_weights_at_every_step(served: Any) -> None:
    first, second = (each["served"] for each in served)
    assert torch.equal(first["weights"], second["weights"])
    assert_same_policy(first)
    assert max(second["apart"]) < CLOSE
    assert max(line["filter/draws"] for line in first["record"]) > 1
