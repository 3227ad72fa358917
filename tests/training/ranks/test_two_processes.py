"""Two processes and one make the same updates: the same loss, gradient, metrics and weights, whole or in pieces."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

import training_worker as worker  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.algorithms.table import ALGORITHMS, Grpo, Ppo  # noqa: E402
from heedful.boundary import from_json, to_json  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import HFPolicy, Local, Weights, open_with  # noqa: E402
from heedful.run import loop  # noqa: E402
from heedful.run.checkpoint import Checkpoint, checkpoints  # noqa: E402
from heedful.run.config import GradientsConfig, TrainConfig  # noqa: E402
from heedful.run.edits import settings_of_rank  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.run.train import train  # noqa: E402
from heedful.seeds import derive  # noqa: E402
from heedful.storage import RunFolder, StepMetrics, read_gradients, read_metrics, read_rollouts, write_whole  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.ranks.parallel import DataParallel, Fsdp2, ProcessRank  # noqa: E402
from heedful.training.ranks.sharding import Sharded  # noqa: E402
from heedful.training.ranks.world import World  # noqa: E402
from heedful.training.settings import CriticConfig  # noqa: E402
from processes import found_in_two  # noqa: E402

Found = dict[str, Any]


@pytest.fixture(scope="module")
def runs(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs lie; that of one process is there from the start."""
    folder = tmp_path_factory.mktemp("runs")
    config = replace(echo_run, steps=4, evaluation=replace(echo_run.evaluation, times=2))
    write_whole(folder / "config.json", json.dumps(to_json(config)))
    assert cli.run(["train", "echo", "--config", str(folder / "config.json"), "--out", str(folder / "one")]) == 0
    worker.killed(folder / "one", folder / "from-one")
    return folder


@pytest.fixture(scope="module")
def two(runs: Path) -> list[Found]:
    """What each of two processes finds; their runs lie beside the other one."""
    return found_in_two(worker.__file__, runs, [str(runs / "config.json")])


