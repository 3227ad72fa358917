"""The player that the user named: a run, one of its checkpoints, a model, or an environment's untrained seedling.

A name has one meaning or is refused with a sentence. No weights are loaded before `load`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary import trust_flags
from heedful.policies import OpenPolicySource, Sampling, Weights, open_with
from heedful.protocols import Policy
from heedful.rollout.context import Context
from heedful.run.config import TrainConfig, read_config
from heedful.run.presets import PAPER, preset, starting_points
from heedful.seedlings.recipe import WarmStart
from heedful.storage import RunFolder, is_run, read_metrics

if TYPE_CHECKING:
    from rich.console import Console
    from transformers import PreTrainedModel

    from heedful.models.chat.render import Renderer

_CHECKPOINTS = "checkpoints"
_BESIDE = "For a model, name the environment beside it (heedful eval MODEL ENV, heedful play ENV --by MODEL)"

_OF_A_POLICY = (
    *("env", "seedling", "context", "collect", "policy", "sampling"),
    *("tags", "template_options", "threads", "device", "dtype"),
)
"""The parts of a subject's configuration that a command's settings may change."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A player, and the configuration it plays with."""

    label: str
    config: TrainConfig
    weights: Path | None = None
    """A model folder, such as a checkpoint. `None`: the model that the configuration names."""
    version: int = 0
    """Training steps behind the weights, as far as is known."""
    notes: tuple[str, ...] = ()
    """Sentences about the choice of the checkpoint, for the user."""

    @property
    def is_seedling(self) -> bool:
        """Whether an untrained seedling plays, grown by the recipe of the configuration."""
        return self.weights is None and self.config.model == "seedling"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A subject's weights, ready to sample."""

    model: PreTrainedModel
    renderer: Renderer
    version: int
    context: Context
    """How much of an episode the model reads."""
    source: OpenPolicySource
    """Makes policies with these weights."""

    def policy(self, sampling: Sampling, seed: int) -> Policy:
        """The model as a policy. `seed` is the seed of the sampling noise."""
        return self.source.policy(self.renderer, sampling, seed)


def is_checkpoint(path: Path) -> bool:
    """Whether it is the place of a checkpoint of a run, such as `checkpoints/step_000020`."""
    named = path.parent.name == _CHECKPOINTS and re.fullmatch(r"step_[0-9]+", path.name)
    return named is not None and is_run(path.parent.parent)


def find_subject(name: str, environment: str | None = None, checkpoint: str | None = None) -> Subject:
    """Understand `name`: a run folder, a checkpoint inside one, an environment (its untrained seedling), or a model.

    A model needs `environment`. A run brings its own, and naming another is refused. `checkpoint` (a step, `last` or
    `best`) is for runs.

    Raises ValueError for a name that cannot be understood, and for a checkpoint that the run does not have.
    """
    path, own = Path(name), f"{', '.join(starting_points())} or module:Class"
    inside = is_checkpoint(path)
    if checkpoint is not None and not is_run(path):
        raise ValueError(
            f"--checkpoint chooses among the checkpoints of a run, but {name} is "
            f"{'itself a checkpoint' if inside else 'no run folder'}. Leave --checkpoint out, or name the run's folder."
        )
    if is_run(path) or inside:
        folder = RunFolder(path.parent.parent if inside else path)
        config = read_config(folder)
        if environment is not None and preset(environment).env.name != config.env.name:
            raise ValueError(
                f"{name} was trained in {config.env.name}, but {environment} was named too. Leave the environment out; "
                "its knobs can be changed with --env.KNOB."
            )
        step, notes = choose_checkpoint(folder, config, str(int(path.name[5:])) if inside else checkpoint or "last")
        return Subject(f"{folder.path}, checkpoint of step {step}", config, folder.checkpoint(step), step, notes)
    if environment is not None:
        # A model that is named plays as it is, without the warm start of the preset.
        config = replace(preset(environment, name), warm_start=WarmStart())
        return Subject(f"{_untrained(config)} in {config.env.name}", config)
    if path.exists():
        raise ValueError(
            f"Expected a run folder, or a model and its environment, found the path {name} alone, which is no run (it "
            f"holds no config.json of one). {_BESIDE}: {own}."
        )
    if name in (*starting_points(), *PAPER) or ":" in name:
        config = preset(name)
        return Subject(f"{_untrained(config)} in {config.env.name}", config)
    raise ValueError(
        f"Expected a run folder, an environment ({own}), or a model and its environment, found {name!r} "
        f"alone, which is neither a path here nor an environment. {_BESIDE}."
    )


