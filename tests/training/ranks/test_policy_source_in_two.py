"""Two processes sample through one source of policies: rank 0 sends the weights, and no rank samples before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from folder_source import FolderSource, events
from heedful.boundary import to_json
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig
from heedful.storage import read_metrics
from heedful.training.ranks.parallel import DataParallel, Fsdp2, Parallel
from processes import run_in_two


@pytest.mark.parametrize("parallel", [DataParallel(), Fsdp2()], ids=["data", "fsdp2"])
def test_every_rank_is_handed_the_weights_and_samples_from_them(
    parallel: Parallel, echo_run: TrainConfig, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    config = replace(
        echo_run,
        policy=FolderSource(source),
        parallel=parallel,
        steps=2,
        evaluation=EvaluationConfig(tasks=2, samples=1, times=1, search_tasks=0),
        diagnostics=DiagnosticsConfig(enabled=False),
    )
    (tmp_path / "settings.json").write_text(json.dumps(to_json(config)))
    trusted = ["--trust", "folder_source"]
    run_in_two(["-m", "heedful", "train", "echo", "--config", "settings.json", "--out", "run", *trusted], tmp_path)
    steps = ["weights 0", "policy 0 sampled", "weights 1", "policy 1 sampled"]
    after = ["weights 2", "policy 2 sampled", "policy 2 greedy"]
    assert [events(source, rank) for rank in range(2)] == [
        ["open 0", *steps, *after, "close"],
        ["open 1", *steps, *after, "close"],
    ]
    values = {
        metric.name: metric.value
        for line in read_metrics(tmp_path / "run" / "metrics.jsonl")
        for metric in line.metrics.values()
    }
    assert values["sampler/probe_error"] == pytest.approx(0.0, abs=1e-5)
    errors = [
        line.metrics["policy/logprob_error"].value
        for line in read_metrics(tmp_path / "run" / "metrics.jsonl")
        if "policy/logprob_error" in line.metrics
    ]
    known = [error for error in errors if isinstance(error, float)]
    assert known
    assert max(known) < 1e-4, "both ranks sampled from the weights that were trained on"
