from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from heedful.storage import (
    RunFolder,
    describe_environment,
    read_metrics,
    read_scores,
    write_scores,
    write_whole,
)
from heedful.types import CrossScores, Metric


def test_a_run_takes_the_first_free_number(tmp_path: Path) -> None:
    taken = [RunFolder.create(tmp_path / "runs", "sokoban", "grpo", 3).path.name for _ in range(2)]
    assert taken == ["sokoban-grpo-s3-1", "sokoban-grpo-s3-2"]
    (tmp_path / "runs" / taken[0]).rmdir()
    assert RunFolder.create(tmp_path / "runs", "sokoban", "grpo", 3).path.name == taken[0]
    assert RunFolder.create(tmp_path / "runs", "sokoban", "ppo", 3).path.name == "sokoban-ppo-s3-1"


def test_the_paths_of_a_run() -> None:
    run = RunFolder(Path("r"))
    names = [run.config, run.environment, run.metrics, run.report, run.rollouts(12), run.scores(7), run.checkpoint(100)]
    assert [str(path) for path in names] == [
        "r/config.json",
        "r/environment.json",
        "r/metrics.jsonl",
        "r/report.html",
        "r/rollouts/step_000012.parquet",
        "r/scores/step_000007.npz",
        "r/checkpoints/step_000100",
    ]
    assert run.rollouts(0, of="val_greedy").name == "step_000000_val_greedy.parquet"