def choose_checkpoint(folder: RunFolder, config: TrainConfig, choice: str) -> tuple[int, tuple[str, ...]]:
    """The step of a run's checkpoint named `last`, `best` or by its number, and notes about the choice."""
    steps = folder.checkpoint_steps()
    if not steps and folder.report.exists():
        raise ValueError(
            f"Expected a checkpoint in {folder.path / _CHECKPOINTS}, found none, though the work in this folder is "
            "over. A study keeps those of finished runs only with `keep_checkpoints`, and some of its jobs train "
            f"nothing. The model it started from: heedful eval {config.env.name}."
        )
    if not steps:
        raise ValueError(
            f"Expected a checkpoint in {folder.path / _CHECKPOINTS}, found none: the run ended before its first one. "
            f"Go on with it: {shlex.join(['heedful', 'train', '--resume', str(folder.path), *trust_flags(config)])}. "
            "The model it started from: "
            f"heedful eval {config.env.name}."
        )
    if choice == "last":
        return steps[-1], ()
    if choice == "best":
        return _best(folder, config, steps)
    if not choice.isdecimal() or int(choice) not in steps:
        kept = ", ".join(map(str, steps))
        raise ValueError(
            f"Expected --checkpoint last, best or one of the steps kept in {folder.path} ({kept}), found {choice!r}. "
            "A run keeps its last two checkpoints and the best evaluated one, or with --keep-checkpoints all every one."
        )
    return int(choice), ()


def _best(folder: RunFolder, config: TrainConfig, steps: list[int]) -> tuple[int, tuple[str, ...]]:
    """The kept checkpoint with the highest evaluated sampled success, and the earliest among equals."""
    split = config.evaluation.split
    name = f"eval/{split}/sampled/success"
    readings = ((line.step, line.metrics[name].number) for line in read_metrics(folder.metrics) if name in line.metrics)
    scores = {step: value for step, value in readings if value is not None}
    kept = {step: scores[step] for step in steps if step in scores}
    if not kept:
        raise ValueError(
            f"Expected an evaluated checkpoint in {folder.path}, but none of the kept ones "
            f"({', '.join(map(str, steps))}) was evaluated. Choose --checkpoint last or a step."
        )
    best = max(kept, key=lambda step: (kept[step], -step))
    notes = [
        f"Step {best} is the best of {len(kept)} evaluated checkpoints by its success on {split} ({kept[best]:.3f}): "
        "on those tasks its success is flattered, on another split it is not."
    ]
    above = max(scores, key=lambda step: (scores[step], -step))
    if scores[above] > kept[best]:
        notes.append(f"No checkpoint is kept of step {above}, where the run reached {scores[above]:.3f}.")
    return best, tuple(notes)


def _untrained(config: TrainConfig) -> str:
    return "the untrained seedling" if config.model == "seedling" else config.model


def shared_fields(settings: type, config: TrainConfig) -> dict[str, Any]:
    """The values of a configuration for the fields of `settings` that it shares."""
    return {field.name: getattr(config, field.name) for field in fields(settings) if hasattr(config, field.name)}


def with_settings(subject: Subject, settings: Any) -> Subject:
    """The subject that plays as a command's settings say: with their environment, sampling, tags, device, ..."""
    changed = {name: getattr(settings, name) for name in _OF_A_POLICY if hasattr(settings, name)}
    return replace(subject, config=replace(subject.config, **changed))


@contextmanager
def load(subject: Subject, console: Console) -> Iterator[LoadedModel]:
    """Load the subject's weights. A seedling that is not in the cache is grown now, with a progress bar."""
    import torch

    from heedful.models.load import load_model, pick_device
    from heedful.run.checkpoint import Checkpoint
    from heedful.run.parts import load_policy, renderer_of
    from heedful.run.terminal import GrowthBar

    config = subject.config
    torch.set_num_threads(config.threads)
    device = pick_device(config.device)
    if subject.weights is not None:
        Checkpoint(subject.weights, subject.version).check(
            "Restore it, or choose another checkpoint with --checkpoint."
        )
        model, tokenizer = load_model(str(subject.weights), device, config.dtype, config.vision)
    else:
        with GrowthBar(console) as bar:
            model, tokenizer = load_policy(config, device, bar)
    renderer = renderer_of(config, model, tokenizer)
    with open_with(config.policy, Weights(model.eval(), subject.version), console.print) as source:
        yield LoadedModel(model, renderer, subject.version, config.context, source)
