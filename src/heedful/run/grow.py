"""The warm start of a loaded model as a job of its own, with its success before and after beside the baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from heedful.run.evaluation.evaluate import Evaluated, EvaluateSettings, evaluate_subject, settings_of
from heedful.run.evaluation.subjects import Subject, with_settings
from heedful.run.presets import preset
from heedful.run.terminal import GrowthBar
from heedful.seedlings.recipe import WarmStart
from heedful.training.lora_config import LoraConfig

STEPS = 60
"""Steps of a warm start where the preset has none."""

TASKS = 48
"""Held-out tasks of the evaluations before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowSettings(EvaluateSettings):
    """Settings of a warm start and of the evaluations before and after it."""

    warm_start: WarmStart
    """Learning from the environment's demonstrations."""
    lora: LoraConfig
    """LoRA of the warm start, short for --warm-start.lora."""

    def __post_init__(self) -> None:
        if self.lora.rank and self.warm_start.lora.rank and self.lora != self.warm_start.lora:
            raise ValueError(
                f"Expected one LoRA for the warm start, found --lora.rank {self.lora.rank} and another one of "
                f"--warm-start.lora.rank {self.warm_start.lora.rank}. Leave one of them out."
            )

    @property
    def recipe(self) -> WarmStart:
        """The warm start with the LoRA that was asked for."""
        return replace(self.warm_start, lora=self.lora) if self.lora.rank else self.warm_start


@dataclass(frozen=True, slots=True)
class Grown:
    """A model after its warm start."""

    folder: Path
    """An ordinary model folder."""
    before: Evaluated | None
    """`None` where it was not asked for."""
    after: Evaluated


def grow_settings(environment: str, model: str) -> GrowSettings:
    """The settings of the preset of this environment for this model.

    Raises ValueError for a model that is not loaded, and for an unknown environment.
    """
    if model == "seedling":
        raise ValueError(
            "`heedful grow` gives a loaded model its warm start, found --model seedling. A seedling is grown when it "
            f"is first used: heedful eval {environment}. Name a model, such as --model smollm2."
        )
    config = preset(environment, model)
    evaluation = settings_of(Subject(model, config))
    shared = {name: getattr(evaluation, name) for name in EvaluateSettings.__dataclass_fields__}
    recipe = config.warm_start if config.warm_start.steps else replace(config.warm_start, steps=STEPS)
    return GrowSettings(**shared | {"tasks": TASKS, "samples": 1, "warm_start": recipe, "lora": LoraConfig()})


def grow_model(environment: str, model: str, settings: GrowSettings, before: bool, console: Console) -> Grown:
    """Give the model its warm start, from the cache or now, and measure it. `before`: measure it before that, too."""
    import torch

    from heedful.models.load import pick_device
    from heedful.run.evaluation.held_out import refuse_numbers
    from heedful.run.parts import beginner_of
    from heedful.seedlings.warm_start import warm_started

    refuse_numbers(settings.json)
    config = replace(preset(environment, model), warm_start=WarmStart())
    loaded = with_settings(Subject(model, config), settings)
    untouched = None
    if before:
        console.print("Before the warm start", style="bold")
        untouched = evaluate_subject(loaded, settings, console)
    config = loaded.config
    torch.set_num_threads(config.threads)
    with GrowthBar(console) as bar:
        folder = warm_started(settings.recipe, beginner_of(config, pick_device(config.device)), bar)
    console.print("After the warm start", style="bold")
    grown = replace(loaded, config=replace(config, model=str(folder)))
    return Grown(folder, untouched, evaluate_subject(grown, settings, console))
