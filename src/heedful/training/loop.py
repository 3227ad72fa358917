"""The training loop: tasks, groups, verdicts, samples, update - and every diagnostic before the update.

Promise: a killed run resumes with the same bytes; nothing in the run depends on wall time but `time/*`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Protocol

from heedful.algorithms.loss_scale import loss_scale_factor
from heedful.diagnostician import Diagnosis
from heedful.envs.tasks import evaluation_tasks
from heedful.evaluation import Baselines, evaluation_seed, measure_baselines, play_tasks, success_metric
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.protocols import Tracker
from heedful.rollout.collect import collect
from heedful.seeds import derive, stream
from heedful.spread import values_on
from heedful.storage import RunFolder, write_rollouts, write_scores
from heedful.training import checkpoint
from heedful.training.config import TrainConfig
from heedful.training.parts import Parts
from heedful.training.samples import make_samples
from heedful.types import Group, Metric, Trajectory, Verdict


class Watcher(Tracker, Protocol):
    """Shows a run to a person while it goes on."""

    def first_rollout(self, trajectory: Trajectory) -> None:
        """The first trajectory of the run, to be shown once."""
        ...

    def note(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the loop ended."""

    version: int
    """Training steps done."""
    interrupted: bool
    stopped_by: tuple[str, ...] = ()
    """The alarms that ended the run, if any did."""


