"""Runs on pictures: grown, trained, resumed to the byte, evaluated, with a frozen and a trained tower."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from test_loop import UNMEASURED, same, trained, without_time  # noqa: E402

from heedful import cli  # noqa: E402
from heedful.algorithms import Ppo  # noqa: E402
from heedful.boundary import to_json  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.envs.sokoban.environment import Sokoban  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.measuring.diagnostics_config import DiagnosticsConfig  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.folders import write_pretrained  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.models.sight import VisionConfig  # noqa: E402
from heedful.models.vision import vision_of  # noqa: E402
from heedful.policies import Sampling  # noqa: E402
from heedful.rollout.context import FULL_HISTORY  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.forecast import probe  # noqa: E402
from heedful.run.forecast.estimate import tokens_of_step  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.run.presets import preset  # noqa: E402
from heedful.seedlings.demonstrations import batches  # noqa: E402
from heedful.seedlings.grow import load_seedling  # noqa: E402
from heedful.seedlings.recipe import Seedling  # noqa: E402
from heedful.storage.rollouts import read_rollouts  # noqa: E402
from heedful.training.batch import cut_micro_batches  # noqa: E402
from heedful.training.critic import Critic  # noqa: E402
from heedful.training.critic_config import CriticConfig  # noqa: E402
from heedful.training.lora_config import LoraConfig  # noqa: E402
from heedful.training.optimizer_config import OptimizerConfig  # noqa: E402
from heedful.training.samples import Row  # noqa: E402
from heedful.types import TrainingSample  # noqa: E402
from seeing_models import picture, seeing  # noqa: E402

RECIPE = Seedling(
    hidden=32,
    layers=1,
    heads=2,
    kv_heads=1,
    ffn=48,
    init=0.3,
    lr=1e-3,
    steps=2,
    episodes=2,
    vision_width=16,
    vision_layers=1,
)
LAKE = FrozenLake(instructions="brief", observation="image", cell=8, thoughts="board", turns=3)


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    """Two steps on pictures of lakes."""
    found = TrainConfig(
        env=LAKE,
        seedling=RECIPE,
        filter=KeepAll(),
        steps=2,
        groups=3,
        group_size=3,
        sampling=Sampling(tokens_per_turn=10),
        evaluation=EvaluationConfig(tasks=4, samples=1, times=2, search_tasks=0),
        checkpoint_every=1,
        keep_checkpoints="all",
        diagnostics=UNMEASURED,
    )
    load_seedling(RECIPE, LAKE, to_json(LAKE), found.tags, lambda *given: None)
    return found


@pytest.mark.parametrize("kind", ["model", "head"])
def test_ppo_resumed_goes_on_with_the_same_bytes(config: TrainConfig, tmp_path: Path, kind: Any) -> None:
    """The critic sees: a copy of the decoder reads the pictures with the policy's tower."""
    valued = replace(config, algorithm=Ppo(), critic=CriticConfig(kind=kind, warmup_steps=1))
    whole = trained(valued, tmp_path / "whole")
    rest = trained(valued, tmp_path / "rest", checkpoint.checkpoints(whole.folder.path / "checkpoints")[0])
    assert same(whole.weights, rest.weights)
    assert without_time(rest.folder.path) == without_time(whole.folder.path)[1:]
    assert whole.watch.values["critic/gradient_norm"][0] > 0


def test_a_critic_sees_with_the_tower_of_the_policy_and_never_trains_it() -> None:
    model, _ = seeing("qwen2_5_vl")
    vision = vision_of(model)
    assert vision is not None
    vision.freeze(False)
    critic = Critic(model, CriticConfig(), OptimizerConfig())
    torch.nn.init.ones_(critic._head.weight)
    rows = []
    for number in (0, 1):
        ids = (5, *vision.show(picture(number)).ids, 6, 7, 8)
        rows.append(Row(ids, (-1,) * (len(ids) - 2) + (0, 0), (0.0,) * len(ids), 0, 0, 1.0))
        states = model.get_decoder()(input_ids=torch.tensor([ids])).last_hidden_state[0]
        expected = states.sum(-1)[-3:-1]
        assert torch.allclose(torch.tensor(critic.values(rows[-1:])[0][-2:]), expected, atol=1e-4)
    first, second = critic.values(rows)
    assert first[-2:] != second[-2:], "the pictures differ, and nothing else"

    samples = [
        TrainingSample(row.ids, row.trained, row.logprobs, row.logprobs, 0, 0, 1.0, values, (1.0,) * len(row.ids))
        for row, values in zip(rows, (first, second), strict=True)
    ]
    cut = cut_micro_batches(samples, [1.0, 1.0], 100, torch.device("cpu"))
    critic._backward(cut, 1.0, 0.0)
    assert all(weight.grad is None for weight in model.parameters())
    assert any(weight.grad is not None and weight.grad.any() for weight in critic._own.parameters())
    shared = {id(weight) for weight in vision.tower}
    assert not shared & {id(weight) for weight in critic._own.parameters()}