def test_a_folder_in_use_is_refused_without_resume(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert RunFolder.open(out).path.is_dir()
    write_whole(out / "config.json", '{"env": {}, "steps": 4, "algorithm": {}}')
    with pytest.raises(ValueError, match=r"found 1 entries \(config.json\).*--resume"):
        RunFolder.open(out)
    assert RunFolder.open(out, resume=True).path == out


def test_a_resume_needs_a_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found nothing"):
        RunFolder.open(tmp_path / "absent", resume=True)
    write_whole(tmp_path / "notes.txt", "x")
    with pytest.raises(ValueError, match=r"found only notes\.txt"):
        RunFolder.open(tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"found a file. Give another --out\.$"):
        RunFolder.open(tmp_path / "notes.txt")


def test_a_resume_of_something_inside_a_run_names_the_folder_of_the_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    write_whole(run.config, '{"env": {}, "steps": 4, "algorithm": {}}')
    write_whole(run.checkpoint(2) / "config.json", '{"model_type": "llama"}')
    for inside, found in (
        (run.config, "found a file"),
        (run.checkpoint(2), "found the config.json of something else"),
        (run.checkpoint(2).parent, "found only step_000002"),
    ):
        with pytest.raises(ValueError, match=rf"{found}\. Give the folder of its run, {run.path}, to --resume\.$"):
            RunFolder.open(inside, resume=True)


def test_truncating_leaves_nothing_later_and_keeps_the_rest_byte_for_byte(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for step in (9, 10, 11, 100):
        write_whole(run.rollouts(step), f"{step}")
        write_whole(run.rollouts(step, of="val_greedy"), f"{step}")
        write_whole(run.scores(step), f"{step}")
    kept = b'{"step": 9,   "metrics": {"a": 1.50}}\n{"step": 10, "metrics": {}}\n'
    write_whole(run.metrics, kept + b'{"step": 11, "metrics": {"a": 2}}\n{"step": 10, "metr')
    write_whole(run.report, "old")
    run.truncate_after(10)
    assert run.metrics.read_bytes() == kept
    assert (run.rollout_steps(), run.score_steps()) == ([9, 10], [9, 10])
    assert not run.rollouts(11, of="val_greedy").exists()
    assert run.rollouts(10, of="val_greedy").exists()
    assert not run.report.exists()
    write_whole(run.report, "of what is left")
    run.truncate_after(10)
    assert run.report.exists()


def test_stored_steps_are_listed_in_order_and_evaluations_apart(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.rollout_steps() == run.score_steps() == run.checkpoint_steps() == []
    for step in (1_000_000, 20, 3):
        write_whole(run.rollouts(step), "")
        write_whole(run.rollouts(step, of="val_sampled"), "")
        run.checkpoint(step).mkdir(parents=True)
    assert run.rollout_steps() == run.checkpoint_steps() == [3, 20, 1_000_000]


@pytest.mark.parametrize("name", ["step_4", "step_0000004", "step_000004 (copy)", "step_٠٠٠٠٠٤"])
def test_a_renamed_entry_is_no_step(name: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.checkpoint(3).mkdir(parents=True)
    (run.path / "checkpoints" / name).mkdir()
    assert run.checkpoint_steps() == [3]


def test_the_environment_names_versions_without_importing_torch() -> None:
    program = (
        "import sys, json; from heedful.storage import describe_environment; "
        "print(json.dumps([describe_environment('cpu', 2), 'torch' in sys.modules, 'pyarrow' in sys.modules]))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    environment, torch_loaded, pyarrow_loaded = json.loads(answer.stdout)
    assert not torch_loaded
    assert not pyarrow_loaded
    assert environment["versions"]["heedful"] == "0.1.0"
    assert environment["versions"]["numpy"] == np.__version__
    assert (environment["device"], environment["threads"]) == ("cpu", 2)


def test_a_package_that_is_not_installed_is_none() -> None:
    versions = describe_environment("cpu", 1)["versions"]
    assert isinstance(versions, dict)
    assert "vllm" in versions


def test_metrics_are_read_with_intervals_labels_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 0, "time": 1.5, "metrics": {"a": 2,'
        ' "mi": {"value": 1.0, "low": 0.5, "high": 1.5, "n": 16, "why": ""}}}\n'
        '\n{"step": 4, "metrics": {"mi": {"value": null, "low": null, "high": null, "n": 1, "why": "one prompt"},'
        ' "regime/first_turn": "diverse", "bad": NaN}}\n'
    )
    first, second = read_metrics(path)
    assert (first.step, first.time, second.time) == (0, 1.5, None)
    assert first.metrics["a"] == Metric("a", 2)
    assert first.metrics["mi"] == Metric("mi", 1.0, 16, 0.5, 1.5)
    assert second.metrics["mi"] == Metric("mi", None, 1, why="one prompt")
    assert second.metrics["regime/first_turn"].value == "diverse"
    assert second.metrics["bad"] == Metric("bad", None, why="the value was nan")


@pytest.mark.parametrize("value", [1.7e308, -1e151, 5e-324, -1e-151])
def test_numbers_that_no_statistic_can_hold_are_missing_with_the_reason(tmp_path: Path, value: float) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 0, "metrics": {{"a": {{"value": {value}, "low": {value}}}, "b": 0}}}}\n')
    found = read_metrics(path)[0].metrics
    assert found == {"a": Metric("a", None, why=f"the value was {value}"), "b": Metric("b", 0)}


def test_only_the_last_line_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"step": 0, "metrics": {}}\n'
    path.write_text(good + '{"step": 1, "met')
    assert [row.step for row in read_metrics(path)] == [0]
    path.write_text(good + '{"step": 1, "met\n' + good)
    with pytest.raises(ValueError, match=r"on line 2 of .*metrics.jsonl, found text that is not JSON"):
        read_metrics(path)
    path.write_text(good + '{"step": 1}\n')  # a whole line, which nobody tore
    with pytest.raises(ValueError, match=r"on line 2 of .*metrics.jsonl, found 'metrics'"):
        read_metrics(path)


def test_no_measurements_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Give the folder of a run"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_scores_survive_the_round_trip_with_equal_bytes(tmp_path: Path) -> None:
    scores = CrossScores([[-1.0, -2.5], [-3.25, -0.125], [-1.5, -1.5]], [3, 4, 5], [0, 1, 1])
    for name in ("a.npz", "b.npz"):
        write_scores(tmp_path / name, scores, ["go <b>", "stay", ""], ["P_", "_P\n"])
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    read = read_scores(tmp_path / "a.npz")
    np.testing.assert_array_equal(read.scores_MN, scores.scores_MN)
    assert (read.lengths_M.tolist(), read.own_M.tolist()) == ([3, 4, 5], [0, 1, 1])
    assert (read.thoughts_M, read.prompts_N) == (("go <b>", "stay", ""), ("P_", "_P\n"))
