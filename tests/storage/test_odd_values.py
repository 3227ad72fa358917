"""Values that no file of a run can hold end in a sentence, and change nothing on disk."""

import math
from pathlib import Path

import numpy as np
import pytest
from stored_groups import group

from heedful.storage import (
    RunFolder,
    TokenValues,
    append,
    check_model,
    claim_folder,
    create,
    read_gradients,
    read_metrics,
    read_rollouts,
    read_scores,
    write_checksums,
    write_gradients,
    write_rollouts,
    write_scores,
)
from heedful.types import CrossScores, Image, Metric, Task, Trajectory

HALF = "\ud800"
"""Half of a surrogate pair: text that JSON can hold, and no path."""


@pytest.mark.parametrize("call", [append, create, write_checksums, check_model, read_metrics, RunFolder.open])
@pytest.mark.parametrize("name", [HALF, "a\0b"])
def test_a_path_that_no_system_holds_is_named(call, name: str) -> None:
    with pytest.raises(ValueError, match="which no path holds"):
        call(Path(name))


@pytest.mark.parametrize("name", [HALF, "a\0b"])
def test_a_run_is_not_named_after_what_no_path_holds(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="which no path holds"):
        claim_folder([tmp_path / name])
    for root, environment in ((Path(name), "echo"), (tmp_path, name)):
        with pytest.raises(ValueError, match="which no path holds"):
            RunFolder.create(root, environment, "grpo", 0)


@pytest.mark.parametrize("step", [math.nan, 1.5, -1, 10**400, "1", None])
def test_only_a_whole_number_is_a_step(tmp_path: Path, step) -> None:
    gradients = tmp_path / "gradients_000001.json"
    for made in (
        lambda: write_rollouts(tmp_path / "r.parquet", step, "train", [group()], None),
        lambda: write_gradients(gradients, step, {}, []),
        lambda: RunFolder(tmp_path).gradients(step).exists(),
    ):
        with pytest.raises((ValueError, OSError), match=r"[Ss]tep|[Ff]ile name too long"):
            made()
    assert not any(tmp_path.iterdir())


def test_nothing_is_removed_after_a_step_that_is_no_number(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.metrics.write_text('{"step": 0, "metrics": {}}\n')
    with pytest.raises(ValueError, match="step must be a whole number"):
        run.truncate_after(math.nan)
    assert run.metrics.read_text()


def test_a_split_with_half_a_letter_is_written(tmp_path: Path) -> None:
    task = Task("a", 1, HALF)
    groups = [type(group())(task, (Trajectory(task, 0, (), group().trajectories[0].ending, None),))]
    write_rollouts(tmp_path / "r.parquet", 1, HALF, groups, None)
    assert read_rollouts(tmp_path / "r.parquet").split == read_rollouts(tmp_path / "r.parquet").groups[0].task.split


@pytest.mark.parametrize("odd", [np.float32(1), math.nan, math.inf, b"x"])
def test_a_fact_that_could_not_be_read_again_is_not_written(tmp_path: Path, odd) -> None:
    path = tmp_path / "gradients_000001.json"
    with pytest.raises(ValueError, match="Expected texts and numbers"):
        write_gradients(path, 1, {"lr": odd}, [])
    with pytest.raises(ValueError, match="Expected texts and numbers"):
        write_gradients(path, 1, {}, [Metric("a", object())])
    assert not path.exists()
    write_gradients(path, 1, {"lr": 0.5}, [])
    assert read_gradients(path).facts == {"lr": 0.5}


@pytest.mark.parametrize(
    "scores",
    [
        CrossScores([[-1.0, -2.0], [-1.0]], [1, 1], [0, 1]),
        CrossScores([["x", "y"]], [1], [0]),
        CrossScores([[10**400, -1.0]], [1], [0]),
        CrossScores([[-1.0, -2.0]], [math.inf], [0]),
        CrossScores([[-1.0, -2.0]], [1], [0.5]),
        CrossScores([[-1.0, -2.0]], [None], [0]),
        CrossScores([-1.0, -2.0], [1], [0]),
    ],
)
def test_scores_that_are_no_matrix_of_numbers_are_refused(tmp_path: Path, scores: CrossScores) -> None:
    with pytest.raises(ValueError, match="Expected"):
        write_scores(tmp_path / "s.npz", scores, ["a"] * len(scores.lengths_M), ["p", "q"])
    assert not any(tmp_path.iterdir())


def test_scores_of_no_thought_survive_the_round_trip(tmp_path: Path) -> None:
    for prompts in ([], ["p"]):
        write_scores(tmp_path / "s.npz", CrossScores([], [], []), [], prompts)
        assert read_scores(tmp_path / "s.npz").scores_MN.shape == (0, len(prompts))


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]", "timedelta64[s]", "V8", "S5", "U5", "f8", "b1", "i8"])
def test_an_array_of_another_type_is_named_when_scores_are_read(dtype: str, tmp_path: Path) -> None:
    scores = CrossScores([[-1.0, -2.0]], [2], [0])
    words, images = [TokenValues(0, ("a", "b"), (0.5, 0.25))], [(Image(b"file", 1, 1, "red"),), ()]
    write_scores(tmp_path / "s.npz", scores, ["a b"], ["p", "q"], words, images)
    with np.load(tmp_path / "s.npz") as archive:
        whole = {name: archive[name] for name in archive.files}
    assert len(read_scores(tmp_path / "s.npz").words) == 1
    for name, array in whole.items():
        fits = np.dtype(dtype).kind in {"f": "fiu", "i": "iu", "u": "iu", "U": "U"}[array.dtype.kind]
        if not fits:
            np.savez(tmp_path / "odd.npz", **{**whole, name: np.zeros(array.shape, dtype)})
            with pytest.raises(ValueError, match=rf"in the array {name}\. Delete the file"):
                read_scores(tmp_path / "odd.npz")
        np.savez(tmp_path / "odd.npz", **{**whole, name: array[None]})
        with pytest.raises(ValueError, match=rf"dimensions in the array {name}\. Delete the file"):
            read_scores(tmp_path / "odd.npz")
        if array.dtype.kind == "i":
            np.savez(tmp_path / "odd.npz", **{**whole, name: array - 9})
            with pytest.raises(ValueError, match=rf"found a number below 0 in the array {name}\."):
                read_scores(tmp_path / "odd.npz")
