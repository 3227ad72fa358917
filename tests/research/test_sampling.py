"""A sampling job: Ctrl-C between two batches."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

from heedful.envs.toys.echo import Echo
from heedful.run.presets import preset
from heedful.storage import RunFolder, read_metrics
from heedful.types import Metric
from research import sampling


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_finishes_the_batch_and_a_second_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, presses: int
) -> None:
    diagnostician = SimpleNamespace(state=dict, load_state=lambda state: None)
    parts = SimpleNamespace(diagnostician=diagnostician, env=Echo(), model=None)
    monkeypatch.setattr(sampling, "assemble", lambda *_: parts)

    def sample(config: Any, parts: Any, source: Any, folder: RunFolder, batch: int) -> list[Metric]:
        for _ in range(presses if batch == 1 else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return [Metric("success/rate", 0.5)]

    monkeypatch.setattr(sampling, "_sample", sample)
    before, folder = signal.getsignal(signal.SIGINT), RunFolder(tmp_path / "run")
    if presses == 1:
        assert sampling.sample_batches(preset("echo"), 4, 0, folder) == 130
    else:
        with pytest.raises(KeyboardInterrupt):
            sampling.sample_batches(preset("echo"), 4, 0, folder)
    assert [line.step for line in read_metrics(folder.metrics)] == ([0, 1] if presses == 1 else [0])
    assert signal.getsignal(signal.SIGINT) is before
