"""`heedful grow`: the warm start of a loaded model, with its success before and after."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, to_json
from heedful.console import SafeConsole
from heedful.models.cache import SMOLLM2
from heedful.run.evaluation.held_out import write_numbers
from heedful.run.grow import grow_model, grow_settings
from heedful.run.terminal import growth_table


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
    """The model to begin with: smollm2 (extra smollm2), a folder, a .gguf file or a Hugging Face name."""
    only_after: bool = False
    """Leave out the measurement of the untouched model."""


def main(argv: list[str]) -> int:
    line = CommandLine(GrowWords, argv, "heedful grow")
    words = line.words
    defaults = grow_settings(words.env, words.model)
    settings = line.settings(type(defaults), defaults)
    console = SafeConsole()
    grown = grow_model(words.env, words.model, settings, not words.only_after, console)
    console.print(f"{settings.env.name}, {settings.tasks} tasks of {settings.split}", style="bold")
    console.print(growth_table(grown.before.metrics if grown.before else (), grown.after.metrics))
    console.print(f"model folder: {grown.folder}", soft_wrap=True)
    if settings.json is not None:
        about = {
            "subject": f"{words.model} after its warm start",
            "model": str(grown.folder),
            "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        }
        write_numbers(settings.json, about, grown.after.metrics, grown.after.sequence)
    train = shlex.join(["heedful", "train", words.env, "--model", str(grown.folder)])
    console.print(f"train it: {train}", soft_wrap=True)
    return 0
