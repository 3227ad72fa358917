"""What a run is assembled from: model, renderer, tasks, learner, diagnostician - fresh, or from a checkpoint.

Promise: a run resumed from checkpoint v continues exactly as the run that wrote it did.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.configuration import to_json
from heedful.diagnostician import Diagnostician
from heedful.diagnostics.text import load_text_judge
from heedful.diagnostics.thoughts import ThoughtTags
from heedful.envs.tasks import TaskStream
from heedful.policies.load import load_model, pick_device
from heedful.render import Renderer
from heedful.scorers.hf import HFScorer
from heedful.scorers.judge import Judge, judge_name
from heedful.seedlings.grow import load_seedling
from heedful.seeds import derive
from heedful.training.checkpoint import Checkpoint
from heedful.training.config import TrainConfig
from heedful.training.learner import Learner


@dataclass(slots=True)
class Parts:
    """A run's moving parts. `version` counts the training steps that the weights have seen."""

    family: Any
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    tasks: TaskStream
    learner: Learner
    diagnostician: Diagnostician
    version: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    """Sampled success at each evaluated version."""

    @property
    def best(self) -> int | None:
        """The version with the highest evaluated success; the earliest among equals."""
        return max(self.scores, key=lambda version: (self.scores[version], -version), default=None)

    def state(self) -> dict[str, Any]:
        """The loop's own state, as a JSON tree."""
        return {
            "tasks": self.tasks.cursor,
            "diagnostics": self.diagnostician.state(),
            "scores": {str(version): score for version, score in self.scores.items()},
        }


def assemble(config: TrainConfig, progress: Callable[[int, int, float], None], start: Checkpoint | None) -> Parts:
    """Everything a run needs, from its configuration and, when resuming, a checkpoint."""
    if config.sampling.greedy:
        raise ValueError(
            "sampling.greedy is for playing: in training the members of a group would differ by the environment's "
            "noise alone, if at all"
        )
    torch.set_num_threads(config.threads)
    device = pick_device(config.device)
    family = config.env
    model, tokenizer = load_policy(config, device, progress)
    renderer = Renderer(tokenizer, config.tags, config.chat_options, stop_ids(model))
    # The reference is the policy before any update, also when the run resumes.
    reference = copy.deepcopy(model).requires_grad_(False) if config.algorithm.kl > 0 else None
    if start is not None:
        model.load_state_dict(start.model(model.dtype).state_dict())
    learner = Learner(
        model,
        config.algorithm,
        config.optimizer,
        temperature=config.sampling.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        reference=reference,
        device=device,
    )
    if config.diagnostics.enabled:
        load_text_judge()  # now, so that the first step's time is that of a step
    scorer = HFScorer(model, max_tokens=config.diagnostics.max_tokens)
    parts = Parts(
        family=family,
        model=model,
        tokenizer=tokenizer,
        renderer=renderer,
        tasks=TaskStream(family, "train", derive(config.seed, "tasks"), config.tasks),
        learner=learner,
        diagnostician=Diagnostician(
            config.diagnostics,
            scorer,
            config.seed,
            ThoughtTags(config.tags.open, config.tags.close),
            renderer.piece,
            load_judge(config, device),
        ),
    )
    if start is not None:
        _restore(parts, start)
    return parts


def load_policy(
    config: TrainConfig, device: torch.device, progress: Callable[[int, int, float], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model to train: a seedling (grown now if the cache has none) or a loaded one."""
    if config.model == "seedling":
        model, tokenizer, _ = load_seedling(config.seedling, config.env, to_json(config.env), config.tags, progress)
        cast(torch.nn.Module, model).to(device)
        return model, tokenizer
    return load_model(config.model, device, config.dtype)


def load_judge(config: TrainConfig, device: torch.device) -> Judge | None:
    """The outside scorer that the configuration names, if any."""
    diagnostics = config.diagnostics
    if diagnostics.judge is None or not diagnostics.enabled:
        return None
    model, tokenizer = load_model(diagnostics.judge, device, config.dtype)
    return Judge(model, tokenizer, judge_name(diagnostics.judge), diagnostics.max_tokens)


def stop_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-sequence ids."""
    ids = model.generation_config.eos_token_id if model.generation_config else None
    return [] if ids is None else list(ids) if isinstance(ids, list) else [ids]


def _restore(parts: Parts, start: Checkpoint) -> None:
    state = start.state()
    parts.learner.load_state_dict(start.learner_state())
    parts.tasks.cursor = state["tasks"]
    parts.diagnostician.load_state(state["diagnostics"])
    parts.scores = {int(version): score for version, score in state["scores"].items()}
    parts.version = start.version
