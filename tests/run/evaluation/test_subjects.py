"""What a name means: runs, checkpoints, models and environments, told apart without loading any of them."""

import json
from pathlib import Path

import pytest

from heedful.boundary import to_json
from heedful.run.evaluation.evaluate import evaluate
from heedful.run.evaluation.subjects import choose_checkpoint, find_subject
from heedful.run.presets import preset
from heedful.storage import RunFolder, is_run
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric


def run_folder(path: Path, checkpoints: list[int], scores: dict[int, float]) -> RunFolder:
    """The folder of an Echo run as far as choosing a checkpoint looks at it."""
    folder = RunFolder(path)
    path.mkdir()
    folder.config.write_text(json.dumps(to_json(preset("echo"))))
    for step in checkpoints:
        folder.checkpoint(step).mkdir(parents=True)
    tracker = JsonlTracker(folder.metrics)
    for step, score in scores.items():
        tracker.write(step, [Metric("eval/val/sampled/success", score)])
    tracker.close()
    return folder


def test_a_run_and_a_checkpoint_inside_it_bring_their_configuration(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10, 20], {})
    whole, inside = find_subject(str(folder.path)), find_subject(str(folder.checkpoint(10)))
    assert (whole.version, whole.weights) == (20, folder.checkpoint(20))
    assert (inside.version, inside.weights) == (10, folder.checkpoint(10))
    assert whole.config == inside.config == preset("echo")


def test_the_folder_of_a_model_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    assert not is_run(tmp_path)
    with pytest.raises(ValueError, match=r"alone, which is no run .* name the environment beside it"):
        find_subject(str(tmp_path))
    subject = find_subject(str(tmp_path), "echo")
    assert (subject.config.model, subject.config.env.instructions) == (str(tmp_path), "full")


def test_an_environment_means_its_untrained_seedling() -> None:
    subject = find_subject("echo")
    assert (subject.config, subject.weights) == (preset("echo"), None)
    assert subject.label == "the untrained seedling in echo"
    assert find_subject("seedling", "echo") == subject


def test_the_best_checkpoint_is_the_earliest_with_the_highest_evaluated_success(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10, 20, 30, 40], {0: 0.1, 10: 0.3, 20: 0.6, 30: 0.6})
    step, notes = choose_checkpoint(folder, preset("echo"), "best")
    assert step == 20
    assert len(notes) == 1
    assert "best of 3 evaluated checkpoints by its success on val (0.600)" in notes[0]


def test_a_better_evaluation_without_a_checkpoint_is_said(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10, 20], {0: 0.5, 10: 0.3, 20: 0.2})
    step, notes = choose_checkpoint(folder, preset("echo"), "best")
    assert step == 10
    assert notes[1] == "No checkpoint is kept of step 0, where the run reached 0.500."


def test_a_checkpoint_is_chosen_by_its_step(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10, 20], {})
    assert find_subject(str(folder.path), checkpoint="10").version == 10
    with pytest.raises(ValueError, match=r"one of the steps kept in .* \(10, 20\), found '15'"):
        find_subject(str(folder.path), checkpoint="15")
    with pytest.raises(ValueError, match=r"none of the kept ones \(10, 20\) was evaluated"):
        find_subject(str(folder.path), checkpoint="best")


def test_a_run_without_a_checkpoint_ends_in_a_sentence_that_says_how_to_go_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [], {})
    with pytest.raises(ValueError, match=r"found none: .* heedful train --resume .*run\. .* heedful eval echo"):
        find_subject(str(folder.path))


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10], {})
    assert find_subject(str(folder.path), "echo").version == 10
    with pytest.raises(ValueError, match="was trained in echo, but bandit was named too"):
        find_subject(str(folder.path), "bandit")
    with pytest.raises(ValueError, match="is itself a checkpoint"):
        find_subject(str(folder.checkpoint(10)), checkpoint="last")
    with pytest.raises(ValueError, match="echo is no run folder"):
        find_subject("echo", checkpoint="last")


def test_an_unknown_name_is_answered_by_what_it_could_have_been() -> None:
    with pytest.raises(ValueError, match=r"'runs/typo' alone, which is neither a path here nor an environment"):
        find_subject("runs/typo")


def test_a_damaged_configuration_is_named(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10], {})
    tree = json.loads(folder.config.read_text()) | {"learning_rate": 1}
    folder.config.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=r"run.config\.json, found 1 problem .*\n.*learning_rate"):
        find_subject(str(folder.path))


def test_from_python_a_step_is_a_number_too(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [10, 20], {})
    with pytest.raises(ValueError, match=r"one of the steps kept in .* \(10, 20\), found '15'"):
        evaluate(folder.path, checkpoint=15, show=False)
