"""Models that see, of every family: rows with pictures are read as the model's own forward pass reads them."""

from __future__ import annotations

import copy
import inspect
import random
from typing import Any

import numpy as np
import pytest
import torch

from heedful.models.chat.render import Renderer
from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.forward.token_logits import keeps_prompts, token_logits
from heedful.models.vision import Vision, vision_of
from heedful.models.vision.positions import shifted
from heedful.models.vision.probe import refuse_unless_exact
from heedful.pixels import decoded
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.scorers.hf import HFScorer
from heedful.training.lora import Adapters
from heedful.training.settings import LoraConfig
from heedful.types import Conversation, Image, Message
from seeing_models import FAMILIES, picture, seeing

EXACT = 1e-4
PLAIN_WORDS = range(5, 260)
"""Ids of text: no placeholder is among them."""

GRIDS = [family for family in FAMILIES if family.startswith("qwen")]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return seeing(request.param)[0]


def seen(model: Any) -> Vision:
    found = vision_of(model)
    assert found is not None
    return found


def words(length: int, seed: int) -> tuple[int, ...]:
    generator = random.Random(seed)
    return tuple(generator.choice(PLAIN_WORDS) for _ in range(length))


@torch.no_grad()
def own_logprobs(model: Any, row: tuple[int, ...], images: list[Image]) -> torch.Tensor:
    """The log-probabilities `[T, V]` of the model's own forward pass, with pixels and placeholders."""
    vision = seen(model)
    ids_1T = torch.tensor([[vision.placeholder if id < 0 else id for id in row]])
    made = vision.processor.made([decoded(image.png) for image in images])
    taken = inspect.signature(type(model).forward).parameters
    values = {name: value for name, value in made.values.items() if name in taken}
    if "mm_token_type_ids" in taken:
        values["mm_token_type_ids"] = (ids_1T == vision.placeholder).int()
    logits_TV: torch.Tensor = vision.own_forward(input_ids=ids_1T, use_cache=False, **values).logits[0]
    return logits_TV.log_softmax(-1)


def test_the_probe_accepts_every_family(model: Any) -> None:
    refuse_unless_exact(model, seen(model))


def test_the_probe_refuses_a_model_that_is_read_otherwise() -> None:
    model, _ = seeing("idefics3")
    seen(model).own_forward = lambda **named: type(model).forward(model, **{**named, "pixel_values": None})
    with pytest.raises(
        ValueError, match="whose pictures heedful reads exactly, found log-probabilities that differ by"
    ):
        refuse_unless_exact(model, seen(model))


def test_every_method_scores_as_the_own_forward_pass(model: Any) -> None:
    vision = seen(model)
    images = [picture(0, 112, 56), picture(1), picture(2)]
    beginning = words(4, 0)
    shown = [[image] for image in images] + [[images[1], images[0]]]
    prompts = [beginning + vision.show(image).ids + words(3, 1) for image in images]
    prompts.append(beginning + vision.show(images[1]).ids + words(2, 2) + vision.show(images[0]).ids + words(5, 3))
    thoughts = [words(6, 4), words(6, 4)[:3] + words(2, 5), words(1, 6)]
    truth = np.zeros((len(thoughts), len(prompts)))
    for column, (prompt, pictures) in enumerate(zip(prompts, shown, strict=True)):
        for row, thought in enumerate(thoughts):
            logprobs_TV = own_logprobs(model, prompt + thought, pictures)
            truth[row, column] = sum(float(logprobs_TV[len(prompt) - 1 + at, id]) for at, id in enumerate(thought))
    for method in ("plain", "cached", "packed", "trie"):
        scores = HFScorer(model, method=method).cross_score(prompts, thoughts, [0, 1, 2], 1.0)
        np.testing.assert_allclose(np.asarray(scores.scores_MN), truth, atol=EXACT, err_msg=method)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_of_three_turns_is_sampled_as_the_own_forward_pass_scores_it(family: str) -> None:
    model, tokenizer = seeing(family)
    vision = seen(model)
    renderer = Renderer(tokenizer, sight=vision)
    policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=8), seed=0)
    conversations = [
        Conversation(str(number), (Message("user", "the goal", images=(picture(number % 3, 56 * (1 + number % 2)),)),))
        for number in range(5)
    ]
    compared = 0
    for turn in range(3):
        replies = policy.respond(conversations)
        grown = []
        for number, (conversation, reply) in enumerate(zip(conversations, replies, strict=True)):
            context = renderer.context_ids(conversation)
            images = [image for message in conversation.messages for image in message.images]
            if vision.placeholder not in (*context, *reply.ids):  # the model's own forward pass would break
                logprobs_TV = own_logprobs(model, context + reply.ids, images)
                own = [float(logprobs_TV[len(context) - 1 + at, id]) for at, id in enumerate(reply.ids)]
                assert reply.logprobs == pytest.approx(own, abs=EXACT)
                compared += 1
            # One picture or two that follow each other, some of them seen before.
            new = tuple(picture(number + other + turn) for other in range(1 + number % 2))
            messages = (
                *conversation.messages,
                Message("assistant", reply.text, ids=reply.ids),
                Message("user", "so", images=new),
            )
            grown.append(Conversation(conversation.key, messages, turn=turn + 1))
        conversations = grown
    assert compared >= 8


