"""The configuration of a training run: one default per knob, each written once, here.

Promise: torch-free; a run's resolved configuration written as JSON is accepted back and gives the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from heedful import envs
from heedful.algorithms.loss_scale import LossScale
from heedful.algorithms.table import ALGORITHMS, Algorithm, Grpo
from heedful.configuration import Choice, refuse_below
from heedful.diagnostician import DiagnosticsConfig
from heedful.envs.frozen_lake import FrozenLake
from heedful.filters import FILTERS, TopP
from heedful.policies.sampling import Sampling
from heedful.reading import Tags
from heedful.seedlings.recipe import Seedling
from heedful.trackers import TRACKERS
from heedful.training.optimizer import OptimizerConfig


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """Success on held-out tasks, sampled and greedy, beside the random and the best input-blind policy."""

    tasks: int = 256
    """Held-out tasks; the same ones at every evaluation."""
    samples: int = 4
    """Sampled episodes per task (greedy: one)."""
    times: int = 3
    """Evaluations, evenly spread: 3 = before training, in the middle, after. 0 = none."""
    split: Literal["val", "test"] = "val"
    at_once: int = 1024
    """Most episodes played at once: lower it when memory is short. Which noise an episode meets depends on it."""

    def __post_init__(self) -> None:
        refuse_below(self, tasks=1, samples=1, times=0, at_once=1)

    def at(self, steps: int) -> frozenset[int]:
        """The numbers of updates after which to evaluate."""
        if self.times < 1:
            return frozenset()
        if self.times == 1:
            return frozenset({steps})
        return frozenset(round(index * steps / (self.times - 1)) for index in range(self.times))


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Everything that decides a run's numbers. `heedful train ENV` starts from the environment's preset."""

    env: Annotated[Any, Choice(envs.FAMILIES)] = field(default_factory=FrozenLake)
    """The environment and its knobs."""
    model: str = "seedling"
    """`seedling` grows a small model from the environment's solver; else a local path or a Hugging Face name."""
    seedling: Seedling = field(default_factory=Seedling)
    """Recipe of the seedling (only with --model seedling)."""
    algorithm: Annotated[Algorithm, Choice(ALGORITHMS)] = field(default_factory=Grpo)
    """Advantage, clip, averaging, KL and entropy."""
    filter: Annotated[Any, Choice(FILTERS)] = field(default_factory=TopP)
    """Chooses prompts by how their members' outcomes spread."""
    loss_scale: LossScale = "kept"
    """What the loss is multiplied by when groups were dropped."""
    steps: int = 80
    """Training steps: one batch of episodes each."""
    groups: int = 16
    """Tasks per step."""
    group_size: int = 8
    """Episodes per task."""
    tasks: int | None = None
    """Draw tasks from a fixed pool of this size; none = fresh tasks at every step."""
    sampling: Sampling = field(default_factory=Sampling)
    tags: Tags = field(default_factory=Tags)
    template_options: tuple[str, ...] = ()
    """Options of the chat template as name=value, for instance enable_thinking=true."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    on_collapse: Literal["warn", "stop"] = "warn"
    """What an alarm named a collapse does: warn = say so and go on; stop = end the run after the step, saved, with exit
    code 3. Other alarms only warn."""
    checkpoint_every: int = 10
    """Steps between checkpoints; the last two and the best evaluated one are kept."""
    keep_rollouts: Literal["all", "evaluations", "none"] = "all"
    """Episodes that are stored, with their texts: those trained on and those of evaluations, the latter alone, or none.
    Without those of evaluations a verdict has no gain paired by task; without those trained on a report shows none."""
    trackers: tuple[str, ...] = ()
    """Besides metrics.jsonl: tensorboard, wandb, trackio."""
    seed: int = 0
    threads: int = 1
    """CPU threads; part of what makes a run reproducible to the byte."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights of a loaded model; log-probabilities are float32 in any case."""
    micro_batch_tokens: int = 1024
    """Most padded tokens in one forward and backward pass. Changes speed and memory, never gradients."""

    def __post_init__(self) -> None:
        refuse_below(self, steps=1, groups=1, checkpoint_every=1, threads=1, micro_batch_tokens=1)
        if self.group_size < 2:
            raise ValueError(
                f"group_size must be at least 2 (a group of one has no spread and earns no advantage), "
                f"found {self.group_size}"
            )
        unknown = [name for name in self.trackers if name not in TRACKERS]
        if unknown:
            raise ValueError(f"trackers are among {', '.join(TRACKERS)}, found {', '.join(unknown)}")
        if self.tasks is not None and self.tasks < self.groups:
            raise ValueError(
                f"tasks (the pool) must hold at least the {self.groups} groups of one step, found {self.tasks}"
            )

        if self.loss_scale == "rho" and getattr(self.filter, "share", None) is None:
            raise ValueError(
                f"The loss scale rho multiplies the loss by the share that the filter asks for, but "
                f"{type(self.filter).__name__} asks for none; choose the filter top_p, or the loss scale kept, all or "
                "sqrt"
            )
        _ = self.chat_options  # raises for an entry that is no option

    @property
    def chat_options(self) -> dict[str, str | bool]:
        """`template_options` as the chat template takes them. Raises a sentence for an entry without `=`."""
        options: dict[str, str | bool] = {}
        for entry in self.template_options:
            name, equals, value = entry.partition("=")
            if not equals:
                raise ValueError(f"Expected a template option as name=value, found {entry!r}")
            options[name] = {"true": True, "false": False}.get(value.lower(), value)
        return options
