"""The seam by which a policy is chosen, proved by a second source: `folder_source.FolderSource`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import NO_EVALUATION, UNMEASURED, Trained, same, trained, without_time  # noqa: E402

from folder_source import FolderSource, event_log, events  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.boundary import from_json, to_json  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Local, Sampling, Weights, open_with  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.loop import train_steps  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.storage import RunFolder  # noqa: E402
from research.sampling import sample_batches  # noqa: E402

STEP_0 = ["weights 0", "policy 0 sampled", "policy 0 greedy", "policy 0 sampled"]
STEP_1 = ["weights 1", "policy 1 sampled"]
AFTER = ["weights 2", "policy 2 sampled", "policy 2 greedy"]


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """Two steps on Echo, evaluated before and after; replies come through a folder."""
    return replace(
        echo_run,
        policy=FolderSource(tmp_path_factory.mktemp("source")),
        steps=2,
        evaluation=EvaluationConfig(tasks=4, samples=1, times=2, search_tasks=0),
        checkpoint_every=1,
        keep_checkpoints="all",
        diagnostics=UNMEASURED,
    )


@pytest.fixture(scope="module")
def source(config: TrainConfig) -> Path:
    assert isinstance(config.policy, FolderSource)
    return config.policy.folder


@pytest.fixture(scope="module")
def logged(config: TrainConfig, source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, list[str]]:
    """A finished run of that configuration, and what its source was asked."""
    run = trained(config, tmp_path_factory.mktemp("whole") / "run")
    run.folder.config.write_text(json.dumps(to_json(config)))
    return run, events(source)


@pytest.fixture
def finished(logged: tuple[Trained, list[str]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(logged[0].folder.path, tmp_path / "finished"))


def test_training_and_evaluation_ask_the_chosen_source_which_gets_the_weights_once_per_update(
    logged: tuple[Trained, list[str]], source: Path
) -> None:
    run, asked = logged
    assert asked == ["open 0", *STEP_0, *STEP_1, *AFTER, "close"]
    assert run.watch.notes.count(f"sampling through {source.name}") == 1
    for version in (1, 2):
        handed_over, saved = source / f"version_{version}", run.folder.checkpoint(version)
        assert (handed_over / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()
    assert run.watch.values["sampler/probe_error"] == [0.0, 0.0, 0.0]
    errors = [error for error in run.watch.values["policy/logprob_error"] if error is not None]
    assert errors
    assert max(errors) < 1e-4, "the replies are those of the weights that were trained on"


def test_a_run_resumed_with_another_source_goes_on_with_the_same_bytes(
    logged: tuple[Trained, list[str]], config: TrainConfig, source: Path, tmp_path: Path
) -> None:
    whole, _ = logged
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    assert middle.version == 1
    rest = trained(config, tmp_path / "rest", middle)
    assert events(source) == ["open 0", *STEP_1, *AFTER, "close"]
    assert same(whole.weights, rest.weights)
    assert without_time(rest.folder.path) == without_time(whole.folder.path)[1:]
    assert rest.folder.rollouts(1).read_bytes() == whole.folder.rollouts(1).read_bytes()


def test_a_source_is_closed_when_a_run_fails(config: TrainConfig, source: Path, tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    class Failing:
        def write(self, *given: object) -> None:
            raise Broken

        def close(self) -> None: ...

        def note(self, sentence: str) -> None: ...

        def first_rollout(self, trajectory: object) -> None: ...

    unevaluated = replace(config, evaluation=NO_EVALUATION)
    parts = assemble(unevaluated, lambda *given: None, None)
    with pytest.raises(Broken):
        train_steps(unevaluated, parts, RunFolder.open(tmp_path / "run"), [], Failing())
    assert events(source) == ["open 0", "weights 0", "policy 0 sampled", "close"]


def test_every_command_asks_the_source_of_the_run(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(f"eval {finished} --tasks 2 --samples 1 --search-tasks 0".split()) == 0
    assert events(source) == ["open 0", "weights 2", "policy 2 sampled", "policy 2 greedy", "close"]
    assert cli.run(f"play --by {finished} --references 2".split()) == 0
    assert events(source) == ["open 0", "weights 2", "policy 2 sampled", "policy 2 sampled", "close"]
    assert cli.run(f"gradients {finished} --checkpoint 1 --groups 2 --group-size 2 --at-once 2".split()) == 0
    assert events(source) == ["open 0", "weights 1", "policy 1 sampled", "policy 1 sampled", "close"]
    assert f"sampling through {source.name}" in capsys.readouterr().out


def test_another_source_can_be_named_for_an_evaluation_and_for_training(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(f"eval {finished} --policy local --tasks 2 --samples 1 --search-tasks 0".split()) == 0
    assert not event_log(source).exists()
    named = f"train echo --policy folder_source:FolderSource --policy.folder {source}"
    assert cli.run(f"{named} --print-config".split()) == 0
    assert '"type": "folder_source:FolderSource"' in capsys.readouterr().out
    assert cli.run(f"{named} --sampling.precision double".split()) == 2
    assert "--policy folder samples in the model's precision" in capsys.readouterr().err


def test_studies_sample_their_batches_and_their_forced_thoughts_from_the_source(
    config: TrainConfig, source: Path, tmp_path: Path
) -> None:
    assert sample_batches(config, 1, 2, RunFolder(tmp_path / "job")) == 0
    # One policy plays; for each kind of forced thought one thinks and one answers.
    assert events(source) == ["open 0", "weights 0", *["policy 0 sampled"] * 7, "close"]


def test_a_source_says_how_it_samples_and_what_it_cannot(config: TrainConfig) -> None:
    assert config.asked(Sampling()).noise == "conversation"
    assert replace(config, policy=Local()).asked(Sampling()).noise == "batch"
    with pytest.raises(ValueError, match=r"--policy folder samples in the model's precision"):
        replace(config, sampling=Sampling(precision="double"))


def test_configurations_written_before_there_was_a_choice_sample_locally(echo_run: TrainConfig) -> None:
    tree = to_json(echo_run)
    assert tree.pop("policy")["type"] == "local"
    assert from_json(TrainConfig, tree) == echo_run
    assert from_json(TrainConfig, {**tree, "policy": {"type": "local"}}) == echo_run  # before it could compile
    assert echo_run.policy == Local()


def test_the_local_source_samples_from_the_weights_that_it_was_given_last(
    echo_run: TrainConfig, seedling_folder: Path
) -> None:
    model, _ = load_model(str(seedling_folder), torch.device("cpu"))
    renderer = assemble(echo_run, lambda *given: None, None).renderer
    with open_with(Local(), Weights(model, 3)) as source:
        policy = source.policy(renderer, Sampling(tokens_per_turn=4), 0)
        assert policy.version == 3
        assert source.weights_changed(Weights(model, 4)) == []
        assert source.policy(renderer, Sampling(tokens_per_turn=4), 0).version == 4
        assert policy.version == 3
