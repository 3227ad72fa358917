"""`heedful eval`: success on held-out tasks, sampled and greedy, with baselines that read no input.

Promise: with a run's own settings it gives the numbers of the run's own evaluation: same tasks, same sampling noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from heedful import envs
from heedful.cli.subjects import LoadedModel, Subject, find_subject, load, shared_fields, with_settings
from heedful.configuration import Choice, CommandLine, Positional, Shown, refuse_below, to_json
from heedful.models.replies import Tags
from heedful.policies.sampling import Sampling
from heedful.protocols import Policy
from heedful.rollout.collectors import COLLECTORS, Collector
from heedful.rollout.context import Context
from heedful.rollout.workers import check_timeout, isolated
from heedful.seedlings.recipe import Seedling
from heedful.types import Conversation, Group, Metric, Reply

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from heedful.policies.hf import HFPolicy


@dataclass(frozen=True, slots=True)
class EvaluateWords:
    """Measure success on held-out tasks, sampled and greedy, with 95% intervals.

    Two baselines are measured, too: a random player, and the best fixed sequence of actions, which reads nothing
    and is searched on training tasks. Samples of one task are never counted as independent.

      heedful eval runs/frozen_lake-grpo-s0-1 --checkpoint best --split test
      heedful eval runs/frozen_lake-grpo-s0-1 --env.slip 0.2
      heedful eval my_game:Maze --seedling.steps 500
      heedful eval Qwen/Qwen2.5-0.5B-Instruct frozen_lake --device auto --tasks 64

    A run brings its own settings, an environment those of its preset. Keep the split `test` for the end.
    """

    subject: Annotated[str, Positional("RUN|ENV|MODEL", example="frozen_lake")]
    """A run's folder or one of its checkpoints; an environment or preset, whose untrained seedling plays; or a causal
    language model with a chat template (a folder or a Hugging Face name), which needs ENV."""
    environment: Annotated[str | None, Positional("ENV")] = None
    """The environment that a MODEL plays; your own is named as module:Class."""
    checkpoint: Annotated[str | None, Shown("WHICH")] = None
    """The checkpoint of a RUN: last (default), best (by the success that the run itself measured), or a step."""
    temperature: Annotated[float | None, Shown("T")] = None
    """Temperature of the sampled episodes, short for --sampling.temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """Settings of an evaluation."""

    split: Literal["val", "test"]
    """The split that the tasks are of."""
    tasks: int
    """Number of held-out tasks."""
    samples: int
    """Sampled episodes per task."""
    at_once: int
    """Most episodes played at once: lower it when memory is short."""
    search_tasks: int
    """Training tasks on which the best fixed sequence is searched; 0 = no search."""
    json: Path | None = None
    """Write the numbers to this file, too."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS)]
    """The environment and its knobs."""
    context: Context
    collect: Annotated[Collector, Choice(COLLECTORS)]
    """How episodes are played at the same time: lock_step, or async for slow environments."""
    env_workers: int
    """Processes in which episodes are played; 0 = in this one."""
    env_timeout: float
    """Seconds for one start or step of an environment in such a process; 0 = no limit."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value."""
    seed: int
    """Seed of the sampling noise; the tasks do not depend on it."""
    threads: int
    """CPU threads."""
    device: Literal["auto", "cpu", "cuda", "mps"]
    dtype: Literal["float32", "bfloat16"]
    """Type of the weights."""

    def __post_init__(self) -> None:
        refuse_below(self, env_workers=0, search_tasks=0, tasks=1, samples=1, at_once=1)
        check_timeout(self.env_timeout)
        _ = self.collect.sampling(self.sampling)  # raises where the collector cannot work with it
        if self.sampling.greedy:
            raise ValueError("sampling.greedy has no use here: both the sampled and the greedy policy are evaluated")


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


def main(argv: list[str]) -> int:
    line = CommandLine(EvaluateWords, argv, "heedful eval")
    words = line.words
    subject = find_subject(words.subject, words.environment, words.checkpoint)
    defaults = _defaults(subject)
    settings = line.settings(type(defaults), defaults, {"sampling.temperature": words.temperature})
    subject = with_settings(subject, settings)

    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"Evaluating {subject.label}", style="bold", soft_wrap=True)
    for note in subject.notes:
        console.print(note, soft_wrap=True)
    with isolated(settings.env, settings.env_workers, settings.env_timeout) as env:
        evaluated = evaluate(load(subject, console), env, settings, console)
    console.print(f"{settings.env.name}, {settings.tasks} tasks of {settings.split}", style="bold")
    console.print(_table(evaluated, settings))
    if evaluated.sequence:
        console.print(f"best fixed sequence: {' || '.join(evaluated.sequence)}", soft_wrap=True)
    if settings.json is not None:
        _write(settings.json, subject, settings, evaluated)
        console.print(f"written to {settings.json}", soft_wrap=True)
    return 0


def _defaults(subject: Subject) -> EvaluateSettings:
    config = subject.config
    evaluation = config.evaluation
    kind = SeedlingSettings if subject.is_seedling else EvaluateSettings
    shared = shared_fields(kind, config) | {"tasks": evaluation.tasks}
    shared["sampling"] = replace(config.sampling, greedy=False)
    for name in ("split", "samples", "at_once", "search_tasks"):
        shared[name] = getattr(evaluation, name)
    return kind(**shared)


