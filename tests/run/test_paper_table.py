"""The paper's main table as presets: each cell is a configuration, has an estimate, and takes a step."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful import cli
from heedful.algorithms.gae import Gae
from heedful.boundary import parse, to_json
from heedful.envs.common.tasks import TaskStream
from heedful.filters import Softmax
from heedful.models.load import without_weights
from heedful.policies.sampling import Sampling
from heedful.run.config import EvaluationConfig, TrainConfig, from_written
from heedful.run.forecast import GPUS, PROMPT, memory_of_step, of_whole_run, tokens_of_step
from heedful.run.loop import train_steps
from heedful.run.parts import assemble
from heedful.run.presets import PAPER, SHAPES, preset
from heedful.storage import RunFolder
from heedful.types import Metric
from paper_models import LEAN, two_layers

SIZES = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
}
"""The weights that the models' own files count."""


def test_the_table_has_ten_rows_of_four_cells() -> None:
    rows: dict[str, set[str]] = {}
    for name in PAPER:
        column, _, row = name.removeprefix("paper/").partition("-")
        rows.setdefault(row, set()).add(column)
    seeing = rows.pop("ppo-qwen2.5-vl-3b-instruct")
    assert seeing == {"sokoban", "frozen_lake", "sokoban_image", "frozen_lake_image"}
    sizes = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b", "qwen2.5-3b-instruct", "llama-3.2-3b-instruct")
    assert set(rows) == {f"ppo-{size}" for size in sizes} | {
        f"{name}-qwen2.5-3b" for name in ("dapo", "grpo", "dr_grpo")
    }
    assert all(columns == {"sokoban", "frozen_lake", "metamath", "countdown"} for columns in rows.values())


def test_a_cell_has_the_published_settings() -> None:
    # config/base.yaml and scripts/runs/run_main_table_diff_algo.sh of the published code.
    config = preset("paper/sokoban-ppo-qwen2.5-3b")
    algorithm, optimizer = config.algorithm, config.optimizer
    assert (config.groups, config.group_size, config.steps) == (8, 16, 400)
    assert config.groups * config.group_size // algorithm.minibatches == 32
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.kl, algorithm.entropy) == (0.2, 0.28, 0.0, 0.001)
    assert algorithm.advantage == Gae(gamma=1.0, lam=1.0)
    assert (optimizer.lr, optimizer.betas, optimizer.weight_decay, optimizer.gradient_clip) == (
        1e-6,
        (0.9, 0.999),
        0.01,
        1,
    )
    assert (config.critic.lr, config.critic.clip, config.critic.warmup_steps) == (1e-5, 0.5, 0)
    assert (config.sampling.tokens_per_turn, config.sampling.temperature) == (400, 1.0)
    assert (config.env.turns, config.env.actions_per_turn, config.env.size, config.env.boxes) == (5, 2, 6, 1)
    assert config.filter == Softmax(p=0.9, temperature=1.0, include_constant=True, on="reward")
    assert sorted(config.evaluation.at(400))[:3] == [0, 10, 20]
    averages = {name: preset(f"paper/sokoban-{name}-qwen2.5-3b").algorithm for name in ("dapo", "grpo", "dr_grpo")}
    assert [one.average for one in averages.values()] == ["token", "sequence", "fixed"]
    assert {(one.clip_high, one.entropy, one.sampling_batches) for one in averages.values()} == {(0.28, 0.001, 1)}


@pytest.mark.parametrize("name", PAPER)
def test_a_cell_is_printed_read_back_and_loses_its_filter_by_one_flag(name: str) -> None:
    config = preset(name)
    assert from_written(json.loads(json.dumps(to_json(config)))) == config
    without = parse(TrainConfig, config, ["--filter", "keep_all"], "heedful train", "")
    assert replace(without, filter=config.filter) == config != without
    assert preset(name, "folder") == replace(config, model="folder")


def test_each_environment_of_the_table_has_as_many_held_out_tasks_as_are_evaluated() -> None:
    for column in ("sokoban", "frozen_lake", "countdown"):
        tasks = TaskStream(preset(f"paper/{column}-ppo-qwen2.5-3b").env, "val", 0).next(512)
        assert len({task.id for task in tasks}) == 512


@pytest.mark.parametrize("name", SIZES)
def test_the_shapes_are_those_of_the_published_models(name: str) -> None:
    model = without_weights(name, "bfloat16", SHAPES[name])
    assert sum(weight.numel() for weight in model.parameters()) == SIZES[name]
    for config in (config for config in map(preset, PAPER) if config.model == name):
        for gpu, (room, _) in GPUS.items():
            said = of_whole_run(config, model, gpu)
            needed = int(said.partition("memory  ")[2].partition(" GB")[0])
            assert ("which does not fit" in said) == (needed > room)


