"""The same run on a GPU: what is sampled there is what is learned from there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from heedful import cli
from heedful.boundary import to_json
from heedful.run.checkpoint import checkpoints
from heedful.run.config import TrainConfig
from heedful.storage import read_metrics, write_whole
from heedful.training.batch import UpdateSettings
from heedful.training.settings import LoraConfig

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def test_two_steps_on_echo_run_on_cuda_end_to_end(echo_run: TrainConfig, tmp_path: Path) -> None:
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


def half_run(echo_run: TrainConfig, seedling_folder: Path) -> TrainConfig:
    """Two steps of a loaded model in bfloat16."""
    return replace(
        echo_run, steps=2, device="cuda", dtype="bfloat16", model=str(seedling_folder), checkpoint_every=1, threads=1
    )


def finish(config: TrainConfig, folder: Path) -> list[dict[str, object]]:
    """The values of the metrics of each step."""
    write_whole(folder.with_suffix(".json"), json.dumps(to_json(config)))
    flags = ["--config", str(folder.with_suffix(".json")), "--out", str(folder)]
    assert cli.run(["train", "echo", *flags]) == 0
    lines = read_metrics(folder / "metrics.jsonl")
    return [{name: metric.value for name, metric in line.metrics.items()} for line in lines]


@pytest.mark.parametrize("changes", [{}, {"gradient_checkpointing": True}, {"lora": LoraConfig(rank=4)}], ids=str)
def test_bfloat16_weights_are_trained(
    echo_run: TrainConfig, seedling_folder: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    lines = finish(replace(half_run(echo_run, seedling_folder), **changes), tmp_path / "run")
    for line in lines[:2]:
        error, norm = line["policy/logprob_error"], line["policy/gradient_norm"]
        assert isinstance(error, float)
        assert error < 0.25  # two ways through the same bfloat16 weights
        assert isinstance(norm, float)
        assert norm > 0
    (checkpoint,) = checkpoints(tmp_path / "run" / "checkpoints")[-1:]
    assert checkpoint.model(torch.bfloat16).dtype == torch.bfloat16


def test_gradient_checkpointing_takes_less_memory_for_the_same_gradient() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from heedful.algorithms.table import Grpo
    from heedful.training.learner import Learner
    from heedful.training.settings import OptimizerConfig
    from heedful.types import TrainingSample

    length = 1024
    config = LlamaConfig(
        vocab_size=64, hidden_size=256, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=4
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    trained = (False, *[True] * (length - 1))
    ids = tuple(range(64)) * (length // 64)
    per_token = (0.0, *[1.0] * (length - 1))
    samples = [TrainingSample(ids, trained, per_token, per_token, 0, member, 1.0) for member in range(8)]
    gradients, peaks = [], []
    for recompute in (False, True):
        learner = Learner(
            model,
            Grpo(),
            OptimizerConfig(),
            UpdateSettings(micro_batch_tokens=8 * length, device="cuda", recompute=recompute, share_prompts=False),
        )
        model.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        learner.accumulate_gradient(samples)
        peaks.append(torch.cuda.max_memory_allocated() - held)
        gradients.append(torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None]))
    assert peaks[1] < 0.6 * peaks[0]
    assert float((gradients[0] - gradients[1]).norm() / gradients[0].norm()) < 0.02


def test_a_gpu_scores_by_the_method_that_is_faster_there(seedling_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    from heedful.scorers.hf import HFScorer

    model = AutoModelForCausalLM.from_pretrained(seedling_folder)
    prompts, thoughts = [[5, 6, 7, 8], [9, 8, 7, 6, 5]], [[1, 2, 3], [3, 2, 1, 4, 5], [6]]
    expected = HFScorer(model, method="plain").cross_score(prompts, thoughts, [0, 1, 0], 1.0)
    found = HFScorer(model.to("cuda")).cross_score(prompts, thoughts, [0, 1, 0], 1.0)
    assert found.method == "cached"
    for row, other in zip(found.scores_MN, expected.scores_MN, strict=True):
        assert row == pytest.approx(other, abs=1e-3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two CUDA devices")
@pytest.mark.parametrize("kind", ["data", "fsdp2"])
def test_two_gpus_share_a_run(echo_run: TrainConfig, seedling_folder: Path, tmp_path: Path, kind: str) -> None:
    config = half_run(echo_run, seedling_folder)
    write_whole(tmp_path / "settings.json", json.dumps(to_json(config)))
    flags = ["--config", str(tmp_path / "settings.json"), "--parallel", kind, "--out", str(tmp_path / "run")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, "-m", "heedful", "train", "echo", *flags], check=True, timeout=300)
    error = read_metrics(tmp_path / "run" / "metrics.jsonl")[1].metrics["policy/logprob_error"].value
    assert isinstance(error, float)
    assert error < 0.25
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].model(torch.bfloat16).dtype == torch.bfloat16
