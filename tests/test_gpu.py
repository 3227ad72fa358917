"""The same run on a GPU: what is sampled there is what is learned from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heedful import cli
from heedful.configuration import to_json
from heedful.storage import read_metrics, write_whole
from heedful.training.checkpoint import checkpoints
from heedful.training.config import TrainConfig

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def test_two_steps_on_echo_run_on_cuda_end_to_end(echo_run: TrainConfig, tmp_path: Path) -> None:
    import json

    config = replace(echo_run, steps=2, device="cuda", checkpoint_every=1)
    write_whole(tmp_path / "settings.json", json.dumps(to_json(config)))
    run = tmp_path / "run"
    assert cli.run(["train", "echo", "--config", str(tmp_path / "settings.json"), "--out", str(run)]) == 0
    assert checkpoints(run / "checkpoints")[-1].version == 2
    lines = read_metrics(run / "metrics.jsonl")
    assert [line.step for line in lines] == [0, 1, 2]
    for line in lines[:2]:
        error = line.metrics["policy/logprob_error"].value
        assert isinstance(error, float)
        assert error < 1e-3
    assert isinstance(lines[0].metrics["information/first_turn/mi"].value, float)
