"""heedful's environments with pictures inside TRL: its learner reads what was sampled, or they are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl", reason="install heedful[trl]")
pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")

import torch
from seeing_trl import seeing_trainer
from tiny_trl import recorded

from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig, environment_reward, to_trl_rollout_func
from heedful.integrations.trl.pictures import pixels_of
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.vision.vision import vision_of
from heedful.policies.scripted import ScriptedPolicy
from heedful.types import Ending, Observation, Step, Task
from seeing_models import picture, seeing

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

HEEDFUL = HeedfulConfig(filter=KeepAll(on="outcome"), diagnostics=DiagnosticsConfig(every=1, full_every=1, share=None))
UNWATCHED = HeedfulConfig(filter=KeepAll(on="reward"), diagnostics=DiagnosticsConfig(enabled=False), record=False)

Shows = tuple[tuple[int, ...], tuple[int, ...]]
"""The pictures of both turns of a task, by their seeds. Pictures of odd seeds are twice as wide."""

EVERY: tuple[Shows, ...] = (((0,), (1,)), ((2, 3), (4,)), ((5,), (6, 7)), ((7,), (0,)))
SOME: tuple[Shows, ...] = (((0,), (1,)), ((), ()), ((5,), ()), ((), (3,)))


@dataclass(frozen=True)
class Gallery:
    """Two turns, each with pictures. A reply earns a number that depends on its length."""

    shows: tuple[Shows, ...]
    widths: tuple[int, int] = (56, 112)
    name: ClassVar[str] = "gallery"
    turns: ClassVar[int] = 2

    def task(self, seed: int) -> Task:
        number = seed % len(self.shows)
        return Task(f"task {number}", number, "train")

    def episode(self) -> Any:
        return Visit(self)


class Visit:
    """One episode."""

    def __init__(self, env: Gallery) -> None:
        self._env = env
        self._turn = 0

    def start(self, task: Task, member: int) -> Observation:
        self._task = task
        return self._observed()

    def step(self, response: str) -> Step:
        self._turn += 1
        ended = self._turn == 2
        return Step(
            Observation("") if ended else self._observed(),
            {"length": float(len(response) % 5)},
            Ending.FAILED if ended else None,
            0.0 if ended else None,
        )

    def _observed(self) -> Observation:
        seeds = self._env.shows[self._task.seed][self._turn]
        images = tuple(picture(seed, self._env.widths[seed % 2]) for seed in seeds)
        return Observation(f"{self._task.id}, Left or Right", images=images)


def playing(family: str, folder: Path, shows: Any = EVERY, *, sampler: Any = None, **changes: Any) -> Any:
    """A trainer that plays four tasks twice and reads them in micro-batches of two rows."""
    rollouts = to_trl_rollout_func(Gallery(shows), tokens_per_turn=6, sampler=sampler)
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_completion_length": 256}
    common = {"reward_funcs": environment_reward, "rollout_func": rollouts}
    return seeing_trainer(family, folder, rollouts.dataset(4), **{**common, "heedful": HEEDFUL, **sizes, **changes})


def ids_of(member: Any, placeholder: int) -> tuple[int, ...]:
    """The ids of an episode as TRL has them."""
    ids = [id for turn in member.turns for id in (*turn.reply.prompt.ids, *turn.reply.ids)]
    return tuple(placeholder if id < 0 else id for id in ids)


def own_logprobs(trainer: Any, seen: Any) -> dict[tuple[int, ...], list[float]]:
    """Ids of an episode -> what heedful's scorer gives its sampled tokens."""
    scorer, vision = trainer.observer.diagnostician.scorer, vision_of(trainer.model)
    assert vision is not None
    found = {}
    with vision.attached():
        for member in (member for group in seen.groups for member in group.trajectories):
            asked = [([member.context_ids(number)], [turn.reply.ids]) for number, turn in enumerate(member.turns)]
            scores = [scorer.cross_score(*each, [0], 0.7, keep="tokens").tokens[0][0] for each in asked]
            found[ids_of(member, vision.placeholder)] = torch.cat([torch.as_tensor(one) for one in scores]).tolist()
    return found


