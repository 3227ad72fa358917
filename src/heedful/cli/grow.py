"""`heedful grow`: the warm start of a loaded model, with its success before and after."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, settings, to_json
from heedful.console import SafeConsole
from heedful.models.cache import SMOLLM2
from heedful.run.evaluation.evaluate import EvaluateSettings, evaluate_subject, settings_of
from heedful.run.evaluation.held_out import refuse_numbers, write_numbers
from heedful.run.evaluation.subjects import Subject, with_settings
from heedful.run.presets import preset
from heedful.run.terminal import GrowthBar, growth_table
from heedful.seedlings.recipe import WarmStart
from heedful.training.settings import LoraConfig

STEPS = 60
"""Steps of a warm start where the preset has none."""

TASKS = 48
"""Held-out tasks of the evaluations before and after."""


@dataclass(frozen=True, slots=True)
class GrowWords:
    """Give a loaded chat model its warm start: it learns the form of the replies from an environment's solver.

    The model reads demonstrated episodes of training tasks and learns the replies: thoughts in English that state what
    matters and the plan, then the answer. The result is an ordinary model folder, kept in the cache under a name that
    depends on everything that decides its weights. An interrupted warm start goes on with the same command.

      heedful grow bandit
      heedful grow bandit --model smollm2 --lora.rank 16 --warm-start.lr 2e-3
      heedful grow my_game:Maze --model ./my-model --warm-start.steps 200 --only-after

    `heedful train ENV --model MODEL --warm-start.steps N` begins with the same warm start.
    """

    env: Annotated[str, Positional("ENV", example="bandit")]
    """A preset or an environment whose solver demonstrates, or one of your own as module:Class."""
    model: Annotated[str, Shown("MODEL")] = SMOLLM2
    """The model to begin with: smollm2 (extra smollm2), a folder or a Hugging Face name."""
    only_after: bool = False
    """Leave out the measurement of the untouched model."""


@settings(kw_only=True)
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


def main(argv: list[str]) -> int:
    line = CommandLine(GrowWords, argv, "heedful grow")
    words = line.words
    settings = line.settings(GrowSettings, _defaults(words.env, words.model))

    import torch

    from heedful.models.load import pick_device
    from heedful.run.parts import beginner_of
    from heedful.seedlings.warm_start import warm_started

    refuse_numbers(settings.json)
    console = SafeConsole()
    plain = replace(preset(words.env, words.model), warm_start=WarmStart())
    untouched = with_settings(Subject(words.model, plain), settings)
    before = None
    if not words.only_after:
        console.print("Before the warm start", style="bold")
        before = evaluate_subject(untouched, settings, console)
    config = untouched.config
    torch.set_num_threads(config.threads)
    with GrowthBar(console) as bar:
        folder = warm_started(settings.recipe, beginner_of(config, pick_device(config.device)), bar)
    console.print("After the warm start", style="bold")
    grown = replace(untouched, config=replace(config, model=str(folder)))
    after = evaluate_subject(grown, settings, console)
    console.print(f"{settings.env.name}, {settings.tasks} tasks of {settings.split}", style="bold")
    console.print(growth_table(before.metrics if before else (), after.metrics))
    console.print(f"model folder: {folder}", soft_wrap=True)
    if settings.json is not None:
        about = {
            "subject": f"{words.model} after its warm start",
            "model": str(folder),
            "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        }
        write_numbers(settings.json, about, after.metrics, after.sequence)
    train = shlex.join(["heedful", "train", words.env, "--model", str(folder)])
    console.print(f"train it: {train}", soft_wrap=True)
    return 0


def _defaults(environment: str, model: str) -> GrowSettings:
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
