"""Success on held-out tasks, sampled and greedy, next to the success of policies that do not read the input.

With a run's own settings, the tasks and the sampling noise equal those of its evaluation, so the numbers agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from heedful import envs
from heedful.boundary import Choice, Count, Natural, Wait, Workers, settings, trusting
from heedful.console import SafeConsole
from heedful.envs.common.contract import rightness_of, worth_of
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import evaluation_tasks
from heedful.measuring.evaluated import evaluated_metrics, evaluated_tokens
from heedful.models.chat.replies import Tags
from heedful.policies import POLICIES, PolicySource, Sampling
from heedful.protocols import Environment
from heedful.rollout import COLLECTORS, Collector, Context, isolated
from heedful.run.evaluation.held_out import (
    broken_sentence,
    evaluation_metrics,
    evaluation_seed,
    measure_baselines,
    play_tasks,
    refuse_numbers,
)
from heedful.run.evaluation.subjects import Subject, find_subject, load, shared_fields, with_settings
from heedful.seedlings.recipe import Seedling
from heedful.types import Metric


@settings(kw_only=True)
class HeldOutSettings:
    """Settings of every evaluation on held-out tasks."""

    split: Literal["val", "test"]
    """The split of the tasks."""
    tasks: Count
    """Number of held-out tasks. They are the same for every model, so results of two models are paired."""
    samples: Count
    """Sampled episodes per task."""
    at_once: Count
    """Most episodes played at once: lower it when memory is short."""
    search_tasks: Natural
    """Training tasks on which the best fixed sequence is searched. 0 = no search."""
    json: Path | None = None
    """Write the numbers to this file, too."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""
    context: Context
    collect: Annotated[Collector, Choice(COLLECTORS, Collector)]
    """How episodes are played at the same time: lock_step, or async for slow environments."""
    env_workers: Workers
    """Processes in which episodes are played. 0 = in this one."""
    env_timeout: Wait
    """Seconds for one start or step of an environment in such a process. 0 = no limit."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value."""
    seed: int
    """Seed of the sampling noise. The tasks do not depend on it."""

    def __post_init__(self) -> None:
        if self.sampling.greedy:
            raise ValueError("sampling.greedy has no use here: both the sampled and the greedy policy are evaluated")


@settings(kw_only=True)
class EvaluateSettings(HeldOutSettings):
    """Settings of an evaluation."""

    policy: Annotated[PolicySource, Choice(POLICIES, PolicySource)]
    """The sampler of replies, typed --sampler NAME as well: local = the model in this process, vllm = servers."""
    threads: int
    """CPU threads."""
    device: Literal["auto", "cpu", "cuda", "mps"]
    dtype: Literal["float32", "bfloat16"]
    """Type of the weights."""

    def __post_init__(self) -> None:
        HeldOutSettings.__post_init__(self)
        _ = self.asked(self.sampling)  # raises where the sampler or the collector cannot work with it

    def asked(self, sampling: Sampling) -> Sampling:
        """The sampling settings of the policy for the collector. Raises ValueError where one of them cannot work."""
        return self.collect.sampling(self.policy.sampling(sampling))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedlingSettings(EvaluateSettings):
    """Settings of an evaluation of an untrained seedling."""

    seedling: Seedling
    """Recipe of the seedling."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of an evaluation."""

    metrics: tuple[Metric, ...]
    """`eval/<split>/<sampled|greedy|random|fixed>/success`, and more of the sampled episodes."""
    sequence: tuple[str, ...]
    """The best input-blind sequence of actions."""
    broken: tuple[str, ...] = ()
    """Sentences about episodes whose environment broke, with the first error."""