def test_shared_prompts_give_the_same_gradients_and_they_reach_the_tower() -> None:
    model, _ = seeing("idefics3", torch.float64)
    vision = seen(model)
    first, second = vision.show(picture(0)).ids, vision.show(picture(1)).ids
    prompts = [words(4, 0) + one + words(3, 1) + second + words(2, 2) for one in (first, second)]
    ids_BT = torch.tensor([prompt + words(4, 3 + at) for at, prompt in enumerate([prompts[0], prompts[1], prompts[0]])])
    trained_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    trained_BT[:, len(prompts[0]) :] = True
    assert keeps_prompts(model)

    def gradients(shared: SharedPrompts | None) -> dict[str, torch.Tensor]:
        model.zero_grad()
        logits_NV = token_logits(model)(ids_BT, trained_BT, shared)
        logits_NV.log_softmax(-1).gather(1, ids_BT[trained_BT][:, None]).sum().backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    plain, shared = gradients(None), gradients(SharedPrompts(len(prompts[0]) - 1, (0, 1, 0), 4))
    for name, gradient in plain.items():
        # Norms and rotations are computed in float32, also in a float64 model.
        assert (shared[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max() + 1e-9, name
    tower = {id(weight) for weight in vision.tower}
    names = [name for name, weight in model.named_parameters() if id(weight) in tower]
    # The last weight after the tower's norm is not used by this family.
    assert sum(bool(plain[name].any()) for name in names if name in plain) > 0.9 * len(names)
    vision.freeze()
    assert not any(name in gradients(None) for name in names)


@pytest.mark.parametrize("family", GRIDS)
def test_positions_are_those_of_the_model_for_random_rows(family: str) -> None:
    model, _ = seeing(family)
    vision = seen(model)
    generator = random.Random(0)
    shown = [vision.show(picture(seed, 56 * (1 + seed % 3), 56 * (1 + seed % 2))) for seed in range(4)]
    for _ in range(10):
        chosen = generator.choices(shown, k=3)
        row = [id for one in chosen for id in (*words(generator.randrange(1, 9), generator.randrange(99)), *one.ids)]
        row += words(4, 0)
        ids_1T = torch.tensor([row])
        placeholders_1T = torch.where(ids_1T < 0, vision.placeholder, ids_1T)
        grids = torch.cat([vision.processor.made([decoded(one.image.png)]).values["image_grid_thw"] for one in chosen])
        kinds_1T = (ids_1T < 0).int()
        expected, delta = model.model.get_rope_index(placeholders_1T, mm_token_type_ids=kinds_1T, image_grid_thw=grids)
        counts_1T, none_1 = torch.arange(len(row))[None], torch.zeros(1, dtype=torch.long)
        found, shift_B = shifted(ids_1T, counts_1T, none_1, vision.grid_of)
        assert torch.equal(found, expected)
        assert int(shift_B) == int(delta)


@pytest.mark.parametrize("family", GRIDS)
def test_what_another_call_left_on_the_model_changes_nothing(family: str) -> None:
    model, _ = seeing(family)
    row = torch.tensor([words(3, 0) + seen(model).show(picture(0)).ids + words(3, 1)])
    with torch.no_grad():
        before = model(input_ids=row).logits
        model.model.rope_deltas = torch.tensor([[1000]])
        assert torch.equal(model(input_ids=row).logits, before)


def test_two_contexts_that_differ_in_a_picture_alone_are_two_prompts() -> None:
    model, tokenizer = seeing("idefics3")
    renderer = Renderer(tokenizer, sight=seen(model))
    one, other = (renderer.start([Message("user", "see", images=(picture(seed),))]) for seed in (0, 1))
    assert one.text == other.text
    assert one.ids != other.ids
    scores = HFScorer(model).cross_score([one.ids, other.ids], [words(4, 0)], [0], 1.0)
    assert scores.scores_MN[0][0] != scores.scores_MN[0][1]


def test_a_sampled_placeholder_is_a_token_like_others() -> None:
    model, _ = seeing("qwen2_5_vl")
    vision = seen(model)
    prompt = words(3, 0) + vision.show(picture(0)).ids + words(2, 1)
    thought = (*words(2, 2), vision.placeholder, *words(2, 3))
    scores = HFScorer(model).cross_score([prompt], [thought], [0], 1.0)
    assert np.isfinite(scores.scores_MN).all()
    ids_BT = torch.tensor([prompt + thought])
    trained_BT = torch.arange(ids_BT.shape[1])[None] >= len(prompt)
    token_logits(model)(ids_BT, trained_BT).sum().backward()


def test_a_copy_reads_the_same_pictures_with_its_own_weights() -> None:
    model, _ = seeing("qwen3_vl")
    row = torch.tensor([words(3, 0) + seen(model).show(picture(0)).ids + words(3, 1)])
    other = copy.deepcopy(model)
    with torch.no_grad():
        before = model(input_ids=row).logits
        assert torch.equal(other(input_ids=row).logits, before)
        for weight in seen(other).tower:
            weight.mul_(1.5)
        assert not torch.equal(other(input_ids=row).logits, before), "features of changed weights are made anew"
        assert torch.equal(model(input_ids=row).logits, before)
        later = seen(model).show(picture(9))
        assert seen(other).pictures.of(later.own) is later, "pictures that the original is shown are known to the copy"


def test_features_of_zero_hide_the_picture() -> None:
    model, _ = seeing("llava")
    vision = seen(model)
    prompts = [words(3, 0) + vision.show(picture(seed)).ids + words(3, 1) for seed in (0, 1)]
    with torch.no_grad():
        for weight in model.model.multi_modal_projector.linear_2.parameters():
            weight.zero_()
    scores_MN = HFScorer(model).cross_score(prompts, [words(4, 2)], [0], 1.0).scores_MN
    assert scores_MN[0][0] == pytest.approx(scores_MN[0][1], abs=1e-6)


def test_lora_touches_no_weight_that_sees() -> None:
    for family in ("qwen2_5_vl", "idefics3"):
        for targets in (("all-linear",), ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj")):
            model, _ = seeing(family)
            tower = {id(weight) for weight in seen(model).tower}
            whole = {name for name, weight in model.named_parameters() if id(weight) in tower}
            Adapters(model, LoraConfig(rank=2, targets=targets), seed=0)
            added = [name for name, weight in model.named_parameters() if weight.requires_grad]
            assert added
            assert all("text_model" in name or "language_model" in name for name in added), added
            assert {name for name, _ in model.named_parameters()} >= whole


def test_faults_are_sentences() -> None:
    model, tokenizer = seeing("idefics3")
    vision = seen(model)
    renderer = Renderer(tokenizer, sight=vision)
    with pytest.raises(ValueError, match="one placeholder for each of 1 pictures in a rendered prompt, found 2"):
        renderer.start([Message("user", "a <image> here", images=(picture(0),))])
    with pytest.raises(ValueError, match="found -7, which is neither"):
        model(input_ids=torch.tensor([[5, -7, 6]]))
    with pytest.raises(ValueError, match="Expected observations of text alone for a model that reads text"):
        Renderer(tokenizer).start([Message("user", "see", images=(picture(0),))])
    with pytest.raises(ValueError, match="a PNG file that can be read"):
        vision.show(Image(picture(0).png[:40], 56, 56))


def test_a_picture_that_vanishes_in_the_processor_is_refused() -> None:
    vision = seen(seeing("idefics3")[0])
    vision.processor.processor.do_rescale = False
    vision.processor.processor.do_normalize = False
    black = decoded(picture(0).png).point(lambda value: 0)
    with pytest.raises(ValueError, match="whose values are all 0 after normalisation"):
        vision.processor.made([black])
