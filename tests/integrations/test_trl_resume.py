"""A run that was killed and goes on from a checkpoint of TRL: the numbers are those of a run that was never killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
import torch
from tiny_trl import arguments, trainer_of, weights_of

from heedful.filters import RandomSubset, TopP
from heedful.integrations.trl import HeedfulConfig
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.storage import RunFolder, StepMetrics, read_metrics, read_rollouts

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

STEPS = 5
HEEDFUL = HeedfulConfig(
    filter=RandomSubset(like=TopP(p=0.7, on="reward"), on="reward"),  # draws, so its generator has to go on, too
    diagnostics=DiagnosticsConfig(every=1, full_every=3),
)


class Killed(Exception):
    """The run ends here."""


def reward(killed_at: int | None = None) -> Callable[..., list[float]]:
    """A reward that random bytes differ in; it ends the run when generation batch `killed_at` is rewarded."""
    batches = []

    def parity(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
        batches.append(completion_ids)
        if len(batches) - 1 == killed_at:
            raise Killed
        return [float(sum(ids) % 3) for ids in completion_ids]

    return parity


def trainer_at(model: Path, folder: Path, killed_at: int | None = None, **changes: Any) -> Any:
    args = arguments(
        folder,
        **{
            "max_steps": STEPS,
            "num_generations": 4,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-2,
            "optim": "adamw_torch",
            "max_completion_length": 8,
            "shuffle_dataset": True,
            "save_strategy": "steps",
            "save_steps": 2,
            **changes,
        },
    )
    data = datasets.Dataset.from_list([{"prompt": f"Say {n}!<think>"} for n in range(6)])
    return trainer_of(model, args, heedful=HEEDFUL, reward_funcs=reward(killed_at), train_dataset=data)


def lines(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    """Number and readings of every batch, clocks aside."""

    def timeless(line: StepMetrics) -> dict[str, Any]:
        return {name: metric for name, metric in line.metrics.items() if not name.startswith("time/")}

    return [(line.step, timeless(line)) for line in read_metrics(RunFolder(folder).metrics)]


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """Output folder and last weights of the run that was never killed."""
    folder = tmp_path_factory.mktemp("whole")
    trainer = trainer_at(tiny_model, folder)
    trainer.train()
    return folder, weights_of(trainer)


@pytest.fixture(scope="module")
def killed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output folder of the run that was killed while it sampled its fourth batch."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        trainer_at(tiny_model, folder, killed_at=3).train()
    assert RunFolder(folder / "heedful").rollout_steps() == [0, 1, 2]  # one more than the checkpoint knows
    return folder


@pytest.mark.parametrize("named", [False, True], ids=["the last checkpoint", "a checkpoint by its path"])
def test_a_resumed_run_measures_filters_and_ends_as_the_one_that_was_never_killed(
    named: bool, whole: tuple[Path, torch.Tensor], killed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder, weights = whole
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    record = RunFolder(tmp_path / "heedful")
    checkpoint = str(tmp_path / "checkpoint-2") if named else True
    resumed = trainer_at(tiny_model, tmp_path)
    resumed.train(resume_from_checkpoint=checkpoint)
    assert torch.equal(weights_of(resumed), weights)
    assert not (tmp_path / "heedful-2").exists()
    found, expected = lines(tmp_path / "heedful"), lines(folder / "heedful")
    assert [step for step, _ in found] == list(range(STEPS))
    assert found == expected
    original = RunFolder(folder / "heedful")
    for step in range(STEPS):
        assert record.rollouts(step).read_bytes() == original.rollouts(step).read_bytes()
    assert record.score_steps() == original.score_steps() == [0, 3]
    verdicts = [verdict for step in range(STEPS) for verdict in read_rollouts(record.rollouts(step)).verdicts or ()]
    assert {verdict.reason for verdict in verdicts} == {"kept", "not_drawn"}  # the filter was at work


def test_a_run_that_goes_on_in_another_folder_begins_a_record_there_and_keeps_the_numbering(
    whole: tuple[Path, torch.Tensor], tiny_model: Path, tmp_path: Path
) -> None:
    folder, weights = whole
    before = RunFolder(folder / "heedful").metrics.read_bytes()
    (tmp_path / "heedful").mkdir()  # a record of somebody else, under the name that the checkpoint knows
    (tmp_path / "heedful" / "metrics.jsonl").write_text("mine\n")
    resumed = trainer_at(tiny_model, tmp_path)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert torch.equal(weights_of(resumed), weights)
    assert RunFolder(folder / "heedful").metrics.read_bytes() == before
    assert (tmp_path / "heedful" / "metrics.jsonl").read_text() == "mine\n"
    assert lines(tmp_path / "heedful-2") == lines(folder / "heedful")[2:]


def test_a_checkpoint_of_trl_alone_begins_anew_and_says_so(
    whole: tuple[Path, torch.Tensor], tiny_model: Path, tmp_path: Path
) -> None:
    folder, weights = whole
    shutil.copytree(folder / "checkpoint-4", tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-4" / "heedful.json").unlink()
    resumed = trainer_at(tiny_model, tmp_path)
    with pytest.warns(UserWarning, match=r"expected heedful.json in .*checkpoint-4, found none"):
        resumed.train(resume_from_checkpoint=True)
    assert weights_of(resumed).shape == weights.shape
    assert [step for step, _ in lines(tmp_path / "heedful")] == [0]