def evaluate(
    subject: Path | str,
    environment: str | None = None,
    *,
    checkpoint: str | int | None = None,
    split: Literal["val", "test"] | None = None,
    tasks: int | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    trust: Iterable[str] = (),
    show: bool = True,
) -> Evaluated:
    """Measure success on held-out tasks, sampled and greedy, with baselines that do not read the input.

    Args:
        subject: a run's folder or one of its checkpoints, an environment or preset (its untrained seedling plays), or
            a model (a folder or a Hugging Face name), which needs `environment`.
        environment: the environment that a model plays.
        checkpoint: for a run: `"last"` (default), `"best"` or a step.
        split: the split of the tasks. By default the setting of the run or preset is used, here and below.
        tasks: the number of tasks.
        samples: sampled episodes per task. The greedy policy plays one.
        temperature: the temperature of the sampled episodes.
        trust: names that may run code: modules that a run's settings name as `module:Class`, and models (a folder or a
            Hugging Face name) with code of their own.
        show: print the progress.

    Raises ValueError, a sentence, for a subject that cannot be found or a setting that cannot be applied. Raises
    OSError for a path that the system does not take.
    """
    with trusting(trust):
        found = find_subject(str(subject), environment, None if checkpoint is None else str(checkpoint))
        settings = settings_of(found)
        given: dict[str, Any] = {"split": split, "tasks": tasks, "samples": samples}
        if temperature is not None:
            given["sampling"] = replace(settings.sampling, temperature=temperature)
        settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
        return evaluate_subject(with_settings(found, settings), settings, SafeConsole(quiet=not show))


def settings_of(subject: Subject) -> EvaluateSettings:
    """The settings of a subject's run or preset."""
    config = subject.config
    evaluation = config.evaluation
    kind = SeedlingSettings if subject.is_seedling else EvaluateSettings
    shared = shared_fields(kind, config) | {"tasks": evaluation.tasks}
    shared["sampling"] = replace(config.sampling, greedy=False)
    for name in ("split", "samples", "at_once", "search_tasks"):
        shared[name] = getattr(evaluation, name)
    return kind(**shared)


def evaluate_subject(subject: Subject, settings: EvaluateSettings, console: Console) -> Evaluated:
    """Load the subject and measure it. A seedling that is not in the cache is grown first.

    The held-out tasks are played sampled and greedily, and by the players of the baselines.
    """
    refuse_numbers(settings.json)
    with (
        load(subject, console) as loaded,
        isolated(in_tags(settings.env, loaded.renderer.tags), settings.env_workers, settings.env_timeout) as env,
    ):
        tasks, played = evaluation_tasks(env, settings.split, settings.tasks), []
        for kind, samples in (("sampled", settings.samples), ("greedy", 1)):
            sampling = settings.asked(replace(settings.sampling, greedy=kind == "greedy"))
            with _stage(console, f"{kind}: {len(tasks)} tasks x {samples}"):
                groups = play_tasks(
                    partial(loaded.policy, sampling),
                    # The same derivation as the training loop's: equal settings give equal numbers.
                    evaluation_seed(settings.seed, kind, loaded.version),
                    env,
                    tasks,
                    samples=samples,
                    at_once=settings.at_once,
                    context=settings.context,
                    collect=settings.collect,
                )
            played.append(groups)
        with _stage(console, "random player, and search of the best fixed sequence on training tasks"):
            baselines = measure_baselines(env, settings.split, settings.tasks, settings.search_tasks)
        sampled, greedy = played
        metrics = evaluation_metrics(f"eval/{settings.split}", sampled, greedy, baselines)
        with _stage(console, "what right first actions come from: thoughts exchanged between tasks"):
            from heedful.scorers.hf import HFScorer

            scorer, told = HFScorer(loaded.model), (rightness_of(env), worth_of(env))
            allowed = evaluated_tokens(subject.config.diagnostics.share, [*sampled, *greedy]) / 2
            with scorer.asking():  # both are of the same tasks
                for kind, groups in (("sampled", sampled), ("greedy", greedy)):
                    prefix, temperature = f"eval/{settings.split}/{kind}", settings.sampling.temperature
                    metrics += evaluated_metrics(prefix, groups, scorer, temperature, *told, allowed)
    broken = (broken_sentence(sampled, "sampled"), broken_sentence(greedy, "greedy"))
    return Evaluated(tuple(metrics), baselines.sequence, tuple(filter(None, broken)))


def _stage(console: Console, name: str) -> AbstractContextManager[object]:
    """A spinner in a terminal, a plain line elsewhere."""
    if console.is_terminal:
        return console.status(name)
    console.print(name, soft_wrap=True)
    return nullcontext()
