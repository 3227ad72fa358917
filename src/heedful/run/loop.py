"""The training loop: tasks, groups, verdicts, samples, update - and every diagnostic before the update.

A killed run resumes with the same bytes. Only `time/*` depends on wall time.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from heedful.algorithms.loss_scale import loss_scale_factor
from heedful.boundary import to_json
from heedful.diagnostics.alarms import Alarm
from heedful.diagnostics.alarms.watch import StepAlarms
from heedful.diagnostics.gradient.metrics import gradient_metrics
from heedful.diagnostics.luck import luck_metrics
from heedful.diagnostics.names import CPU
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import evaluation_tasks
from heedful.guarded import OwnPartFailed, of_own_part
from heedful.measuring.diagnostician import Diagnosis
from heedful.policies import OpenPolicySource, Sampling, Weights
from heedful.policies.servers import ServerRefused, ServerUnreachable
from heedful.policies.source import handed_over, opened, policy_of
from heedful.policies.vllm import WrongWeights
from heedful.protocols import Environment, Policy, SaysNoise, Tracker, UsesCritic
from heedful.rollout import Collection, Request, collect_until_enough, isolated, shape_overlong
from heedful.rollout.replays import replayed_values
from heedful.run import checkpoint
from heedful.run.config import TrainConfig
from heedful.run.evaluation.held_out import Baselines, evaluation_seed, measure_baselines, play_tasks, success_metric
from heedful.run.forecast.estimate import sentence_after
from heedful.run.forecast.probe import estimate
from heedful.run.parts import Parts
from heedful.run.terminal import NullView
from heedful.seeds import derive, stream
from heedful.stopping import finish_the_step_first
from heedful.storage import RunFolder, write_rollouts, write_whole
from heedful.training.critic import value_metrics
from heedful.training.ranks.world import World
from heedful.training.samples import advantage_without_outcome, credit, merge_rows
from heedful.types import Group, Metric, Task, TrainingSample, Trajectory, Verdict

FOREIGN_ERRORS = (ServerUnreachable, ServerRefused, WrongWeights, OwnPartFailed)
"""A server that samples is away for good, refuses, or holds other weights. Or a class of the user fails."""


class Watcher(Tracker, Protocol):
    """Shows a run to a person while it runs."""

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
    signal: int = 0
    """The signal that interrupted it. SIGINT also where `stop()` did, 0 where nothing did."""


@dataclass(slots=True)
class Clock:
    """Seconds of each stage of one step, and CPU seconds of what training cannot do without."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        if name in ("collect", "update"):
            self.cpu += time.process_time() - cpu

    def metrics(self) -> list[Metric]:
        return [*(Metric(f"time/{name}", seconds) for name, seconds in self.seconds.items()), Metric(CPU, self.cpu)]