def test_the_states_of_a_critic_are_those_of_another_model() -> None:
    name = "Qwen/Qwen2.5-3B"
    model = without_weights(name, "bfloat16", SHAPES[name])
    grpo, ppo = preset("paper/sokoban-grpo-qwen2.5-3b"), preset("paper/sokoban-ppo-qwen2.5-3b")
    # bfloat16 weights, a float32 copy, two moments and gradients: 2 + 4 + 8 + 4 bytes a weight.
    assert memory_of_step(model, ppo, PROMPT) - memory_of_step(model, grpo, PROMPT) == SIZES[name] * 18


def test_hours_are_operations_over_the_assumed_speed() -> None:
    name = "Qwen/Qwen2.5-0.5B"
    config = replace(
        preset("paper/countdown-grpo-qwen2.5-3b", name),
        steps=3600,
        evaluation=EvaluationConfig(times=0),
        sampling=Sampling(tokens_per_turn=600),
    )
    config = replace(config, diagnostics=replace(config.diagnostics, enabled=False))
    said = of_whole_run(config, without_weights(name, "bfloat16", SHAPES[name]), "H200")
    # 8 prompts are read, 128 replies of 600 sampled; 128 rows of 1,000 pass four times: forward, again, and backward.
    assert tokens_of_step(config, PROMPT).collect == 8 * 400 + 128 * 600
    sampling = 2 * SIZES[name] * (8 * 400 + 128 * 600) / (989e12 * 0.03)
    updates = 2 * SIZES[name] * 128 * 1000 * 4 / (989e12 * 0.25)
    assert f"hours   {sampling + updates:.1f}: {sampling:.1f} of sampling, {updates:.1f} of updates" in said
    assert "76,800 sampled a step" in said
    assert "which does not fit" not in said


def test_what_does_not_fit_is_said_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "paper/sokoban-ppo-qwen2.5-7b", "--estimate", "H200"]) == 0
    said = capsys.readouterr().out
    assert "Qwen/Qwen2.5-7B in sokoban on one H200 of 141 GB" in said
    assert "which does not fit" in said
    assert "not a measurement" in said


def test_an_estimate_of_a_folder_reads_its_config_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {**SHAPES["Qwen/Qwen2.5-0.5B"], "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    assert cli.run(["train", "bandit", "--model", str(tmp_path), "--estimate", "RTX4090"]) == 0
    assert "GB at the peak. " in capsys.readouterr().out
    assert cli.run(["train", "bandit", "--estimate", "H200"]) == 2
    assert "Name a loaded model with --model." in capsys.readouterr().err


def test_the_page_has_the_table_that_the_script_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    table = "\n".join(importlib.import_module("paper_table").rows())
    assert table in (root / "docs" / "results" / "paper.md").read_text(encoding="utf-8")


CELLS = {
    "sokoban-ppo-qwen2.5-0.5b": [],
    "frozen_lake-ppo-llama-3.2-3b-instruct": [],
    "countdown-dr_grpo-qwen2.5-3b": [],
    "sokoban_image-ppo-qwen2.5-vl-3b-instruct": ["--filter", "keep_all"],  # random replies earn alike
}


@pytest.mark.parametrize(("cell", "more"), CELLS.items())
def test_a_cell_takes_a_step_with_a_random_model_of_two_layers(cell: str, more: list[str], tmp_path: Path) -> None:
    assert one_step(f"paper/{cell}", more, tmp_path) < 1e-4


def one_step(name: str, more: list[str], folder: Path) -> float:
    """The largest difference of log-probabilities between sampler and learner, in nats."""
    config = preset(name, str(two_layers(preset(name).model, folder / "model")))
    config = parse(TrainConfig, config, [*LEAN.split(), *more], "heedful train", "")
    parts = assemble(config, lambda step, steps, loss: None, None)
    before = [weight.clone() for weight in parts.model.parameters() if weight.requires_grad]
    listener = _Listener()
    train_steps(config, parts, RunFolder.open(folder / "run"), [], listener)  # type: ignore[arg-type]
    after = [weight for weight in parts.model.parameters() if weight.requires_grad]
    assert any(not one.equal(other) for one, other in zip(before, after, strict=True))
    error = listener.found["policy/logprob_error"]
    assert isinstance(error, float)
    return error


class _Listener:
    def __init__(self) -> None:
        self.found: dict[str, object] = {}

    def first_rollout(self, trajectory: object) -> None: ...
    def note(self, sentence: str) -> None: ...
    def close(self) -> None: ...

    def write(self, step: int, metrics: list[Metric]) -> None:
        self.found |= {metric.name: metric.value for metric in metrics}