@pytest.fixture
def world() -> Iterator[World]:
    return World()


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def assert_same_update(found: Found, expected: Found) -> None:
    for (name, value, n), (told, right, its) in zip(found["metrics"], expected["metrics"], strict=True):
        assert (name, n) == (told, its)
        assert value == (pytest.approx(right, rel=1e-5, abs=1e-7) if isinstance(right, float) else right), name
    assert relative(found["weights"], expected["weights"]) < 1e-5
    assert found["entropy coefficient"] == pytest.approx(expected["entropy coefficient"], rel=1e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_loss_and_gradient_are_those_of_one_process(name: str, two: list[Found], world: World) -> None:
    expected = worker.gradient(world, name)
    for found in (each["gradients"][name] for each in two):
        assert relative(found["gradient"], expected["gradient"]) < 1e-5
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert found["tokens"] == expected["tokens"] > 0
    assert torch.equal(two[0]["gradients"][name]["gradient"], two[1]["gradients"][name]["gradient"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_are_those_of_one_process(name: str, two: list[Found], world: World) -> None:
    expected = worker.updates(world, name)
    for found in (each["updates"][name] for each in two):
        assert_same_update(found, expected)
        for mine, right in zip(found.get("values", ()), expected.get("values", ()), strict=True):
            assert mine == pytest.approx(right, rel=1e-5)
    assert torch.equal(two[0]["updates"][name]["weights"], two[1]["updates"][name]["weights"])
    assert ("values" in expected) == (name == "ppo")


@pytest.mark.parametrize("name", worker.IN_PIECES)
def test_a_model_in_pieces_learns_as_a_whole_one(name: str, two: list[Found], world: World) -> None:
    expected, updated = worker.gradient(world, name), worker.updates(world, name)
    for each in two:
        found = each["gradients in pieces"][name]
        assert relative(found["gradient"], expected["gradient"]) < 1e-5
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert found["tokens"] == expected["tokens"]
        assert_same_update(each["updates in pieces"][name], updated)


@pytest.mark.parametrize("name", worker.IN_PIECES)
def test_pieces_are_saved_as_a_whole_model_that_one_process_goes_on_with(
    name: str, two: list[Found], runs: Path, world: World
) -> None:
    found = two[0]["updates in pieces"][name]
    model = worker.LlamaForCausalLM.from_pretrained(runs / f"model-{name}", dtype=torch.float64)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert torch.equal(weights, found["weights"])
    learner = worker.learner_of(world, worker.row_of(name), model, pieces=False, dtype=torch.float64)
    learner.load_state_dict(found["state"])
    state, right = (
        kept["descent"]["optimizer"]["state"] for kept in (found["state"], worker.updates(world, name)["state"])
    )
    assert len(state) == len(right) == len(list(model.parameters()))
    for number, own in right.items():
        for moment, tensor in own.items():
            assert torch.allclose(state[number][moment], tensor, rtol=1e-5, atol=1e-12)


def test_a_critic_of_its_own_learns_beside_a_policy_in_pieces(two: list[Found], world: World) -> None:
    expected = worker.updates(world, "ppo", pieces=True)  # one process holds all of the policy
    for found in (each["critic beside pieces"] for each in two):
        assert_same_update(found, expected)
        for mine, right in zip(found["values"], expected["values"], strict=True):
            assert mine == pytest.approx(right, rel=1e-5)


def test_pieces_computed_with_in_bfloat16_are_stepped_in_float32(two: list[Found], world: World) -> None:
    expected = worker.updates(world, "grpo", dtype=torch.bfloat16)
    found = two[0]["half in pieces"]
    copies, right = (kept["state"]["descent"]["masters"] for kept in (found, expected))
    begun = torch.cat([p.detach().float().flatten() for p in worker.tiny(torch.bfloat16).parameters()])
    mine, its = (torch.cat([copy.flatten() for copy in masters]) for masters in (copies, right))
    assert mine.dtype == its.dtype == torch.float32
    # The same gradient but for bfloat16's rounding of other micro-batches; Adam's first steps are its signs.
    agreeing = (mine - begun).sign() == (its - begun).sign()
    assert float(agreeing.float().mean()) > 0.95


@pytest.mark.parametrize("name", worker.DTYPES)
def test_additions_to_a_model_in_pieces_learn_as_those_to_a_whole_one(
    name: str, two: list[Found], runs: Path, world: World, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    expected = worker.additions(world, worker.DTYPES[name], tmp_path / "one")
    mine, other = (each[f"additions in {name}"] for each in two)
    assert torch.equal(mine["weights"], other["weights"])
    assert mine["held"] + other["held"] == expected["held"]
    assert mine["weights"].dtype == torch.float32
    assert relative(mine["weights"], expected["weights"]) < 1e-3
    if name == "float32":
        assert_same_update(mine, expected)
    weights = [load_file(each / "model.safetensors") for each in (tmp_path / "one", runs / f"additions-{name}")]
    assert weights[0].keys() == weights[1].keys()
    for saved in weights[0]:
        assert weights[1][saved].dtype == worker.DTYPES[name]
        assert relative(weights[1][saved].float(), weights[0][saved].float()) < 1e-2
    moments = [each["state"]["descent"]["optimizer"]["state"] for each in (mine, expected)]
    assert len(moments[0]) == len(moments[1]) == 2 * 7 * 2


def test_whole_for_a_while_each_process_uses_the_model_as_often_as_it_likes(two: list[Found]) -> None:
    model = worker.tiny(torch.float64, tied=True)
    learner = Learner(model, Grpo(), worker.OPTIMIZER, UpdateSettings(temperature=0.7, micro_batch_tokens=40))
    ids = torch.arange(12)[None] % worker.VOCABULARY
    before = model(input_ids=ids).logits[0, -1].detach().clone()
    learner.update(worker.samples(), token_budget=worker.BUDGET)
    after = model(input_ids=ids).logits[0, -1].detach()
    for found in two:
        assert torch.equal(found["windows"]["logits"][0], before)
        assert torch.allclose(found["windows"]["logits"][1], after, rtol=1e-5)


def lines(run: Path) -> list[StepMetrics]:
    return list(read_metrics(RunFolder(run).metrics))


def plain(run: Path) -> list[dict[str, Any]]:
    return [
        {name: metric for name, metric in line.metrics.items() if not name.startswith("time/")} for line in lines(run)
    ]


@pytest.mark.parametrize("kind", ["data", "fsdp2"])
def test_a_run_of_two_processes_leaves_the_record_of_one(kind: str, runs: Path, two: list[Found]) -> None:
    run, one = runs / kind, runs / "one"
    assert json.loads((run / "environment.json").read_text())["processes"] == 2
    for mine, its in zip(lines(run), lines(one), strict=True):
        # Other episodes: other reasons to drop a group, other components of the reward.
        named, right = (
            {name for name in line.metrics if not re.match("filter/dropped/|reward/", name)} for line in (mine, its)
        )
        assert named == right
    for step in range(4):
        mine, its = (read_rollouts(RunFolder(folder).rollouts(step)).groups for folder in (run, one))
        assert [group.task.id for group in mine] == [group.task.id for group in its]
        assert [len(group.trajectories) for group in mine] == [4] * 4
        error = lines(run)[step].metrics["policy/logprob_error"].value
        assert isinstance(error, float)
        assert error < 1e-4  # what a process sampled is what another one learns from
    assert (run / "report.html").exists()
    assert [found.version for found in checkpoints(run / "checkpoints")] == [2, 4]


def test_each_process_draws_noise_of_its_own_and_the_first_that_of_one_process(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    parts = assemble(echo_run, lambda step, steps, loss: None, None)
    seeds = []
    for place in (ProcessRank(), ProcessRank(0, 2, 0), ProcessRank(1, 2, 1)):
        parts.learner.world = World(place)
        with open_with(Local(), Weights(parts.model)) as source:
            run = loop._Run(echo_run, parts, RunFolder(tmp_path), [], parts.env, source, print)
            policy = run.policy(echo_run.sampling, 17)
        assert isinstance(policy, HFPolicy)
        seeds.append(policy._generator.initial_seed())
    assert seeds == [17, 17, derive(17, "process", 1)]


def test_two_processes_resume_with_the_same_bytes(runs: Path, two: list[Found]) -> None:
    assert plain(runs / "again") == plain(runs / "data")
    weights, right = (
        (runs / name / "checkpoints" / "step_000004" / "model.safetensors").read_bytes() for name in ("again", "data")
    )
    assert weights == right


@pytest.mark.parametrize("kind", ["data", "fsdp2"])
def test_one_process_goes_on_with_a_run_of_two(kind: str, runs: Path, two: list[Found], tmp_path: Path) -> None:
    run = tmp_path / "run"
    worker.killed(runs / kind, run)
    assert cli.run(["train", "--resume", str(run)]) == 0
    assert_goes_on(run, runs / kind)


@pytest.mark.parametrize("kind", ["data", "fsdp2"])
def test_one_process_measures_gradients_of_a_finished_run_of_two_and_splits_its_updates(
    kind: str, runs: Path, two: list[Found], tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(runs / kind, tmp_path / "run"))
    words, sizes = ["gradients", str(run.path), "--checkpoint", "2"], ["prompts", "thoughts", "blocks"]
    assert cli.run([*words, "--groups", "2", "--group-size", "4", "--buckets", "2"]) == 0
    assert read_gradients(run.gradients(2)).metric("gradient/all/task_norm").number is not None
    small = [f"--attribution.{name}={size}" for name, size in zip(sizes, (6, 2, 3), strict=True)]
    assert cli.run([*words, "--attribute", *small]) == 0
    split = read_gradients(run.attribution(2))
    predicted, measured = (split.metric(f"attribution/thought_entropy/{name}").number for name in ("total", "measured"))
    assert predicted == pytest.approx(measured, rel=0.5)


def test_two_processes_go_on_with_a_run_of_one(runs: Path, two: list[Found]) -> None:
    assert_goes_on(runs / "from-one", runs / "one")


def assert_goes_on(run: Path, before: Path) -> None:
    assert plain(run)[:2] == plain(before)[:2]
    assert [line.step for line in lines(run)] == [0, 1, 2, 3, 4]
    for step in (2, 3):
        mine, its = (read_rollouts(RunFolder(folder).rollouts(step)).groups for folder in (run, before))
        assert [group.task.id for group in mine] == [group.task.id for group in its]
    error = lines(run)[2].metrics["policy/logprob_error"].value
    assert isinstance(error, float)
    assert error < 1e-4
    assert lines(run)[2].metrics["policy/learning_rate"] == lines(before)[2].metrics["policy/learning_rate"]
    states = [Checkpoint(folder / "checkpoints" / "step_000004", 4).learner_state() for folder in (run, before)]
    assert states[0]["descent"]["steps"] == states[1]["descent"]["steps"] == 4
    model, _ = load_model(str(run / "checkpoints" / "step_000004"), torch.device("cpu"))
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_what_pieces_cannot_do_is_refused_before_anything_is_loaded(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"a critic on the policy's layers \(--critic.kind head\) cannot"):
        replace(echo_run, parallel=Fsdp2(), algorithm=Ppo(), critic=CriticConfig(kind="head"))
    assert replace(echo_run, parallel=Fsdp2(), algorithm=Ppo()).critic.kind == "model"
    with pytest.raises(ValueError, match=r"measurement of gradients \(--gradients.every\) cannot work on shards yet"):
        replace(echo_run, parallel=Fsdp2(), gradients=GradientsConfig(every=1))


def test_a_model_whose_parameters_differ_in_dtype_is_not_cut_in_pieces(world: World) -> None:
    model = worker.tiny(torch.float32)
    model.lm_head.to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"parameters of one dtype, found torch\.(bfloat16|float32), torch\."):
        Sharded(model, world)


def test_the_choice_of_pieces_is_kept_with_the_run(echo_run: TrainConfig) -> None:
    config = replace(echo_run, parallel=Fsdp2(timeout=60))
    assert to_json(config)["parallel"] == {"type": "fsdp2", "timeout": 60}
    assert from_json(TrainConfig, to_json(config)) == config
    assert to_json(echo_run)["parallel"] == {"type": "data", "timeout": DataParallel().timeout}


@pytest.mark.parametrize("command", [["eval", "echo"], ["envs"], ["report", "run"]])
def test_only_training_is_shared_among_processes(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert cli.run(command) == 2
    assert "only `heedful train` runs as several processes" in capsys.readouterr().err


def test_ranks_of_other_settings_or_versions_are_refused_before_anything_is_written(
    echo_run: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = {"version": "0.0.9", "optimizer.lr": 1, "resume": True}
    monkeypatch.setattr(World, "gather", lambda self, item: [item, item | others])
    with pytest.raises(ValueError, match=r"process 1: version 0\.0\.9, not .*; optimizer\.lr 1, not 0\.001\."):
        train(echo_run, out=tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()
    assert settings_of_rank(echo_run, False) == settings_of_rank(
        replace(echo_run, threads=echo_run.threads + 1, device="cpu"), False
    )


def test_several_seeds_are_not_started_in_every_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["train", "echo", "--seeds", "0,1"]) == 2
    assert "process 0: --seeds 0,1 starts processes of its own" in capsys.readouterr().err
