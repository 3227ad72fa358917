"""A run: configuration, presets, the training loop, checkpoints, evaluation, verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.run.config import EvaluationConfig, GradientsConfig, TrainConfig
    from heedful.run.evaluation.evaluate import Evaluated, EvaluateSettings, evaluate
    from heedful.run.evaluation.held_out import paired_gain, play_tasks
    from heedful.run.evaluation.verdict import Conclusion, conclude
    from heedful.run.loop import train_steps
    from heedful.run.parts import Parts, assemble
    from heedful.run.presets import PRESETS, preset
    from heedful.run.train import Run, resume

__all__ = [
    "PRESETS",
    "Conclusion",
    "EvaluateSettings",
    "Evaluated",
    "EvaluationConfig",
    "GradientsConfig",
    "Parts",
    "Run",
    "TrainConfig",
    "assemble",
    "conclude",
    "evaluate",
    "paired_gain",
    "play_tasks",
    "preset",
    "resume",
    "train_steps",
]

__getattr__ = lazily(
    __name__,
    {
        "Conclusion": "heedful.run.evaluation.verdict",
        "EvaluateSettings": "heedful.run.evaluation.evaluate",
        "Evaluated": "heedful.run.evaluation.evaluate",
        "EvaluationConfig": "heedful.run.config",
        "GradientsConfig": "heedful.run.config",
        "PRESETS": "heedful.run.presets",
        "Parts": "heedful.run.parts",
        "Run": "heedful.run.train",
        "TrainConfig": "heedful.run.config",
        "assemble": "heedful.run.parts",
        "conclude": "heedful.run.evaluation.verdict",
        "evaluate": "heedful.run.evaluation.evaluate",
        "paired_gain": "heedful.run.evaluation.held_out",
        "play_tasks": "heedful.run.evaluation.held_out",
        "preset": "heedful.run.presets",
        "resume": "heedful.run.train",
        "train_steps": "heedful.run.loop",
    },
)
