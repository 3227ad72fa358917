"""`heedful gradients`: what is played, measured and written, and sentences for what cannot be."""

import json
import re
import shutil
from pathlib import Path

import pytest

from heedful import cli
from heedful.report.gradients import write_gradients_page
from heedful.storage import RunFolder, read_gradients

SMALL = ["--groups", "6", "--group-size", "8", "--buckets", "3"]
TINY = ["--groups", "2", "--group-size", "4", "--buckets", "2"]


@pytest.fixture
def run(echo_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(echo_run, tmp_path / "run"))


def test_two_checkpoints_are_measured_and_laid_on_one_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert cli.run(["gradients", str(run), "--checkpoint", "0,2", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "step 2: gradients of 48 episodes" in shown
    assert "Step 0: norms of single groups" in shown
    assert re.search(r"Step 2, 6 groups of 8: squared signal .*, squared noise ", shown)
    assert all(path.read_bytes() == content for path, content in before.items())  # nothing of the run was changed
    folder = RunFolder(run)
    assert folder.gradient_steps() == [0, 2]
    start, end = (read_gradients(folder.gradients(step)) for step in (0, 2))
    assert start.metrics["gradient/all/kl_norm"].value == 0.0  # it still is its own reference
    assert end.metrics["gradient/all/kl_norm"].value > 0
    assert end.metrics["gradient/all/task_norm"].n == 6
    assert end.facts["trajectories"] == 48
    assert end.facts["gradients"] == "kept whole"
    assert end.metrics["gradient/all/task_norm"].value == end.metrics["gradient/all/task_divided_norm"].value
    page = folder.gradients_page.read_text()
    assert page.count('<svg class="chart"') == 12  # six rows of panels, two checkpoints
    assert "Step 2: directions, and the bound" in page
    assert re.findall(r"(?:src|href)=\"[^#]", page) == []  # loads nothing


def test_the_same_seed_measures_the_same_and_another_one_other_episodes(run: Path) -> None:
    path = RunFolder(run).gradients(2)
    found = []
    for seed in ("0", "0", "1"):
        assert cli.run(["gradients", str(run / "checkpoints" / "step_000002"), *TINY, "--seed", seed]) == 0
        found.append(json.loads(path.read_text())["metrics"])
    assert found[0] == found[1] != found[2]


def test_gradients_that_do_not_fit_are_projected_and_say_so(run: Path) -> None:
    assert cli.run(["gradients", str(run), *TINY, "--memory-mb", "2"]) == 0
    stored = read_gradients(RunFolder(run).gradients(2))
    assert re.fullmatch(r"projected to \d+ numbers", stored.facts["gradients"])


def test_updates_are_split_by_the_terms_of_the_loss_on_one_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    small = ["--attribution.prompts", "6", "--attribution.thoughts", "2", "--attribution.blocks", "3"]
    assert cli.run(["gradients", str(run), "--attribute", *small]) == 0
    shown = capsys.readouterr().out
    assert "Step 1: the change of each reading in this update, by part" in shown  # step 2 has no episodes of its own
    assert "not what would have been without a part" in shown
    assert all(path.read_bytes() == content for path, content in before.items())  # nothing of the run was changed
    folder = RunFolder(run)
    assert folder.attribution_steps() == [1]
    page = folder.attribution_page.read_text()
    assert page.count('<svg class="chart"') == 4
    assert "total / measured" in page
    assert re.findall(r"(?:src|href)=\"[^#]", page) == []  # loads nothing
    assert cli.run(["gradients", str(run), "--attribute", "--checkpoint", "2", *small]) == 2
    assert "Expected the episodes of step 2" in capsys.readouterr().err


def test_what_cannot_be_measured_is_answered_by_a_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, sentence in (
        ([], "expected RUN after `heedful gradients`. RUN: The folder of a run"),
        (["echo"], "a gradient belongs to an algorithm, which only a run has"),
        ([str(tmp_path)], "a gradient belongs to an algorithm, which only a run has"),
        (["nothing/here"], "a gradient belongs to an algorithm, which only a run has"),
        ([str(run), "--checkpoint", "7"], "one of the steps kept"),
    ):
        assert cli.run(["gradients", *arguments]) == 2
        assert sentence in capsys.readouterr().err
    assert cli.run(["gradients", "--help"]) == 0
    assert "--checkpoint A,B" in capsys.readouterr().out
    RunFolder(run).gradients(1).write_text('{"step": 1}')
    with pytest.raises(ValueError, match=r"gradients in .*gradients_000001.json, found no 'metrics'\. Delete"):
        read_gradients(RunFolder(run).gradients(1))


def test_a_measurement_that_lacks_readings_makes_a_page_without_them(tmp_path: Path) -> None:
    RunFolder(tmp_path).gradients(1).write_text('{"step": 1, "metrics": {"gradient/bucket_0/task_norm": 1.0}}')
    assert "Step 1: unknown (not measured)" in write_gradients_page(RunFolder(tmp_path)).read_text()


@pytest.mark.parametrize(("signal", "noise"), [(0.0, 1.0), (1e-150, 1e150), (-1.0, 1.0)])
def test_no_reading_keeps_the_page_from_being_written(signal: float, noise: float, tmp_path: Path) -> None:
    metrics = {
        "gradient/all/task_signal2": {"value": signal, "low": 1.0, "high": 2.0, "n": 4},
        "gradient/all/task_noise2": {"value": noise, "n": 4},
    }
    RunFolder(tmp_path).gradients(1).write_text(json.dumps({"step": 1, "metrics": metrics}))
    page = write_gradients_page(RunFolder(tmp_path)).read_text()
    assert ("more than any number of such groups" if signal > 0 else "cannot be distinguished from zero") in page


def test_a_place_that_cannot_be_written_is_named_before_anything_is_played(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(run).gradients(2).mkdir()
    (run / "numbers").mkdir()
    served = ["eval", "bandit", "--server", "http://127.0.0.1:9", "--model-name", "m"]
    for command, found in (
        (["gradients", str(run), *SMALL], "a folder"),
        (["eval", str(run), "--json", str(run / "numbers")], "a folder, a link, a pipe or a device"),
        (["eval", str(run), "--json", str(run / "config.json")], "another file"),
        ([*served, "--json", str(run / "config.json")], "another file"),
        (["grow", "bandit", "--model", str(run), "--json", str(run / "config.json")], "another file"),
    ):
        assert cli.run(command) == 2
        shown = capsys.readouterr()
        assert f"found {found}." in " ".join(shown.err.split())
        assert "episodes" not in shown.out
