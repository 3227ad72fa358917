"""The warm start of a loaded model: what decides its bytes, how it goes on after an interruption, what it refuses."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors import SafetensorError

from heedful.boundary import to_json
from heedful.envs.toys.echo import Echo
from heedful.models.load import load_model
from heedful.rollout import Context
from heedful.run.config import TrainConfig
from heedful.run.parts import load_policy
from heedful.seedlings import warm_start as warming
from heedful.seedlings.demonstrations import teacher
from heedful.seedlings.fit import Fit, Schedule
from heedful.seedlings.recipe import WarmStart
from heedful.seedlings.warm_start import Beginner, warm_folder, warm_started
from heedful.stopping import StoppedBySignal
from heedful.storage import held
from heedful.training.settings import LoraConfig

ECHO = Echo(instructions="brief")
SHORT = WarmStart(steps=4, episodes=4, lr=1e-3)


def silent(step: int, steps: int, loss: float) -> None: ...


def beginner(model: Path, **changed: Any) -> Beginner:
    env = changed.pop("env", ECHO)
    return Beginner(str(model), env, to_json(env), **changed)


def weights(folder: Path | str) -> dict[str, torch.Tensor]:
    return load_model(str(folder), torch.device("cpu"))[0].state_dict()


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_loss_of_demonstrated_replies_falls_and_the_second_call_reads_the_cache(
    seedling_folder: Path, own_cache: Path
) -> None:
    losses: list[float] = []
    recipe = replace(SHORT, steps=12, template=1.0)  # replies that the seedling has not learned
    folder = warm_started(recipe, beginner(seedling_folder), lambda step, steps, loss: losses.append(loss))
    assert len(losses) == 12
    assert losses[-1] < 0.8 * losses[0]
    assert folder.parent == own_cache / "warm"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def never(step: int, steps: int, loss: float) -> None:
        raise AssertionError("learned again")

    assert warm_started(recipe, beginner(seedling_folder), never) == folder
    assert not equal(weights(folder), weights(seedling_folder))


def test_an_interrupted_warm_start_goes_on_to_the_same_bytes(
    seedling_folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = beginner(seedling_folder)
    folder = warm_started(SHORT, learner, silent)
    whole = weights(folder)
    shutil.rmtree(folder)

    def stop_at_2(step: int, steps: int, loss: float) -> None:
        if step == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedBySignal):
        warm_started(SHORT, learner, stop_at_2)
    assert not folder.exists()
    steps: list[int] = []
    assert warm_started(SHORT, learner, lambda step, total, loss: steps.append(step)) == folder
    assert steps == [3, 4]
    assert equal(weights(folder), whole)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_everything_that_decides_the_weights_names_another_folder(seedling_folder: Path, tmp_path: Path) -> None:
    usual = warm_folder(SHORT, beginner(seedling_folder))
    copy = tmp_path / "copy"
    shutil.copytree(seedling_folder, copy)
    assert warm_folder(SHORT, beginner(copy)) == usual  # the model's bytes count, not its place
    config = copy / "config.json"
    config.write_text(config.read_text() + " ")
    others = [
        warm_folder(SHORT, beginner(copy)),
        *(warm_folder(replace(SHORT, **change), beginner(seedling_folder)) for change in ({"steps": 5}, {"lr": 2e-3})),
        warm_folder(replace(SHORT, lora=LoraConfig(rank=2)), beginner(seedling_folder)),
        warm_folder(SHORT, beginner(seedling_folder, env=replace(ECHO, symbols=4))),
        warm_folder(SHORT, beginner(seedling_folder, chat_options={"enable_thinking": False})),
    ]
    assert len({usual, *others}) == 1 + len(others)
    assert warm_folder(SHORT, beginner(seedling_folder, context=Context(3))) == usual  # one turn: nothing is cut


def test_a_warm_start_with_lora_changes_only_the_chosen_layers(seedling_folder: Path, own_cache: Path) -> None:
    pytest.importorskip("peft")
    lora = LoraConfig(rank=2, targets=("q_proj",))
    folder = warm_started(replace(SHORT, lora=lora), beginner(seedling_folder), silent)
    before, after = weights(seedling_folder), weights(folder)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "q_proj" in name}
    assert not (folder / "adapter").exists()


def test_a_run_begins_with_its_warm_start(seedling_folder: Path, own_cache: Path, echo_run: TrainConfig) -> None:
    config = replace(echo_run, model=str(seedling_folder), warm_start=SHORT)
    model, _ = load_policy(config, torch.device("cpu"), silent)
    (folder,) = (own_cache / "warm").iterdir()
    assert equal(model.state_dict(), weights(folder))


def test_a_warm_start_of_a_seedling_is_refused(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"--seedling\.steps"):
        replace(echo_run, warm_start=SHORT)


def test_an_environment_without_a_solver_is_refused_before_anything_is_loaded(own_cache: Path) -> None:
    class Silent:
        name = "silent"

    with pytest.raises(ValueError, match="whose solver a model can learn from"):
        teacher(Silent(), 0.1, 0.0)  # type: ignore[arg-type]


def test_an_episode_beyond_the_models_window_is_refused(
    seedling_folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "longest_context_of", lambda config: 8)
    with pytest.raises(ValueError, match="within the window of"):
        warm_started(SHORT, beginner(seedling_folder), silent)


def test_a_second_process_is_told_who_learns_the_same(seedling_folder: Path, own_cache: Path) -> None:
    folder = warm_folder(SHORT, beginner(seedling_folder))
    with (
        held(folder.with_name(f"{folder.name}.unfinished")),
        pytest.raises(ValueError, match="Another process is at work"),
    ):
        warm_started(SHORT, beginner(seedling_folder), silent)


def test_a_saved_fit_takes_the_same_next_step(seedling_folder: Path, tmp_path: Path) -> None:
    from heedful.models.chat.render import Renderer
    from heedful.rollout.context import FULL_HISTORY
    from heedful.seedlings.demonstrations import batches

    def fresh() -> tuple[Fit, Any]:
        model, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
        return Fit(model, Schedule(3, 1e-3), 512), Renderer(tokenizer)

    fit, renderer = fresh()
    source = batches(teacher(ECHO, 0.5, 0.5), 2, 0, renderer, FULL_HISTORY)
    first, second = next(source), next(source)
    fit.learn(first)
    fit.save(tmp_path / "fit.safetensors")
    expected = fit.learn(second)
    other, _ = fresh()
    other.load(tmp_path / "fit.safetensors")
    assert other.step == 1
    assert other.learn(second) == expected


def test_a_copy_for_which_there_is_no_room_leaves_the_earlier_one(
    seedling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_model(str(seedling_folder), torch.device("cpu"))
    fit, copy = Fit(model, Schedule(3, 1e-3), 512), tmp_path / "fit.safetensors"
    fit.save(copy)
    before = copy.read_bytes()

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("heedful.seedlings.fit.save_file", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        fit.save(copy)
    assert raised.value.errno == errno.ENOSPC
    assert copy.read_bytes() == before
    assert list(tmp_path.iterdir()) == [copy]


def test_a_file_of_the_tokenizer_names_another_folder_and_a_pipe_is_refused(
    seedling_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(seedling_folder, copy)
    usual = warm_folder(SHORT, beginner(copy))
    (copy / "merges.txt").write_text("a b\n")
    assert warm_folder(SHORT, beginner(copy)) != usual
    os.mkfifo(copy / "more.json")
    with pytest.raises(OSError, match="found a pipe or a device"):
        warm_folder(SHORT, beginner(copy))


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    schedule = Schedule(100, 1.0)
    assert schedule.at(0) == pytest.approx(0.25)
    assert schedule.at(3) == pytest.approx(1.0, abs=1e-3)
    assert schedule.at(99) == pytest.approx(0.1, abs=1e-2)
