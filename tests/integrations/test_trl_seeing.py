"""Pictures inside TRL: measured exactly on TRL's own model, without any effect on what TRL trains."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")
pytest.importorskip("PIL", reason="pictures are read with Pillow: install heedful[vision]")

import torch
from seeing_trl import Answers, pil, rows, seeing_trainer
from tiny_trl import MEASURED, Gradients, differing, filtering, recorded, reward_named, weights_of, written

from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig, Probe
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.vision.vision import vision_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

FAMILIES = ("idefics3", "idefics3_tiles", "qwen2_vl")
KEEP_ALL = HeedfulConfig(
    filter=KeepAll(on="reward"), diagnostics=DiagnosticsConfig(every=1, full_every=1, share=None), record=False
)


def readings(family: str, folder: Path, dataset: Any, **changes: Any) -> Any:
    """The metrics of one generation batch of four prompts and two members each."""
    chosen = {"heedful": MEASURED, "reward_funcs": differing, "per_device_train_batch_size": 8, **changes}
    seeing_trainer(family, folder, dataset, **chosen).train()
    return recorded(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_that_reads_its_pictures_is_told_from_prompts_that_differ_in_pictures_alone(
    family: str, tmp_path: Path
) -> None:
    rolled, step = readings(family, tmp_path, rows([[0], [1], [2], [3]], widths=(112,)))
    found = step.metrics
    assert found["information/first_turn/mi_ceiling"].value == pytest.approx(math.log(4))
    assert found["information/first_turn/mi"].value > 0.5
    assert found["retrieval/first_turn/accuracy"].value > 0.5  # chance: .25
    assert found["information/image/mi"].value == found["information/first_turn/mi"].value  # they have one text
    assert found["grounding/image_share"].value == 1.0
    assert len({group.task.id for group in rolled.groups}) == 4
    shown = [member.turns[0].reply.prompt.images for group in rolled.groups for member in group.trajectories]
    assert [len(images) for images in shown] == [1] * 8
    assert len({image.digest for images in shown for image in images}) == 4


@pytest.mark.parametrize("family", ["idefics3", "qwen2_vl"])
def test_a_model_that_ignores_its_pictures_reads_zero_of_them_and_still_reads_the_text(
    family: str, tmp_path: Path
) -> None:
    texts = ("the goal", "plan Left", "plan Right", "Up Down")
    _, step = readings(family, tmp_path, rows([[0], [1], [2], [3]], "image", texts=texts), sees=False)
    for metric in ("mi", "gap"):
        assert step.metrics[f"information/image/{metric}"].value == pytest.approx(0.0, abs=1e-4)
        assert step.metrics[f"information/text/{metric}"].value > 0.1


def test_training_with_all_measurements_is_trls_own_to_the_last_bit(tmp_path: Path) -> None:
    weights = []
    trainer: Any = None
    for name, heedful in (("plain", None), ("ours", KEEP_ALL)):
        trainer = seeing_trainer(
            "qwen2_vl",
            tmp_path / name,
            rows([[0], [1, 2], [3], [4, 0]], widths=(56, 112)),
            heedful=heedful,
            reward_funcs=differing,
            max_steps=2,
            learning_rate=0.05,
            gradient_checkpointing=True,
        )
        before = weights_of(trainer)
        trainer.train()
        weights.append(weights_of(trainer))
        assert not torch.equal(before, weights[-1])
    assert torch.equal(*weights)
    decoder = trainer.model.get_decoder()
    assert not decoder._forward_pre_hooks
    vision = vision_of(trainer.model)
    assert vision is not None
    assert not vision._known  # no picture's features are left in memory


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tokens_log_probability_is_the_one_that_trl_trains_on(family: str, tmp_path: Path) -> None:
    batches, groups = [], []
    # With a second pass over a batch TRL computes the log-probabilities of the weights that sampled.
    trainer = seeing_trainer(
        family,
        tmp_path,
        rows([[0], [1, 2], [3, 3], [4]], widths=(56, 112) if "_" in family else (56,)),
        heedful=KEEP_ALL,
        reward_funcs=differing,
        per_device_train_batch_size=8,
        num_iterations=2,
        temperature=0.7,
    )
    filtered, observed = trainer._filtered, trainer._batches.observe
    trainer._filtered = lambda draws, verdicts: batches.append(draws[0].batch) or filtered(draws, verdicts)
    trainer._batches.observe = lambda *batch: groups.append(seen := observed(*batch)) or seen
    trainer.train()
    vision, scorer = vision_of(trainer.model), trainer.observer.diagnostician.scorer
    assert vision is not None
    members = [member for group in groups[0].groups for member in group.trajectories]
    with vision.attached():
        for member, logprobs in zip(members, batches[0]["old_per_token_logps"], strict=True):
            reply = member.turns[0].reply
            assert min(reply.prompt.ids) < 0 <= min(reply.ids)
            scored = scorer.cross_score([reply.prompt.ids], [reply.ids], [0], 0.7, keep="tokens")
            assert scored.tokens[0][0].tolist() == pytest.approx(logprobs[: len(reply.ids)].tolist(), abs=1e-4)


@pytest.mark.parametrize("family", ["idefics3", "qwen2_vl"])
def test_the_gradient_is_that_of_a_batch_that_never_held_the_dropped_groups_or_their_pictures(
    family: str, tmp_path: Path
) -> None:
    texts = ("Left", "Right", "Up", "Down")
    pictures = [[0], [1, 2], [3, 4], [5]]
    tasks = written([[1, 1], [0, 1], [0, 0], [1, 0]])
    told = {
        text: [(ids, float(given["score"] or 0)) for ids, given in zip(task.answers, task.rewards, strict=True)]
        for text, task in zip(texts, tasks, strict=True)
    }
    found = []
    for heedful, kept in ((None, (1, 3)), (filtering(DropConstant(on="reward")), (0, 1, 2, 3))):
        noted = Gradients()
        trainer = seeing_trainer(
            family,
            tmp_path,
            rows(pictures, widths=(56, 112), texts=texts).select(kept),
            heedful=heedful,
            reward_funcs=reward_named("score"),
            rollout_func=Answers(told),
            callbacks=[noted],
            per_device_train_batch_size=2 * len(kept),
            num_iterations=2,
            beta=0.0,
        )
        trainer.train()
        found.append(noted.steps[0])
    expected, ours = found
    assert expected.norm() > 1e-3
    assert (ours - expected).norm() <= 1e-4 * expected.norm()  # float32


def test_the_probe_reads_what_the_trainer_reads(tmp_path: Path) -> None:
    dataset = rows([[0], [1], [2], [3]], widths=(56, 112))
    _, ours = readings("qwen2_vl", tmp_path / "ours", dataset)
    probe = Probe(MEASURED)
    trainer = seeing_trainer(
        "qwen2_vl", tmp_path / "probe", dataset, reward_funcs=[differing, probe], per_device_train_batch_size=8
    )
    probe.attach(trainer)
    trainer.train()
    _, probed = recorded(tmp_path / "probe")
    for name in ("information/first_turn/mi", "information/image/gap", "retrieval/image/accuracy"):
        assert probed.metrics[name].value == pytest.approx(ours.metrics[name].value, abs=1e-6)


def test_a_picture_that_is_not_read_as_trl_reads_it_is_a_reason_and_no_end_of_the_run(tmp_path: Path) -> None:
    clear = pil(0).copy()
    clear.putalpha(128)
    _, step = readings("qwen2_vl", tmp_path, rows([[0], [1], [2], [3]], instead={2: clear}))
    assert step.metrics["information/first_turn/mi"].value is None
    assert "transparency" in step.metrics["information/first_turn/mi"].why
    assert step.metrics["reward/mean"].value is not None


def test_a_model_whose_pictures_are_not_read_exactly_is_measured_in_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("Expected a model whose pictures heedful reads exactly")

    monkeypatch.setattr("heedful.integrations.trl.pictures.refuse_unless_exact", refuse)
    _, step = readings("idefics3", tmp_path, rows([[0], [1], [2], [3]]))
    assert "whose pictures heedful reads exactly" in step.metrics["information/first_turn/mi"].why
    assert step.metrics["reward/mean"].value is not None
