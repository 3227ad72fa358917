"""TRL runs with small models that see: processors, data sets with pictures, a trainer of one or two steps.

To be imported after `pytest.importorskip("trl")`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from tiny_trl import arguments
from transformers import PrinterCallback, ProcessorMixin
from trl import GRPOTrainer

from heedful.integrations.trl import HeedfulGRPOTrainer
from heedful.models.vision.vision import vision_of
from heedful.pixels import decoded
from seeing_models import picture, seeing


class QwenPictures(transformers.Qwen2VLProcessor):
    """Qwen2-VL's processor without its videos, which need torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        self.image_token, self.image_token_id = "<image>", tokenizer.convert_tokens_to_ids("<image>")
        self.video_token, self.video_token_id = "<video>", -1
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def bare(family: str) -> tuple[Any, Any]:
    """A model as a user of TRL has it, without our vision, and its whole processor. Prompts open a thought."""
    model, tokenizer = seeing(family)
    vision = vision_of(model)
    assert vision is not None
    processor = vision.processor.processor
    model.forward = vision.own_forward
    del model.forward, model.heedful_vision
    model.get_decoder()._forward_pre_hooks.clear()
    model.get_decoder()._forward_pre_hooks_with_kwargs.clear()
    tokenizer.padding_side = "left"  # as TRL loads processors
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|end|>")
    opened = tokenizer.chat_template.replace("<|assistant|>{% endif %}", "<|assistant|><think>{% endif %}")
    common = {"chat_template": opened}
    if family.startswith("qwen"):
        return model, QwenPictures(processor, tokenizer, **common)
    tokens = 16  # 56 pixels, patches of 7, 2 x 2 patches to a token
    if family.startswith("idefics3"):
        return model, transformers.Idefics3Processor(processor, tokenizer, image_seq_len=tokens, **common)
    if family == "llava":
        sizes = {"patch_size": 7, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return model, transformers.LlavaProcessor(processor, tokenizer, **sizes, **common)
    raise AssertionError(family)


def blind(model: Any) -> None:
    """Make every feature of every picture 0: the model then ignores pictures, whoever calls it."""
    last = {"idefics3": "connector.modality_projection.proj", "qwen2_vl": "visual.merger.mlp.2"}
    layer = model.model.get_submodule(last[model.config.model_type])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()


def pil(seed: int, width: int = 56, height: int = 56) -> Any:
    return decoded(picture(seed, width, height).png)


def rows(
    pictures: Sequence[Sequence[int]],
    column: str = "images",
    widths: Sequence[int] = (56,),
    texts: Sequence[str] = ("the goal",),
    instead: Mapping[int, Any] | None = None,
) -> Any:
    """One prompt for each list of pictures, which the seeds name. Texts and widths take turns.

    `instead`: pictures in the place of seeds.
    """
    found = []
    for number, seeds in enumerate(pictures):
        made = [pil(seed, widths[(number + place) % len(widths)]) for place, seed in enumerate(seeds)]
        shown = [(instead or {}).get(seed, one) for seed, one in zip(seeds, made, strict=True)]
        text = [{"role": "user", "content": texts[number % len(texts)]}]
        found.append({"prompt": text, column: shown if column == "images" else shown[0]})
    return datasets.Dataset.from_list(found)


class Answers:
    """A `rollout_func` that answers prompts of the data set as it is told, whatever the weights.

    `answers`: the text of a prompt -> what each member of its group answers, and its rewards.
    """

    def __init__(self, answers: Mapping[str, Sequence[tuple[tuple[int, ...], float]]]) -> None:
        self._answers = answers

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        texts = [prompt[-1]["content"][-1]["text"] for prompt in prompts]
        given = [self._answers[text][row % trainer.num_generations] for row, text in enumerate(texts)]
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [list(ids) for ids, _ in given],
            "logprobs": None,
            "given": [{"score": reward} for _, reward in given],
        }


def seeing_trainer(
    family: str, folder: Path, dataset: Any, *, heedful: Any = None, sees: bool = True, **changes: Any
) -> Any:
    """TRL's own trainer, or ours where `heedful` is given, on a fresh model."""
    model, processor = bare(family)
    if not sees:
        blind(model)
    names = ("reward_funcs", "callbacks", "peft_config", "rollout_func")
    others = {name: changes.pop(name) for name in names if name in changes}
    chosen = {"num_generations": 2, "per_device_train_batch_size": 4, "max_completion_length": 6, **changes}
    common = {"model": model, "processing_class": processor, "train_dataset": dataset, **others}
    args = arguments(folder, **chosen)
    made = (
        GRPOTrainer(args=args, **common)
        if heedful is None
        else HeedfulGRPOTrainer(heedful=heedful, args=args, **common)
    )
    made.remove_callback(PrinterCallback)
    return made
