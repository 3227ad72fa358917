"""The gradient's anatomy every few steps of a run: measured, and nothing else changes by a byte."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import trained, without_time  # noqa: E402

from heedful.algorithms.table import Grpo, Ppo  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, GradientsConfig, TrainConfig  # noqa: E402
from heedful.storage import read_metrics  # noqa: E402
from heedful.training.ranks.parallel import Fsdp2  # noqa: E402


@pytest.mark.parametrize("algorithm", [Grpo(), Ppo(kl=0.05, entropy=0.01)], ids=["grpo", "ppo"])
def test_training_is_the_same_to_the_byte_with_and_without(
    echo_run: TrainConfig, algorithm: Any, tmp_path: Path
) -> None:
    config = replace(
        echo_run,
        algorithm=algorithm,
        steps=3,
        evaluation=EvaluationConfig(times=0),
        diagnostics=DiagnosticsConfig(enabled=False),
        checkpoint_every=1,
        keep_checkpoints="all",
    )
    without = trained(config, tmp_path / "without").folder
    measured = trained(replace(config, gradients=GradientsConfig(every=2, buckets=3)), tmp_path / "with").folder
    assert without_time(without.path) == without_time(measured.path, "gradient/")
    found = [checkpoint.checkpoints(folder.path / "checkpoints") for folder in (without, measured)]
    assert [each.version for each in found[1]] == [1, 2, 3]  # all are kept
    for one, other in zip(*found, strict=True):
        for name in ("model.safetensors", "state.json"):
            assert (one.path / name).read_bytes() == (other.path / name).read_bytes()
        states = [each.learner_state()["descent"]["optimizer"]["state"] for each in (one, other)]
        for key in states[0]:
            assert all(torch.equal(states[0][key][name], states[1][key][name]) for name in states[0][key])
    names = [{name for name in line.metrics if name.startswith("gradient/")} for line in read_metrics(measured.metrics)]
    assert names[0] == names[2] != set()
    assert names[1] == set()
    assert {name.split("/")[1] for name in names[0]} == {"bucket_0", "bucket_1", "bucket_2", "all"}
    assert ("gradient/all/kl_weighted_norm" in names[0]) == (algorithm.kl > 0)
    last = read_metrics(measured.metrics)[2].metrics
    assert last["gradient/all/kl_norm"].value > 0
    assert last["gradient/all/task_norm"].n == 4
    assert last["time/gradients"].value > 0
    assert "time/gradients" not in read_metrics(measured.metrics)[1].metrics


def test_a_model_in_pieces_is_refused(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"measurement of gradients \(--gradients.every\) cannot work on shards yet"):
        replace(echo_run, parallel=Fsdp2(), gradients=GradientsConfig(every=5))