@pytest.mark.parametrize(
    ("family", "shows"),
    [
        *((family, EVERY) for family in ("idefics3_tiles", "qwen2_vl", "llava")),
        ("idefics3", SOME),
        *(pytest.param(family, SOME, marks=pytest.mark.proof) for family in ("qwen2_vl", "llava")),
    ],
)
def test_the_learner_reads_every_picture_of_an_episode_as_the_scorer_does(
    family: str, shows: Any, tmp_path: Path
) -> None:
    own: dict[tuple[int, ...], list[float]] = {}
    learned: list[Any] = []
    # With a second pass over a batch TRL computes the log-probabilities of the weights that sampled, too.
    trainer = playing(family, tmp_path, shows, num_iterations=2, temperature=0.7, max_steps=2)
    batches, found, loss = trainer._batches, trainer._get_per_token_logps_and_entropies, trainer.compute_loss
    observed = batches.observe

    def observe(*batch: Any) -> Any:
        own.update(own_logprobs(trainer, seen := observed(*batch)))
        return seen

    def learn(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        read: list[Any] = []
        trainer._get_per_token_logps_and_entropies = lambda *a, **k: read.append(made := found(*a, **k)) or made
        value = loss(model, inputs, *args, **kwargs)
        trainer._get_per_token_logps_and_entropies = found
        learned.append((inputs, read[-1][0].detach()))
        return value

    batches.observe, trainer.compute_loss = observe, learn
    trainer.train()
    assert len(learned) == 8
    rows = 0
    for inputs, logprobs in learned:
        for row, now in enumerate(logprobs):
            masks = inputs["prompt_mask"][row].bool(), inputs["completion_mask"][row].bool()
            ids = (*inputs["prompt_ids"][row][masks[0]].tolist(), *inputs["completion_ids"][row][masks[1]].tolist())
            sampled = masks[1] & inputs["tool_mask"][row].bool()
            assert now[sampled].tolist() == pytest.approx(own[ids], abs=1e-4)
            assert inputs["old_per_token_logps"][row][sampled].tolist() == pytest.approx(own[ids], abs=1e-4)
            rows += 1
    assert rows == 16
    metrics = recorded(tmp_path)[1].metrics
    assert metrics["information/first_turn/mi"].value is not None
    if family in ("idefics3", "llava"):  # all pictures take equally many ids, so all prompts can exchange theirs
        assert metrics["information/image_all/mi"].value is not None


@pytest.mark.parametrize("family", ["idefics3_tiles", "qwen2_vl", "llava"])
def test_the_engine_sees_what_the_learner_sees(family: str, tmp_path: Path) -> None:
    trainer = playing(family, tmp_path, SOME, heedful=UNWATCHED, top_k=1)
    played: list[Any] = []
    observed = trainer._batches.observe
    trainer._batches.observe = lambda completions, *more: played.extend(completions) or observed(completions, *more)
    trainer.train()
    vision = vision_of(trainer.model)
    assert vision is not None
    trainer.model.eval()
    with vision.attached(), torch.no_grad():
        for member in (completion.played for completion in played):
            for number, turn in enumerate(member.turns):
                context, said = member.context_ids(number), turn.reply.ids
                logits = trainer.model(torch.tensor([[*context, *said]])).logits[0, len(context) - 1 : -1]
                logits[:, vision.placeholder] = -torch.inf
                assert logits.argmax(dim=1).tolist() == [*said]  # the engine takes the likeliest token


def test_training_on_pictures_changes_the_weights_that_see(tmp_path: Path) -> None:
    trainer = playing("qwen2_vl", tmp_path, heedful=UNWATCHED, learning_rate=0.01)
    before = [parameter.detach().clone() for parameter in trainer.model.model.visual.parameters()]
    trainer.train()
    after = [*trainer.model.model.visual.parameters()]
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert all(torch.isfinite(parameter).all() for parameter in after)


def test_dropped_episodes_leave_with_their_pictures(tmp_path: Path) -> None:
    changed = HeedfulConfig(
        filter=DropConstant(on="reward"), diagnostics=DiagnosticsConfig(enabled=False), record=False
    )
    batches: list[Any] = []
    trainer = playing("qwen2_vl", tmp_path, heedful=changed, max_steps=1)
    filtered = trainer._filtered

    def drop(draws: Any, verdicts: Any) -> Any:
        verdicts = [replace(one, weight=float(place == 1)) for place, one in enumerate(verdicts)]
        batches.extend((draws[0].batch, filtered(draws, verdicts)))
        return batches[-1]

    trainer._filtered = drop
    trainer.train()
    before, after = batches
    # The two members of the second group, and idle rows for the other micro-batches.
    assert after["heedful_kept"].tolist() == [True, True, False, False]
    assert after["num_images"][:2] == before["num_images"][2:4]
    first, many = sum(before["num_images"][:2]), sum(before["num_images"][2:4])
    assert torch.equal(after["image_grid_thw"][:many], before["image_grid_thw"][first : first + many])
    patches = before["image_grid_thw"].prod(dim=1)
    start, taken = int(patches[:first].sum()), int(patches[first : first + many].sum())
    assert torch.equal(after["pixel_values"][:taken], before["pixel_values"][start : start + taken])


def test_trls_own_trainer_refuses_pictures_that_its_learner_would_not_see(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="for an environment that shows pictures, found GRPOTrainer"):
        playing("qwen2_vl", tmp_path, heedful=None).train()


def test_engines_that_do_not_see_or_may_sample_a_placeholder_are_refused(tmp_path: Path) -> None:
    said = "found {}: the sampler and the learner would not see the same pictures in the same places"
    with pytest.raises(ValueError, match=said.format("a sampler")):
        playing("qwen2_vl", tmp_path, sampler=lambda trainer, batch: ScriptedPolicy(lambda asked: "Up")).train()
    for setting, name in (
        ("use_vllm", "vLLM"),
        ("use_transformers_continuous_batching", "continuous batching"),
        ("mask_truncated_completions", "mask_truncated_completions"),
    ):
        trainer = playing("qwen2_vl", tmp_path, heedful=UNWATCHED)
        setattr(trainer, setting, True)
        with pytest.raises(ValueError, match=said.format(name)):
            trainer.rollout_func([trainer.train_dataset[0]["prompt"]], trainer)


def test_pictures_of_later_turns_alone_are_refused(tmp_path: Path) -> None:
    shows = tuple(((), later) for _, later in EVERY)
    with pytest.raises(ValueError, match="found some in later turns of gallery alone"):
        playing("qwen2_vl", tmp_path, shows).train()


def test_pictures_that_a_processor_cuts_into_parts_are_refused() -> None:
    model, _ = seeing("internvl")
    vision = vision_of(model)
    assert vision is not None
    processor = vision.processor.processor

    def parts(images: Any, return_tensors: str) -> Any:
        made = processor(images=images, return_tensors=return_tensors)
        return {"pixel_values": made["pixel_values"].repeat_interleave(3, dim=0)}

    own = SimpleNamespace(
        processing_class=SimpleNamespace(image_processor=processor),
        accelerator=SimpleNamespace(device="cpu", unwrap_model=lambda model: model),
        model=model,
    )
    assert len(pixels_of(own, [[picture(0)], [], [picture(1)]])["pixel_values"]) == 2
    own.processing_class.image_processor = parts
    with pytest.raises(ValueError, match="one entry of pixels for each picture, found 6 for 2"):
        pixels_of(own, [[picture(0)], [], [picture(1)]])