def rows_of_tower(model: Any) -> list[torch.Tensor]:
    found = vision_of(model)
    assert found is not None
    return [weight.detach().clone() for weight in found.tower]


def test_a_run_resumed_goes_on_with_the_same_bytes_and_its_files_hold_the_pictures(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = replace(config, diagnostics=DiagnosticsConfig(share=None, full_every=1))
    whole = trained(measured, tmp_path / "whole")
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    rest = trained(measured, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert without_time(rest.folder.path) == without_time(whole.folder.path)[1:]
    assert rest.folder.rollouts(1).read_bytes() == whole.folder.rollouts(1).read_bytes()
    errors = [error for error in whole.watch.values["policy/logprob_error"] if error is not None]
    assert errors
    assert max(errors) < 1e-4, "sampled and trained from the same pictures"

    groups = read_rollouts(whole.folder.rollouts(0)).groups
    prompts = [turn.reply.prompt for group in groups for one in group.trajectories for turn in one.turns]
    assert all(len(prompt.images) == 1 for prompt in prompts)
    assert all(sum(id < 0 for id in prompt.ids) == 16 for prompt in prompts), "a token for each cell"
    (whole.folder.path / "config.json").write_text(json.dumps(to_json(measured)))
    assert cli.run(f"eval {whole.folder.path} --tasks 2 --samples 1 --search-tasks 0".split()) == 0
    assert "sampled" in capsys.readouterr().out


def test_what_a_step_costs_counts_the_pictures(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = assemble(config, lambda *given: None, None)
    read: list[Any] = []
    monkeypatch.setattr(vision_of(parts.model), "read", read.append)
    monkeypatch.setattr(probe, "TINY", 0)
    monkeypatch.setattr(probe, "STEP_TOKENS", 0)
    first = probe.first_prompt(config, parts, LAKE)
    assert first is not None
    tokens = tokens_of_step(config, len(first.ids), 1, 16)
    assert tokens.pictures == 3 + 9 * 2, "3 groups of 3 episodes of 3 turns"
    said = probe.estimate(config, parts, LAKE)
    assert f"{tokens.total:,} tokens" in said
    assert "on this machine" in said
    assert len(read) == 2
    assert read[0] == first.images[0]


def test_the_tower_is_trained_where_asked_and_frozen_else(config: TrainConfig, tmp_path: Path) -> None:
    short = replace(config, steps=1, evaluation=replace(config.evaluation, times=0))
    grown, _, _ = load_seedling(RECIPE, LAKE, to_json(LAKE), config.tags, lambda *given: None)
    before = rows_of_tower(grown)
    for tower in ("frozen", "trained"):
        parts = assemble(replace(short, vision=VisionConfig(tower=tower)), lambda *given: None, None)
        wanted = {id(weight) for weight in vision_of(parts.model).tower}  # type: ignore[union-attr]
        asked = [weight.requires_grad for weight in parts.model.parameters() if id(weight) in wanted]
        assert set(asked) == {tower == "trained"}
        assert all(torch.equal(*pair) for pair in zip(before, rows_of_tower(parts.model), strict=True))
    run = trained(replace(short, vision=VisionConfig()), tmp_path / "frozen")
    saved, _ = load_model(str(run.folder.checkpoint(1)), torch.device("cpu"))
    assert all(torch.equal(*pair) for pair in zip(before, rows_of_tower(saved), strict=True))


def test_demonstrations_are_the_rows_of_sampled_episodes_and_write_down_the_board() -> None:
    lake = replace(LAKE, imperfect=0.0)
    model, tokenizer = seeing("idefics3")
    vision = vision_of(model)
    assert vision is not None
    renderer = Renderer(tokenizer, Tags(), sight=vision)
    rows = next(batches(lake, 3, 0, renderer, FULL_HISTORY))
    for row in rows:
        shown = [vision.pictures.of(id).image for id in dict.fromkeys(id for id in row.ids if id < 0)]
        assert shown
        text = tokenizer.decode([id for id in row.ids if id >= 0])
        for image in shown:
            assert f"<think>{image.alt}\nP " in text, "the thought begins with the board that the picture shows"
        assert not any(trained for id, trained in zip(row.ids, row.trained, strict=True) if id < 0)


def test_sokoban_writes_down_its_room() -> None:
    room = Sokoban(instructions="brief", observation="image", cell=8, thoughts="board")
    task = room.task(1)
    first = room.episode().start(task, 0)
    assert f"<think>{first.images[0].alt}\n" in room.demonstrate(task, __import__("random").Random(0))[0][1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seedling": replace(RECIPE, vision_width=0)}, "Expected a seedling that sees, since the observations of"),
        ({"env": replace(LAKE, cell=5)}, r"in cells of 8 pixels .* found sides of 20\. Set --env.cell 8"),
        ({"diagnostics": DiagnosticsConfig(judge="some/model")}, "A judge reads text alone"),
        ({"vision": VisionConfig(most_pixels=99)}, "A seedling reads its pictures as they are"),
        ({"vision": VisionConfig(tower="trained"), "lora": LoraConfig(rank=2)}, "Choose one of them"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(
    config: TrainConfig, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        assemble(replace(config, **changes), lambda *given: None, None)


def test_a_vision_tower_for_text_alone_is_refused(echo_run: TrainConfig) -> None:
    seeing = replace(echo_run, seedling=replace(RECIPE, vision_width=48))
    with pytest.raises(
        ValueError, match=r"with pictures for a seedling that sees \(vision_width=48\), found text alone"
    ):
        assemble(seeing, lambda *given: None, None)


def test_settings_of_vision_for_a_model_without_it_are_refused(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"LlamaForCausalLM reads text alone\. Leave its settings out"):
        assemble(replace(echo_run, vision=VisionConfig(tower="trained")), lambda *given: None, None)


def test_faults_of_settings_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"most_pixels must be at least vision\.least_pixels"):
        VisionConfig(least_pixels=100, most_pixels=50)
    with pytest.raises(ValueError, match="Only environments on a board"):
        preset("bandit").env.__class__(thoughts="board")
    with pytest.raises(ValueError, match="vision_width must be 0 or a multiple of 2"):
        Seedling(vision_width=7)


def test_a_recipe_of_text_keeps_its_name() -> None:
    assert Seedling().key({}, "") == replace(Seedling(), patch=8).key({}, "")
    assert Seedling().key({}, "") != replace(Seedling(), vision_width=2).key({}, "")


def test_a_folder_with_vision_is_loaded_and_saved_with_its_processor(tmp_path: Path) -> None:
    model, tokenizer = seeing("qwen2_5_vl")
    write_pretrained(tmp_path, model, tokenizer)
    loaded, _ = load_model(str(tmp_path), torch.device("cpu"))
    row = torch.tensor([(5, 6, *vision_of(model).show(picture(0)).ids, 7, 8)])  # type: ignore[union-attr]
    vision = vision_of(loaded)
    assert vision is not None
    vision.show(picture(0))
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=row).logits, model(input_ids=row).logits)
    assert not any(weight.requires_grad for weight in vision.tower)

    small = VisionConfig(tower="trained", least_pixels=3136, most_pixels=3136)
    bounded, _ = load_model(str(tmp_path), torch.device("cpu"), vision=small)
    resized = vision_of(bounded)
    assert resized is not None
    assert all(weight.requires_grad for weight in resized.tower)
    assert resized.show(picture(1, 112, 112)).features == 4 < vision.show(picture(1, 112, 112)).features

    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match="Expected a model that sees in"):
        load_model(str(tmp_path), torch.device("cpu"))
