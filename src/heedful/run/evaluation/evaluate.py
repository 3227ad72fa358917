"""Success on held-out tasks, sampled and greedy, next to the success of policies that do not read the input.

With a run's own settings, the tasks and the sampling noise equal those of its evaluation, so the numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from heedful import envs
from heedful.boundary import (
    MOST_AT_ONCE,
    MOST_EPISODES,
    Choice,
    cut,
    refuse_above,
    refuse_below,
    to_json,
    trusting,
)
from heedful.console import SafeConsole
from heedful.envs.common.contract import refuse_unless_environment, turns_of
from heedful.models.chat.replies import Tags
from heedful.policies import POLICIES, PolicySource, Sampling
from heedful.policies.source import sampling_of
from heedful.protocols import AnswersSubsets, ContinuousBatching, Environment, Policy
from heedful.rollout import COLLECTORS, Collector, Context, isolated
from heedful.rollout.player import replies_of
from heedful.rollout.workers import check_timeout
from heedful.run.evaluation.subjects import LoadedModel, Subject, find_subject, load, shared_fields, with_settings
from heedful.seedlings.recipe import Seedling
from heedful.types import Conversation, Group, Metric, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """Settings of an evaluation."""

    split: Literal["val", "test"]
    """The split of the tasks."""
    tasks: int
    """Number of held-out tasks."""
    samples: int
    """Sampled episodes per task."""
    at_once: int
    """Most episodes played at once: lower it when memory is short."""
    search_tasks: int
    """Training tasks on which the best fixed sequence is searched. 0 = no search."""
    json: Path | None = None
    """Write the numbers to this file, too."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS)]
    """The environment and its knobs."""
    context: Context
    collect: Annotated[Collector, Choice(COLLECTORS, Collector)]
    """How episodes are played at the same time: lock_step, or async for slow environments."""
    env_workers: int
    """Processes in which episodes are played. 0 = in this one."""
    env_timeout: float
    """Seconds for one start or step of an environment in such a process. 0 = no limit."""
    policy: Annotated[PolicySource, Choice(POLICIES, PolicySource)]
    """The sampler of replies, typed --sampler NAME as well: local = the model in this process, vllm = servers."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value."""
    seed: int
    """Seed of the sampling noise. The tasks do not depend on it."""
    threads: int
    """CPU threads."""
    device: Literal["auto", "cpu", "cuda", "mps"]
    dtype: Literal["float32", "bfloat16"]
    """Type of the weights."""

    def __post_init__(self) -> None:
        refuse_below(self, env_workers=0, search_tasks=0, tasks=1, samples=1, at_once=1)
        refuse_above(self, search_tasks=MOST_EPISODES, tasks=MOST_EPISODES, samples=MOST_EPISODES)
        refuse_above(self, env_workers=MOST_AT_ONCE)
        check_timeout(self.env_timeout)
        refuse_unless_environment(self.env)
        _ = self.asked(self.sampling)  # raises where the sampler or the collector cannot work with it
        if self.sampling.greedy:
            raise ValueError("sampling.greedy has no use here: both the sampled and the greedy policy are evaluated")

    def asked(self, sampling: Sampling) -> Sampling:
        """The sampling settings of the policy for the collector. Raises ValueError where one of them cannot work."""
        return self.collect.sampling(sampling_of(self.policy, sampling))


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
        found = find_subject(str(subject), environment, _named(checkpoint))
        settings = settings_of(found)
        given: dict[str, Any] = {"split": split, "tasks": tasks, "samples": samples}
        if temperature is not None:
            given["sampling"] = replace(settings.sampling, temperature=temperature)
        settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
        to_json(settings)  # raises for values that a setting cannot hold, such as half a task
        return evaluate_subject(with_settings(found, settings), settings, SafeConsole(quiet=not show))


def _named(checkpoint: object) -> str | None:
    """The checkpoint as the command line names it. Raises ValueError for what is neither a name nor a step."""
    if checkpoint is None or isinstance(checkpoint, str):
        return checkpoint
    if isinstance(checkpoint, bool) or not isinstance(checkpoint, Integral):
        raise ValueError(f'Expected "last", "best" or a step as checkpoint, found {cut(repr(checkpoint))}.')
    return str(int(checkpoint))


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
    """Load the subject and measure it. A seedling that is not in the cache is grown first."""
    from heedful.run.evaluation.held_out import refuse_numbers

    refuse_numbers(settings.json)
    with (
        isolated(settings.env, settings.env_workers, settings.env_timeout) as env,
        load(subject, console) as loaded,
    ):
        return _measure(loaded, env, settings, console)


def _measure(loaded: LoadedModel, env: Environment, settings: EvaluateSettings, console: Console) -> Evaluated:
    """Play the held-out tasks, sampled and greedily, and the baselines. `env`: the settings' environment, isolated."""
    from heedful.envs.common.tasks import evaluation_tasks
    from heedful.run.evaluation.held_out import (
        broken_sentence,
        evaluation_metrics,
        evaluation_seed,
        measure_baselines,
        play_tasks,
    )

    prefix = f"eval/{settings.split}"
    tasks = evaluation_tasks(env, settings.split, settings.tasks)

    def play(kind: str, samples: int) -> list[Group]:
        # The same derivation as the training loop's: equal settings give equal numbers.
        seed = evaluation_seed(settings.seed, kind, loaded.version)
        sampling = settings.asked(replace(settings.sampling, greedy=kind == "greedy"))
        with _Progress(console, f"{kind}: {len(tasks)} tasks x {samples}") as tell:

            def policy_of(seed: int) -> Policy:
                return _told(loaded.policy(sampling, seed), tell, turns_of(env))

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
    metrics = tuple(evaluation_metrics(prefix, sampled, greedy, baselines))
    broken = (broken_sentence(sampled, "sampled"), broken_sentence(greedy, "greedy"))
    return Evaluated(metrics, baselines.sequence, tuple(filter(None, broken)))


def _told(policy: Policy, tell: Callable[[str], None], turns: int) -> Policy:
    """The policy with progress reports. It still offers a collector the same optional methods."""
    if isinstance(policy, ContinuousBatching) and isinstance(policy, AnswersSubsets):
        return _ToldContinuous(policy, tell, turns)
    return _ToldSubsets(policy, tell, turns) if isinstance(policy, AnswersSubsets) else _Told(policy, tell, turns)


class _Told:
    """A policy that reports, before each answer, how far the episodes are."""

    def __init__(self, policy: Any, tell: Callable[[str], None], turns: int) -> None:
        self._policy, self._tell, self._turns = policy, tell, turns
        self.temperature: float = policy.temperature
        self.version: int = policy.version

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        self._say(conversations)
        return replies_of(self._policy, conversations)

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
