"""Two processes and one process make the same run: the same numbers, the same gradients, the same weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import pyarrow.parquet
import torch
import trl_worker

from heedful.storage import RunFolder, StepMetrics, read_metrics, read_rollouts
from processes import found_in_two

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def two(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Found]]:
    """Output folder, and what each of the two processes found."""
    folder = tmp_path_factory.mktemp("two")
    return folder, found_in_two(trl_worker.__file__, folder, [str(tiny_model)])


@pytest.fixture(scope="module")
def one(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """Output folder, and what a single process finds."""
    folder = tmp_path_factory.mktemp("one")
    return folder, {name: trl_worker.run(tiny_model, folder / name, name) for name in trl_worker.RUNS}


def lines(folder: Path) -> list[StepMetrics]:
    return list(read_metrics(RunFolder(folder / "heedful").metrics))


@pytest.mark.parametrize("name", list(trl_worker.RUNS))
def test_gradients_and_weights_are_those_of_one_process(
    name: str, two: tuple[Path, list[Found]], one: tuple[Path, Found]
) -> None:
    expected = one[1][name]
    for found in two[1]:
        assert len(found[name]["gradients"]) == len(expected["gradients"]) >= 4
        for mine, its in zip(found[name]["gradients"], expected["gradients"], strict=True):
            assert (mine - its).norm() <= 1e-5 * its.norm() if its.norm() > 0 else not mine.any()
        assert (found[name]["weights"] - expected["weights"]).norm() <= 1e-5 * expected["weights"].norm()
    assert torch.equal(two[1][0][name]["weights"], two[1][1][name]["weights"])
    updates = trl_worker.RUNS[name].get("num_iterations", 1)
    moved = [bool(gradient.any()) for gradient in expected["gradients"]]
    assert moved == [
        step != 2 or name in ("refilled", "chosen") for step in range(len(trl_worker.STEPS)) for _ in range(updates)
    ]


def test_a_refilled_update_is_no_larger_than_a_batch_on_any_process(two: tuple[Path, list[Found]]) -> None:
    """Also where most of the accepted rows were sampled by one of them."""
    assert [found["refilled"]["most_rows"] for found in two[1]] == [trl_worker.ROWS // 2 // 2] * 2


@pytest.mark.parametrize("name", list(trl_worker.RUNS))
def test_every_kept_row_has_the_samplers_log_probabilities_of_its_own_tokens(
    name: str, two: tuple[Path, list[Found]]
) -> None:
    """Also where a refill deals rows to another process than the one that sampled them."""
    assert [found[name]["apart"] for found in two[1]] == [0.0, 0.0]


@pytest.mark.parametrize("name", list(trl_worker.RUNS))
def test_the_record_is_that_of_one_process(name: str, two: tuple[Path, list[Found]], one: tuple[Path, Found]) -> None:
    mine, its = lines(two[0] / name), lines(one[0] / name)
    assert [line.step for line in mine] == [line.step for line in its] == [0, 1, 2, 3]
    for found, expected in zip(mine, its, strict=True):
        assert list(found.metrics) == list(expected.metrics)
        for metric, told in expected.metrics.items():
            if not metric.startswith("time/"):
                assert found.metrics[metric].n == told.n, metric
                assert found.metrics[metric].why == told.why, metric
                assert_close(found.metrics[metric].value, told.value)
    assert any(math.isfinite(line.metrics["information/first_turn/mi"].value or math.nan) for line in mine)


def assert_close(found: Any, expected: Any) -> None:
    assert found == (pytest.approx(expected, rel=1e-4, abs=1e-6) if isinstance(expected, float) else expected)


def test_a_group_that_straddles_processes_is_one_group(two: tuple[Path, list[Found]], one: tuple[Path, Found]) -> None:
    for step in range(4):
        mine, its = (RunFolder(folder / "grpo" / "heedful").rollouts(step) for folder in (two[0], one[0]))
        assert mine.read_bytes() == its.read_bytes()
        groups = read_rollouts(mine).groups
        assert [len(group.trajectories) for group in groups] == [4, 4, 4]
    kept = [line.metrics["filter/kept_groups"].value for line in lines(two[0] / "grpo")]
    assert kept == [2, 1, 0, 2]


def test_only_the_main_process_keeps_a_record_and_every_process_logs_the_numbers(
    two: tuple[Path, list[Found]],
) -> None:
    assert not (two[0] / "grpo" / "heedful-2").exists()
    first, second = (
        [line["filter/kept_groups"] for line in found["grpo"]["history"] if "filter/kept_groups" in line]
        for found in two[1]
    )
    assert first == second == [2, 1, 0, 2]


def test_trls_completion_log_holds_the_rows_of_both_processes(two: tuple[Path, list[Found]]) -> None:
    table = pyarrow.parquet.read_table(two[0] / "grpo" / "completions" / "completions_00001.parquet").to_pylist()
    ids = [row["heedful_id"] for row in table]
    assert ids.count(None) == 4  # the evaluation's, which came last
    assert [name for name in ids if name is not None] == [f"0/{row // 4}/{row % 4}" for row in range(4, 12)]
    rewards = {row["heedful_id"]: row["score"] for row in table}
    assert [rewards[f"0/1/{member}"] for member in range(4)] == trl_worker.DOWN


@pytest.mark.parametrize("name", ["grpo", "sharded"])
def test_a_resumed_run_of_two_processes_goes_on_as_it_was(name: str, two: tuple[Path, list[Found]]) -> None:
    """Also with the moments of AdamW, split by FSDP2."""
    folder, found = two
    for rank in range(2):
        assert torch.equal(found[rank][f"resumed {name}"]["weights"], found[rank][name]["weights"])
    again, whole = (
        [{name: m for name, m in line.metrics.items() if not name.startswith("time/")} for line in lines(folder / run)]
        for run in (f"resumed {name}", name)
    )
    assert again == whole


def test_four_processes_make_the_run_of_one(tiny_model: Path, one: tuple[Path, Found], tmp_path: Path) -> None:
    """Three rows each: every group lies across two of them, some have none to keep, and in one step nobody has any."""
    expected = one[1]["dapo"]
    four = found_in_two(trl_worker.__file__, tmp_path, [str(tiny_model)], count=4)
    for found in four:
        assert (found["dapo"]["weights"] - expected["weights"]).norm() <= 1e-5 * expected["weights"].norm()
        assert [bool(gradient.any()) for gradient in found["dapo"]["gradients"]] == [True] * 4 + [False] * 2 + [
            True
        ] * 2
    for mine, its in zip(lines(tmp_path / "dapo"), lines(one[0] / "dapo"), strict=True):
        for metric, told in its.metrics.items():
            if not metric.startswith("time/"):
                assert_close(mine.metrics[metric].value, told.value)