def train_steps(
    config: TrainConfig,
    parts: Parts,
    folder: RunFolder,
    trackers: Sequence[Tracker],
    watch: Watcher,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train from `parts.version` to `config.steps`. Evaluate, measure, store and checkpoint on the way.

    The first Ctrl-C, SIGTERM, SIGUSR1 or SIGHUP, or a true `stop()`, finishes the step, saves a checkpoint and returns.
    A second signal raises KeyboardInterrupt.

    An alarm is reported once, when it is raised. With `on_collapse` stop a collapse ends the run like a Ctrl-C. A
    resumed run keeps the alarms that were raised before. Only a newly raised one reports and stops again.

    Each rank plays its share of the tasks and learns from its share of the samples. Rank 0 alone measures, stores,
    writes and saves, and needs `trackers` and something to `watch`.
    """
    with (
        isolated(parts.env, config.env_workers, config.env_timeout) as env,
        opened(config.policy, rank=parts.learner.world.rank, note=watch.note) as source,
    ):
        return _train(_Run(config, parts, folder, [*trackers, watch], env, source), watch, stop)


def _train(run: _Run, watch: Watcher, stop: Callable[[], bool]) -> Outcome:
    config, parts, first = run.config, run.parts, run.parts.version
    baselines = run.baselines()
    run.tell_estimate(watch)
    with finish_the_step_first() as interrupt:
        for step in range(parts.version, config.steps):
            clock = Clock()
            with run.saving_what_was_learned(step):
                metrics = run.hand_over_weights(step, clock)
                metrics += run.evaluate(step, clock, baselines)
                with clock.stage("collect"):
                    collection = run.collect(step)
                verdicts = parts.selection.choose(step, collection, stream(config.seed, "filter", step))
            groups = collection.groups
            metrics += [*collection.metrics(), *parts.selection.metrics(verdicts)]
            if step == 0:
                watch.first_rollout(groups[0].trajectories[0])
                if told := _about(config.filter.on, groups):
                    watch.note(told)
            with clock.stage("diagnose"):  # before the update: the scorer must be the policy that sampled
                diagnosis = run.diagnose(step, groups, verdicts)
            metrics += run.measure_gradients(step, groups, clock)
            with clock.stage("update"):
                updated = run.update(groups, verdicts)
            late = run.watch_update(step, updated)
            metrics += [*updated, *late.metrics]
            with clock.stage("store"):
                run.store(step, groups, verdicts, diagnosis)
            run.write(step, [*metrics, *diagnosis.metrics], clock, groups)
            if step == first and step + 1 < config.steps:
                watch.note(sentence_after(config, step, clock.seconds))
            asked = interrupt.signal or (signal.SIGINT if stop() else 0)
            asked, stopped_by = run.agree(asked, run.warn([*diagnosis.raised, *late.raised], watch))
            if run.due(step + 1) or asked or stopped_by:
                run.save(step + 1)
            if asked or stopped_by:
                return Outcome(step + 1, asked != 0, stopped_by, asked)
    clock = Clock()
    metrics = run.hand_over_weights(config.steps, clock) if config.steps in run.evaluations else []
    metrics += run.evaluate(config.steps, clock, baselines)
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
    env: Environment
    """The environment of the parts, with its episodes in worker processes if the configuration says so."""
    source: OpenPolicySource

    @property
    def world(self) -> World:
        return self.parts.learner.world

    @property
    def evaluations(self) -> frozenset[int]:
        return self.config.evaluation.at(self.config.steps)

    def baselines(self) -> Baselines | None:
        """The baselines of every evaluation, or `None` where there is no evaluation."""
        evaluation = self.config.evaluation
        if not self.evaluations:
            return None
        if not self.world.is_rank_0:
            return self.world.broadcast(None)
        asked = evaluation.split, evaluation.tasks, evaluation.search_tasks
        return self.world.broadcast(measure_baselines(self.env, *asked))

    def tell_estimate(self, watch: Watcher) -> None:
        """Tell what a step will cost, unless nobody is told or no step is left."""
        if self.world.is_rank_0 and self.parts.version < self.config.steps and not isinstance(watch, NullView):
            watch.note(estimate(self.config, self.parts, self.env))

    def hand_over_weights(self, version: int, clock: Clock) -> list[Metric]:
        """Hand the weights after `version` steps to the source of policies, on every rank."""
        with clock.stage("collect"):
            metrics = handed_over(self.source, Weights(self.parts.model, version, self.parts.saveable))
            self.world.gather(None)  # no rank samples before all have handed over
        return metrics

    @contextmanager
    def saving_what_was_learned(self, step: int) -> Iterator[None]:
        """If the servers that sample or the filter fail, save the steps so far before the error ends the run."""
        cursor = self.parts.tasks.cursor
        try:
            yield
        except FOREIGN_ERRORS:
            # The other ranks cannot be asked for their shards, since they wait elsewhere.
            if step > self.parts.version and self.world.size == 1:
                self.parts.tasks.cursor = cursor
                self.save(step)
            raise

    def policy(self, sampling: Sampling, seed: int) -> Policy:
        sampling = self.config.asked(sampling)
        # Each rank draws the noise of its own batches. Rank 0 draws the noise of a run with one process. Noise of a
        # conversation depends on its key, and no two ranks play the same key.
        shared = self.world.is_rank_0 or sampling.noise == "conversation"
        own = seed if shared else derive(seed, "process", self.world.rank)
        return policy_of(self.source, self.parts.renderer, sampling, own)

    def collect(self, step: int) -> Collection:
        """The groups of a step: one draw of tasks, or several under dynamic sampling."""
        config, pool = self.config, self.parts.tasks.pool
        seen: set[str] = set()

        def draw(number: int, count: int) -> list[Group]:
            tasks = self.parts.tasks.next(count, beside=seen)
            seen.update(task.id for task in tasks)
            return self.play(step, number, tasks)

        draws = config.algorithm.sampling_batches
        return collect_until_enough(draw, config.groups, draws, config.filter.on, len(pool) if pool else None)

    def play(self, step: int, draw: int, tasks: Sequence[Task]) -> list[Group]:
        """The episodes of one draw, with shaped rewards."""
        config, env, algorithm = self.config, self.env, self.config.algorithm
        seed = derive(config.seed, "rollout", step, *([draw] if draw else []))
        policy, mine = self.policy(config.sampling, seed), self.world.scatter(tasks)
        request = Request(env.episode, mine, config.group_size, turns_of(env), config.context)
        collect = partial(config.collect, policy, request)
        with self.parts.learner.whole():
            groups = self.world.merge(of_own_part(config.collect, "the collector", f"step {step}", collect))
        if not algorithm.overlong_buffer:
            return groups
        limit = config.sampling.tokens_per_turn
        return shape_overlong(groups, limit, algorithm.overlong_buffer, algorithm.overlong_penalty)

    def update(self, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> list[Metric]:
        config = self.config
        samples, metrics = self.credit(groups, verdicts)
        kept = sum(verdict.kept for verdict in verdicts)
        scale = loss_scale_factor(config.loss_scale, kept, len(verdicts), config.filter.share)
        budget = turns_of(self.env) * config.sampling.tokens_per_turn
        metrics.append(advantage_without_outcome(samples, groups))
        return metrics + self.parts.learner.update(samples, scale=scale, token_budget=budget)

    def credit(self, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> tuple[list[TrainingSample], list[Metric]]:
        """The samples of the kept groups. With a critic also its values for them and how well they predicted."""
        estimator, critic = self.config.algorithm.advantage, self.parts.learner.critic
        rows = merge_rows(groups, verdicts)
        credited = partial(of_own_part, estimator, "the advantage estimator", "the update")
        if critic is None or not rows or not isinstance(estimator, UsesCritic):
            return credited(lambda: credit(rows, groups, estimator)), []
        values = critic.values(rows)
        samples = credited(lambda: credit(rows, groups, estimator, values))
        return samples, value_metrics(rows, groups, values, estimator)

    def evaluate(self, version: int, clock: Clock, baselines: Baselines | None) -> list[Metric]:
        """Success on held-out tasks after `version` steps, if it is due."""
        if version not in self.evaluations or baselines is None:
            return []
        evaluation, env = self.config.evaluation, self.env
        tasks = evaluation_tasks(env, evaluation.split, evaluation.tasks)
        metrics = list(baselines.metrics)
        with clock.stage("evaluate"):
            for kind, samples in (("sampled", evaluation.samples), ("greedy", 1)):
                sampling = replace(self.config.sampling, greedy=kind == "greedy")
                with self.parts.learner.whole():
                    mine = play_tasks(
                        partial(self.policy, sampling),
                        evaluation_seed(self.config.seed, kind, version),
                        env,
                        self.world.scatter(tasks),
                        samples=samples,
                        at_once=evaluation.at_once,
                        context=self.config.context,
                        collect=self.config.collect,
                    )
                groups = self.world.merge(mine)
                if self.config.keep_rollouts != "none" and self.world.is_rank_0:
                    path = self.folder.rollouts(version, f"{evaluation.split}_{kind}")
                    write_rollouts(path, version, evaluation.split, groups, None, env.name)
                success = success_metric(f"eval/{evaluation.split}/{kind}/success", groups)
                metrics.append(success)
                if kind == "sampled" and isinstance(success.value, float):
                    self.parts.scores[version] = success.value
        return metrics

    def diagnose(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> Diagnosis:
        """The diagnosis of rank 0. The other ranks measure nothing."""
        config = self.config
        with self.parts.learner.whole():
            if not self.world.is_rank_0:
                return Diagnosis([])
            found = self.parts.diagnostician.measure(step, groups, verdicts, config.filter.on, read=config.groups)
        luck = self._luck(step, groups[: config.groups], verdicts[: config.groups])
        return replace(found, metrics=[*found.metrics, *luck])

    def _luck(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> list[Metric]:
        """The share of the variance of rewards that is luck, with a full measurement in a noisy environment."""
        asked, noisy = self.config.diagnostics, isinstance(self.env, SaysNoise) and self.env.noisy
        if not (noisy and asked.enabled and asked.replays and step % asked.full_every == 0):
            return []
        values = replayed_values(self.env, groups, self.config.filter.on, asked.replays)
        return luck_metrics(values, [verdict.kept for verdict in verdicts])

    def measure_gradients(self, step: int, groups: Sequence[Group], clock: Clock) -> list[Metric]:
        """Signal and noise of the gradient of this step's groups, dropped ones included, if it is due."""
        config, gradient_meter = self.config, self.parts.gradient_meter
        if gradient_meter is None or step % config.gradients.every or not self.world.is_rank_0:
            return []
        coefficients = {"kl": config.algorithm.kl, "entropy": self.parts.learner.entropy_coefficient}
        with clock.stage("gradients"):
            # Only the first draw of dynamic sampling is measured: the number of further draws depends on its rewards.
            measured = gradient_meter.measure(groups[: config.groups])
            return gradient_metrics(measured.noise, config.gradients.buckets, coefficients)

    def store(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], diagnosis: Diagnosis) -> None:
        if not self.world.is_rank_0:
            return
        self.folder.refuse_moved("--resume")
        if self.config.keep_rollouts == "all":
            write_rollouts(self.folder.rollouts(step), step, "train", groups, verdicts, self.env.name)
        diagnosis.store_scores(self.folder.scores(step))

    def write(self, step: int, metrics: Sequence[Metric], clock: Clock, groups: Sequence[Group]) -> None:
        sampled = sum(len(turn.reply.ids) for group in groups for t in group.trajectories for turn in t.turns)
        tokens = [Metric("tokens/collect", sampled)] if groups else []
        for tracker in self.trackers:
            tracker.write(step, [*metrics, *tokens, *clock.metrics()])

    def watch_update(self, step: int, updated: Sequence[Metric]) -> StepAlarms:
        """The alarms on the metrics of the update, on rank 0."""
        if not self.world.is_rank_0:
            return StepAlarms(step, (), ())
        return self.parts.diagnostician.watch_update(step, updated)

    def warn(self, raised: Sequence[Alarm], watch: Watcher) -> tuple[str, ...]:
        """Report the alarms that were raised in this step, and return the names of those that end the run."""
        for alarm in raised:
            watch.note(alarm.sentence())
        stops = self.config.on_collapse == "stop"
        return tuple(alarm.name for alarm in raised if alarm.collapse and stops)

    def agree(self, asked: int, stopped_by: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """The signal that interrupted any rank, and the alarms that stop rank 0. The same answer on every rank."""
        answers = self.world.gather((int(asked), stopped_by))
        return next((answer[0] for answer in answers if answer[0]), 0), answers[0][1]

    def due(self, version: int) -> bool:
        """Whether a checkpoint is due: at regular steps, wherever the run is evaluated, and at its end."""
        at_the_end = version == self.config.steps
        return at_the_end or version in self.evaluations or version % self.config.checkpoint_every == 0

    def save(self, version: int) -> None:
        parts, folder = self.parts, self.folder.path / "checkpoints"
        model, learner_state = parts.saveable(), parts.learner.state_dict()  # on all ranks: shards are gathered
        if not self.world.is_rank_0:
            return
        self.folder.refuse_moved("--resume")
        if parts.selection.memory is not None:
            write_whole(self.folder.tasks, json.dumps(parts.selection.memory.table(), indent=1) + "\n")
        state = {**parts.state(), "config": to_json(self.config)}
        checkpoint.save(folder, version, model, parts.tokenizer, learner_state, state)
        if self.config.keep_checkpoints == "last":
            checkpoint.prune(folder, keep_last=2, best=parts.best)


def _about(on: str, groups: Sequence[Group]) -> str:
    """What to know about a filter that looks at `on`. Empty if nothing."""
    turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
    names = sorted({name for turn in turns for name in turn.rewards})
    if on == "reward" and len(names) > 1:
        return (
            f"The filter looks at the whole reward, of which {', '.join(names)} are parts: groups that differ in one "
            "of them alone count as if they told of the task; --filter.on outcome ignores it."
        )
    if on in ("reward", "outcome", *names):
        return ""
    return f"No episode of this step has the part of the reward {on!r} (--filter.on); parts: {', '.join(names)}."
