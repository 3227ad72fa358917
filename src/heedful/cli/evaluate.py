"""`heedful eval`: success on held-out tasks, sampled and greedy, beside what can be had without reading the input.

Promise: at a run's own settings it plays the same tasks with the same sampling noise as the run's own evaluation, so
the numbers agree; every number carries its n and, where there is one, its interval.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from heedful import envs
from heedful.cli.subjects import LoadedModel, Subject, find_subject, load, shared_fields, with_settings
from heedful.cli.words import asks_for_help, take, take_positional
from heedful.configuration import Choice, parse, to_json
from heedful.models.replies import Tags
from heedful.policies import POLICIES, PolicySource, Sampling
from heedful.protocols import AnswersSubsets, ContinuousBatching, Policy
from heedful.rollout import COLLECTORS, Collector, Context
from heedful.rollout.workers import check_timeout, isolated
from heedful.types import Conversation, Group, Metric, Reply

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


HELP = """usage: heedful eval RUN [--checkpoint last|best|STEP] [settings]
       heedful eval ENV [settings]
       heedful eval MODEL ENV [settings]

Success on held-out tasks, sampled and greedy, with 95% intervals, beside a random player and the best fixed sequence
of actions (found on training tasks; it reads nothing). Samples of one task are never counted as independent.

  RUN     a run's folder, or one of its checkpoints: plays as the run's configuration says
  ENV     an environment's preset, or your own as module:Class: plays its untrained seedling (grown if need be)
  MODEL   a folder or Hugging Face name of a causal language model with a chat template; needs ENV

  --checkpoint WHICH   of a RUN: last (default), best (by the success that the run itself measured), or a step
  --split val|test     whose tasks (default: the run's, else val); test is for the end
  --tasks N            how many tasks (default: the run's, else 256)
  --samples K          sampled episodes per task (default: the run's, else 4); greedy: one
  --temperature T      of the sampled episodes (short for --sampling.temperature)
  --json FILE          write the numbers to a file, too

  heedful eval runs/frozen_lake-grpo-s0-1 --checkpoint best --split test
  heedful eval runs/frozen_lake-grpo-s0-1 --env.slip 0.2      a run in a changed environment
  heedful eval Qwen/Qwen2.5-0.5B-Instruct frozen_lake --device auto --tasks 64

With a subject, `heedful eval SUBJECT --help` lists the remaining settings (environment, sampling, tags, device)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """What can be set on the command line of `heedful eval`."""

    split: Literal["val", "test"]
    """Whose tasks."""
    tasks: int
    """Held-out tasks."""
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
    """Who waits for whom while episodes are played: lock_step, or async for environments that are slow."""
    env_workers: int
    """Processes in which episodes are played; 0 = in this one."""
    env_timeout: float
    """Seconds for one start or step of an environment in such a process; 0 = no limit."""
    policy: Annotated[PolicySource, Choice(POLICIES)]
    """The sampler of replies: local = the model in this process."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value."""
    seed: int
    """Of the sampling noise; the tasks do not depend on it."""
    threads: int
    """CPU threads."""
    device: Literal["auto", "cpu", "cuda", "mps"]
    dtype: Literal["float32", "bfloat16"]
    """Of the weights."""

    def __post_init__(self) -> None:
        for name in ("env_workers", "search_tasks"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, found {getattr(self, name)}")
        check_timeout(self.env_timeout)
        _ = self.asked(self.sampling)  # raises where the sampler or the collector cannot work with it
        for name in ("tasks", "samples", "at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.sampling.greedy:
            raise ValueError("sampling.greedy has no use here: both the sampled and the greedy policy are evaluated")

    def asked(self, sampling: Sampling) -> Sampling:
        """How the policy samples for the collector. Raises ValueError where one of them cannot."""
        return self.collect.sampling(self.policy.sampling(sampling))


_POLICY_SETTINGS = (
    "env",
    "context",
    "collect",
    "policy",
    "sampling",
    "tags",
    "template_options",
    "seed",
    "threads",
    "device",
    "dtype",
)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What was measured."""

    metrics: tuple[Metric, ...]
    """`eval/<split>/<sampled|greedy|random|fixed>/success`, and more of the sampled episodes."""
    sequence: tuple[str, ...]
    """The best input-blind sequence of actions."""


def main(argv: list[str]) -> int:
    checkpoint, temperature = take(argv, "checkpoint"), take(argv, "temperature")
    name, environment = take_positional(argv), take_positional(argv)
    if asks_for_help(argv):
        print(HELP)
        if name is None:
            return 0
    if name is None:
        raise ValueError("Expected a run, an environment, or a model and an environment after `heedful eval`.")
    if temperature is not None:
        argv += ["--sampling.temperature", temperature]
    subject = find_subject(name, environment, checkpoint)
    settings = parse(EvaluateSettings, _defaults(subject), argv, f"heedful eval {name}", "The settings in full:")
    subject = with_settings(subject, settings, _POLICY_SETTINGS)

    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"Evaluating {subject.label}", style="bold", soft_wrap=True)
    for note in subject.notes:
        console.print(note, soft_wrap=True)
    with (
        isolated(settings.env, settings.env_workers, settings.env_timeout) as env,
        load(subject, console) as loaded,
    ):
        evaluated = evaluate(loaded, env, settings, console)
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
    shared = shared_fields(EvaluateSettings, config) | {"tasks": evaluation.tasks}
    shared["sampling"] = replace(config.sampling, greedy=False)
    for name in ("split", "samples", "at_once", "search_tasks"):
        shared[name] = getattr(evaluation, name)
    return EvaluateSettings(**shared)


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
        sampling = settings.asked(replace(settings.sampling, greedy=kind == "greedy"))
        with _Progress(console, f"{kind}: {len(tasks)} tasks x {samples}") as tell:

            def policy_of(seed: int) -> Policy:
                return _told(loaded.policy(sampling, seed), tell, env.turns)

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


def _told(policy: Policy, tell: Callable[[str], None], turns: int) -> Policy:
    """The policy, with its progress told; it still offers a collector what it offered before."""
    if isinstance(policy, ContinuousBatching) and isinstance(policy, AnswersSubsets):
        return _ToldContinuous(policy, tell, turns)
    return _ToldSubsets(policy, tell, turns) if isinstance(policy, AnswersSubsets) else _Told(policy, tell, turns)


class _Told:
    """A policy that says, before each answer, how far the episodes are."""

    def __init__(self, policy: Any, tell: Callable[[str], None], turns: int) -> None:
        self._policy, self._tell, self._turns = policy, tell, turns
        self.temperature: float = policy.temperature
        self.version: int = policy.version

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        self._say(conversations)
        replies: list[Reply] = self._policy.respond(conversations)
        return replies

    def _say(self, conversations: Sequence[Conversation]) -> None:
        if conversations:
            furthest = 1 + max(conversation.turn for conversation in conversations)
            self._tell(f"turn {furthest} of at most {self._turns}, {len(conversations)} episodes asked")


class _ToldSubsets(_Told):
    """The same for a policy that answers subsets."""

    def __init__(self, policy: Any, tell: Callable[[str], None], turns: int) -> None:
        super().__init__(policy, tell, turns)
        self.parallel: int = policy.parallel
        self.draws_together: bool = policy.draws_together
        self.keep: Callable[[Collection[str]], None] = policy.keep


class _ToldContinuous(_ToldSubsets):
    """The same for a policy with continuous batching."""

    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        def told(wait: bool) -> Sequence[Conversation]:
            came = arrivals(wait)
            self._say(came)
            return came

        self._policy.serve(told, hand_over)


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