def evaluate(loaded: LoadedModel, env: Any, settings: EvaluateSettings, console: Console) -> Evaluated:
    """Play the held-out tasks, sampled and greedily, and the baselines. `env`: that of the settings, isolated."""
    from heedful.diagnostics.behaviour import behaviour
    from heedful.envs.common.tasks import evaluation_tasks
    from heedful.run.evaluation import evaluation_seed, measure_baselines, play_tasks, success_metric

    prefix = f"eval/{settings.split}"
    tasks = evaluation_tasks(env, settings.split, settings.tasks)

    def play(kind: str, samples: int) -> list[Group]:
        # The same derivation as the training loop's: equal settings give equal numbers.
        seed = evaluation_seed(settings.seed, kind, loaded.version)
        sampling = settings.collect.sampling(replace(settings.sampling, greedy=kind == "greedy"))
        with _Progress(console, f"{kind}: {len(tasks)} tasks x {samples}") as tell:

            def policy_of(seed: int) -> Policy:
                return _Told(loaded.policy(sampling, seed), tell, env.turns)

            return play_tasks(
                policy_of,
                seed,
                env,
                tasks,
                samples=samples,
                at_once=settings.at_once,
                context=settings.context,
                collect=settings.collect,
            )

    sampled, greedy = play("sampled", settings.samples), play("greedy", 1)
    with _Progress(console, "random player, and search of the best fixed sequence on training tasks"):
        baselines = measure_baselines(env, settings.split, settings.tasks, settings.search_tasks)
    seen = {metric.name: metric for metric in behaviour(sampled)}
    metrics = [
        success_metric(f"{prefix}/sampled/success", sampled),
        success_metric(f"{prefix}/greedy/success", greedy),
        *baselines.metrics,
        *(
            replace(seen[name], name=f"{prefix}/sampled/{name.partition('/')[2]}")
            for name in ("success/any_of_group", "format/valid_rate", "format/closed_rate", "length/turns")
        ),
    ]
    return Evaluated(tuple(metrics), baselines.sequence)


class _Told:
    """A policy that says, before each answer, how far the episodes are."""

    def __init__(self, policy: HFPolicy, tell: Callable[[str], None], turns: int) -> None:
        self._policy, self._tell, self._turns = policy, tell, turns
        self.keep = policy.keep

    @property
    def parallel(self) -> int:
        return self._policy.parallel

    @property
    def draws_together(self) -> bool:
        return self._policy.draws_together

    @property
    def temperature(self) -> float:
        return self._policy.temperature

    @property
    def version(self) -> int:
        return self._policy.version

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        self._say(conversations)
        return self._policy.respond(conversations)

    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        def told(wait: bool) -> Sequence[Conversation]:
            came = arrivals(wait)
            self._say(came)
            return came

        self._policy.serve(told, hand_over)

    def _say(self, conversations: Sequence[Conversation]) -> None:
        if conversations:
            furthest = 1 + max(conversation.turn for conversation in conversations)
            self._tell(f"turn {furthest} of at most {self._turns}, {len(conversations)} episodes asked")


class _Progress:
    """One stage: a spinner with details in a terminal, a plain line elsewhere."""

    def __init__(self, console: Console, stage: str) -> None:
        self._stage = stage
        self._status = console.status(stage) if console.is_terminal else None
        if self._status is None:
            console.print(stage, soft_wrap=True)

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self._tell

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _tell(self, detail: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._stage}: {detail}")


def _table(evaluated: Evaluated, settings: EvaluateSettings) -> Table:
    from rich.table import Table

    k = settings.samples
    rows = [
        ("sampled/success", f"sampled, temperature {settings.sampling.temperature:g}", "episodes"),
        ("sampled/any_of_group", f"solved in any of {k} samples (pass@{k})", "tasks"),
        ("greedy/success", "greedy", "tasks"),
        ("random/success", "random player", "tasks"),
        ("fixed/success", "best fixed sequence", "tasks"),
        ("sampled/valid_rate", "replies executable as written", "turns"),
        ("sampled/closed_rate", "thoughts closed", "turns"),
        ("sampled/turns", "turns per episode", "episodes"),
    ]
    readings = {metric.name.split("/", 2)[2]: metric for metric in evaluated.metrics}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("n", justify="right")
    for name, label, unit in rows:
        if k == 1 and name == "sampled/any_of_group":
            continue
        table.add_row(label, *_cells(readings[name], unit))
    return table


def _cells(metric: Metric, unit: str) -> tuple[str, str, str]:
    """Value, interval and n; what is missing says why."""
    if not isinstance(metric.value, int | float):
        return "-", metric.why, ""
    interval = metric.why if metric.low is None or metric.high is None else f"[{metric.low:.3f}, {metric.high:.3f}]"
    return f"{metric.value:.3f}", interval, f"{metric.n} {unit}"


def _write(path: Path, subject: Subject, settings: EvaluateSettings, evaluated: Evaluated) -> None:
    from heedful.storage import write_whole

    fields = ("value", "low", "high", "n", "why")
    tree = {
        "subject": subject.label,
        "model": str(subject.weights or subject.config.model),
        "version": subject.version,
        "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        "metrics": {metric.name: {field: getattr(metric, field) for field in fields} for metric in evaluated.metrics},
        "fixed_sequence": evaluated.sequence,
    }
    write_whole(path, json.dumps(tree, indent=1) + "\n")