@dataclass(slots=True)
class Clock:
    """Seconds and tokens of each stage of one step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def metrics(self) -> list[Metric]:
        return [Metric(f"time/{name}", seconds) for name, seconds in self.seconds.items()]


def train(config: TrainConfig, parts: Parts, folder: RunFolder, trackers: Sequence[Tracker], watch: Watcher) -> Outcome:
    """Train from `parts.version` to `config.steps`; evaluate, measure, store and checkpoint on the way.

    The first Ctrl-C finishes the step, saves a checkpoint and returns; the second one raises KeyboardInterrupt. An
    alarm is told once, when it is raised; with `on_collapse` stop a collapse ends the run like a Ctrl-C. A resumed run
    goes on under the alarms that were raised before: only one that is raised anew tells and stops again.
    """
    run = _Run(config, parts, folder, [*trackers, watch])
    baselines = run.baselines()
    with _finish_the_step_first() as interrupt:
        for step in range(parts.version, config.steps):
            clock = Clock()
            metrics = run.evaluate(step, clock, baselines)
            with clock.stage("collect"):
                groups = run.collect(step)
            verdicts = config.filter(values_on(groups, config.filter.on), stream(config.seed, "filter", step))
            if step == 0:
                watch.first_rollout(groups[0].trajectories[0])
                if shaped := _shaping(groups) if config.filter.on == "reward" else ():
                    watch.note(
                        f"The filter looks at the whole reward, of which {', '.join(shaped)} are parts: groups that "
                        "differ in one of them alone count as if they told of the task; --filter.on outcome ignores it."
                    )
            with clock.stage("diagnose"):  # before the update: the scorer must be the policy that sampled
                diagnosis = parts.diagnostician.measure(step, groups, verdicts, config.filter.on)
            with clock.stage("update"):
                metrics += run.update(groups, verdicts)
            with clock.stage("store"):
                run.store(step, groups, verdicts, diagnosis)
            run.write(step, [*metrics, *diagnosis.metrics], clock, groups)
            stopped_by = run.warn(diagnosis, watch)
            if run.due(step + 1) or interrupt.asked or stopped_by:
                run.save(step + 1)
            if interrupt.asked or stopped_by:
                return Outcome(step + 1, interrupt.asked, stopped_by)
    clock = Clock()
    metrics = run.evaluate(config.steps, clock, baselines)
    if metrics:
        run.write(config.steps, metrics, clock, ())
        run.save(config.steps)
    return Outcome(config.steps, interrupted=False)


@dataclass(slots=True)
class _Run:
    """The stages of one step, bound to one run."""

    config: TrainConfig
    parts: Parts
    folder: RunFolder
    trackers: Sequence[Tracker]

    @property
    def evaluations(self) -> frozenset[int]:
        return self.config.evaluation.at(self.config.steps)

    def baselines(self) -> Baselines | None:
        """What every evaluation stands beside; `None` where there is no evaluation."""
        evaluation = self.config.evaluation
        return measure_baselines(self.parts.family, evaluation.split, evaluation.tasks) if self.evaluations else None

    def policy(self, sampling: Sampling, step: int, seed: int) -> HFPolicy:
        return HFPolicy(self.parts.model, self.parts.renderer, sampling, seed=seed, version=step)

    def collect(self, step: int) -> list[Group]:
        config, family = self.config, self.parts.family
        policy = self.policy(config.sampling, step, derive(config.seed, "rollout", step))
        return collect(policy, family.make, self.parts.tasks.next(config.groups), config.group_size, family.turns)

    def update(self, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> list[Metric]:
        config = self.config
        samples = make_samples(groups, verdicts, config.algorithm.advantages)
        kept = sum(verdict.kept for verdict in verdicts)
        scale = loss_scale_factor(config.loss_scale, kept, len(verdicts), getattr(config.filter, "share", None))
        budget = self.parts.family.turns * config.sampling.tokens_per_turn
        return self.parts.learner.update(samples, scale=scale, token_budget=budget)

    def evaluate(self, version: int, clock: Clock, baselines: Baselines | None) -> list[Metric]:
        """Success on held-out tasks after `version` steps, if it is due."""
        if version not in self.evaluations or baselines is None:
            return []
        evaluation, family = self.config.evaluation, self.parts.family
        tasks = evaluation_tasks(family, evaluation.split, evaluation.tasks)
        metrics = list(baselines.metrics)
        with clock.stage("evaluate"):
            for kind, samples in (("sampled", evaluation.samples), ("greedy", 1)):
                sampling = Sampling(
                    self.config.sampling.temperature, kind == "greedy", self.config.sampling.tokens_per_turn
                )
                groups = play_tasks(
                    partial(self.policy, sampling, version),
                    evaluation_seed(self.config.seed, kind, version),
                    family,
                    tasks,
                    samples=samples,
                    at_once=evaluation.at_once,
                )
                if self.config.keep_rollouts != "none":
                    path = self.folder.rollouts(version, f"{evaluation.split}_{kind}")
                    write_rollouts(path, version, evaluation.split, groups, None, family.name)
                success = success_metric(f"eval/{evaluation.split}/{kind}/success", groups)
                metrics.append(success)
                if kind == "sampled" and isinstance(success.value, float):
                    self.parts.scores[version] = success.value
        return metrics

    def store(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], diagnosis: Diagnosis) -> None:
        if self.config.keep_rollouts == "all":
            write_rollouts(self.folder.rollouts(step), step, "train", groups, verdicts, self.parts.family.name)
        if diagnosis.scores is not None and diagnosis.thoughts is not None:
            thoughts = diagnosis.thoughts
            texts = thoughts.thought_texts_M, thoughts.prompt_texts_N
            write_scores(self.folder.scores(step), diagnosis.scores, *texts, diagnosis.words)

    def write(self, step: int, metrics: Sequence[Metric], clock: Clock, groups: Sequence[Group]) -> None:
        sampled = sum(len(turn.reply.ids) for group in groups for t in group.trajectories for turn in t.turns)
        tokens = [Metric("tokens/collect", sampled)] if groups else []
        for tracker in self.trackers:
            tracker.write(step, [*metrics, *tokens, *clock.metrics()])

    def warn(self, diagnosis: Diagnosis, watch: Watcher) -> tuple[str, ...]:
        """Tell the alarms that were raised in this step; the names of those that end the run."""
        for alarm in diagnosis.raised:
            watch.note(alarm.sentence())
        stops = self.config.on_collapse == "stop"
        return tuple(alarm.name for alarm in diagnosis.raised if alarm.collapse and stops)

    def due(self, version: int) -> bool:
        """Whether a checkpoint is due: every so often, wherever the run is evaluated, and at its end."""
        at_the_end = version == self.config.steps
        return at_the_end or version in self.evaluations or version % self.config.checkpoint_every == 0

    def save(self, version: int) -> None:
        parts, folder = self.parts, self.folder.path / "checkpoints"
        checkpoint.save(folder, version, parts.model, parts.tokenizer, parts.learner.state_dict(), parts.state())
        checkpoint.prune(folder, keep_last=2, best=parts.best)


def _shaping(groups: Sequence[Group]) -> tuple[str, ...]:
    """The reward's components, if there are several."""
    turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
    names = sorted({name for turn in turns for name in turn.rewards})
    return tuple(names) if len(names) > 1 else ()


@dataclass(slots=True)
class _Interrupt:
    asked: bool = False


@contextmanager
def _finish_the_step_first() -> Iterator[_Interrupt]:
    """Ctrl-C asks the loop to stop after the step; a second Ctrl-C interrupts at once.

    Only a program's main thread may listen for signals; elsewhere nothing is changed.
    """
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    earlier = signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, earlier)
