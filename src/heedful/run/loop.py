"""The training loop: tasks, groups, verdicts, samples, update - and every diagnostic before the update.

A killed run resumes with the same bytes. Only `time/*` depends on wall time.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from heedful.boundary import to_json
from heedful.diagnostics.alarms.watch import Alarm, StepAlarms, before_change
from heedful.diagnostics.attribution import Attribution
from heedful.diagnostics.gradient.metrics import gradient_metrics
from heedful.diagnostics.luck import luck_metrics
from heedful.diagnostics.names import CPU
from heedful.envs.common.contract import rightness_of, turns_of, worth_of
from heedful.envs.common.tasks import evaluation_tasks
from heedful.measuring.diagnostician import Diagnosis
from heedful.measuring.early import early_answers
from heedful.measuring.evaluated import evaluated_metrics, evaluated_tokens
from heedful.measuring.swapped import TokenScorer
from heedful.policies import OpenPolicySource, Sampling, Weights
from heedful.policies.servers import ServerRefused, ServerUnreachable
from heedful.policies.vllm import WrongWeights
from heedful.protocols import Environment, Policy, Tracker
from heedful.report.attribution import cause
from heedful.rollout import (
    Ask,
    Collection,
    Request,
    Standing,
    collect_in_rounds,
    isolated,
    shape_overlong,
    without_rewards,
)
from heedful.rollout.choosers import Offer, Yoked
from heedful.rollout.player import replayed_values
from heedful.rollout.rounds import at_one_size
from heedful.run import checkpoint
from heedful.run.attribution import read_update, store_attribution
from heedful.run.config import TrainConfig
from heedful.run.evaluation.held_out import (
    Baselines,
    broken_sentence,
    evaluation_seed,
    measure_baselines,
    play_tasks,
    success_metric,
)
from heedful.run.forecast import estimate, sentence_after
from heedful.run.parts import Parts
from heedful.run.treatments import Treated
from heedful.run.update import update_policy
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer
from heedful.seeds import derive, stream
from heedful.stopping import finish_the_step_first
from heedful.storage import RunFolder, write_early, write_rollouts, write_whole
from heedful.storage.trackers import TakesAlerts, TakesCompletions, completion_rows
from heedful.training.ranks.world import World
from heedful.types import Group, Metric, Task, Trajectory, Verdict


class Watcher(Tracker, Protocol):
    """Shows a run to a person while it runs."""

    def first_rollout(self, trajectory: Trajectory) -> None:
        """The first trajectory of the run, to be shown once."""

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

    An alarm is reported once, when it is raised. With `on_collapse` stop a collapse ends the run like a Ctrl-C, and
    with cut it takes the entropy bonus away. A resumed run keeps the alarms that were raised before. Only a newly
    raised one reports, stops or cuts again.

    Each rank plays its share of the tasks and learns from its share of the samples. Rank 0 alone measures, stores,
    writes and saves, and needs `trackers` and something to `watch`.
    """
    world, first = parts.learner.world, parts.version
    if isinstance(config.choose, Yoked):  # a short schedule would end the run where it ends
        config.choose.check(config.steps, len(parts.tasks.pool or ()))
    with (
        isolated(parts.env, config.env_workers, config.env_timeout) as env,
        config.policy.open(rank=world.rank, note=watch.note) as source,
    ):
        run = _Run(config, parts, folder, [*trackers, watch], env, source, watch.note)
        baselines = run.baselines()
        if world.is_rank_0 and first < config.steps:
            watch.note(estimate(config, parts, env))
        with finish_the_step_first() as interrupt:
            for step in range(first, config.steps):
                clock = Clock()
                with run.saving_if_servers_fail(step):
                    metrics = run.hand_over_and_evaluate(step, clock, baselines)
                    with clock.stage("collect"):
                        treated = parts.treatments.at(step)
                        collection = run.collect(step, treated)
                groups = collection.groups
                run.tell_broken("training", groups)
                verdicts = parts.selection.choose(step, collection, stream(config.seed, "filter", step))
                treatments = parts.treatments.metrics(treated, groups)
                metrics += [*collection.metrics(), *parts.selection.metrics(verdicts), *treatments]
                if step == first and (told := _not_met(config.without_rewards, groups)):
                    watch.note(told)
                if step == 0:
                    watch.first_rollout(groups[0].trajectories[0])
                    if told := _about(config.filter.on, groups):
                        watch.note(told)
                with clock.stage("diagnose"):  # before the update: the scorer must be the policy that sampled
                    diagnosis = run.diagnose(step, groups, verdicts)
                metrics += run.measure_gradients(step, groups, clock)
                run.read_fresh(step, clock)
                with clock.stage("update"):
                    replays = parts.treatments.replays(treated, groups)
                    updated = update_policy(config, parts.learner, groups, verdicts, parts.attributor, replays)
                metrics += run.attribution(step, groups, clock)
                late = StepAlarms(step, (), ())
                if world.is_rank_0:
                    late = parts.diagnostician.watch_update(step, [*updated, *treatments])
                metrics += [*updated, *late.metrics, *diagnosis.metrics]
                with clock.stage("store"):
                    run.store(step, groups, verdicts, diagnosis)
                run.write(step, metrics, clock, groups)
                run.track_completions(step, groups, verdicts)
                if step == first and step + 1 < config.steps:
                    watch.note(sentence_after(config, step, clock.seconds))
                alarms = [*diagnosis.raised, *late.raised]
                for alarm in alarms:
                    watch.note(alarm.sentence())
                    if alarm.collapse:
                        run.pin(alarm)
                    if alarm.collapse and (part := cause(folder, step)):
                        watch.note(part)
                    for tracker in trackers:
                        if isinstance(tracker, TakesAlerts):
                            tracker.alert(alarm)
                # Every rank ends where one was interrupted, or where an alarm of rank 0 stops the run.
                asked = int(interrupt.signal or (signal.SIGINT if stop() else 0))
                answers = world.gather((asked, tuple(each.name for each in alarms if each.collapse)))
                asked, collapsed = next((each for each, _ in answers if each), 0), answers[0][1]
                stopped_by = collapsed if config.on_collapse == "stop" else ()
                if collapsed and config.on_collapse == "cut" and not parts.learner.entropy_cut:
                    parts.learner.cut_entropy()
                    watch.note(f"The entropy bonus is off from step {step + 1} on, because of {', '.join(collapsed)}.")
                if asked or stopped_by or run.is_checkpoint_due(step + 1):
                    run.save(step + 1)
                if asked or stopped_by:
                    return Outcome(step + 1, asked != 0, stopped_by, asked)
        if config.steps in run.evaluations:
            clock = Clock()
            run.write(config.steps, run.hand_over_and_evaluate(config.steps, clock, baselines), clock, ())
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
    note: Callable[[str], None]
    told: set[str] = field(default_factory=set)
    """The kinds of episodes of which it was said that some broke."""
    finish: Callable[[], Attribution | None] | None = None
    """Where the update of this step is to be split: says afterwards what it did."""

    @property
    def world(self) -> World:
        return self.parts.learner.world

    @property
    def evaluations(self) -> frozenset[int]:
        return self.config.evaluation.at(self.config.steps)

    def baselines(self) -> Baselines | None:
        """The baselines of every evaluation, or `None` where there is no evaluation."""
        asked, measured = self.config.evaluation, None
        if self.evaluations and self.world.is_rank_0:
            measured = measure_baselines(self.env, asked.split, asked.tasks, asked.search_tasks)
        return self.world.broadcast(measured)

    def tell_broken(self, kind: str, groups: Sequence[Group]) -> None:
        """Say of each kind of episodes once that some broke, since success rates leave these out."""
        if kind not in self.told and (sentence := broken_sentence(groups, kind)):
            self.told.add(kind)
            self.note(sentence)

    @contextmanager
    def saving_if_servers_fail(self, step: int) -> Iterator[None]:
        """If servers that sample are away for good, refuse, or hold other weights, save the steps so far."""
        cursor = self.parts.tasks.cursor
        try:
            yield
        except (ServerUnreachable, ServerRefused, WrongWeights):
            # The other ranks cannot be asked for their shards, since they wait elsewhere.
            if step > self.parts.version and self.world.size == 1:
                self.parts.tasks.cursor = cursor
                self.save(step)
            raise

    def hand_over_and_evaluate(self, version: int, clock: Clock, baselines: Baselines | None) -> list[Metric]:
        """Hand the weights after `version` steps to the source of policies, and measure success if it is due."""
        with clock.stage("collect"):
            metrics = list(self.source.weights_changed(Weights(self.parts.model, version, self.parts.saveable)))
            self.world.gather(None)  # no rank samples before all have handed over
        if version not in self.evaluations or baselines is None:
            return metrics
        evaluation, env = self.config.evaluation, self.env
        tasks = evaluation_tasks(env, evaluation.split, evaluation.tasks)
        metrics += baselines.metrics
        played: list[Group] = []
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
                self.tell_broken(f"{kind} held-out", groups)
                success = success_metric(f"eval/{evaluation.split}/{kind}/success", groups)
                metrics.append(success)
                if kind == "sampled" and success.number is not None:
                    self.parts.scores[version] = success.number
                played += groups
            # Greedy success has to be read with greedy thoughts.
            with self._scoring() as scorer:
                if scorer is not None and self.config.diagnostics.enabled:
                    metrics += self._read_greedy(version, groups, scorer, played)
        return metrics

    def _read_greedy(
        self, version: int, greedy: Sequence[Group], scorer: TokenScorer, played: Sequence[Group]
    ) -> list[Metric]:
        """How right greedy first turns are, and by what. Where thoughts conclude is stored. `played`: all episodes."""
        temperature, measuring = self.config.sampling.temperature, self.parts.diagnostician
        right, allowed = rightness_of(self.env), evaluated_tokens(self.config.diagnostics.share, played)
        told = greedy, temperature, right, measuring.piece, measuring.tags.close
        if early := early_answers(scorer, *told, allowed=allowed / 4):
            write_early(self.folder.early(version), early)
        prefix = f"eval/{self.config.evaluation.split}/greedy"
        return evaluated_metrics(prefix, greedy, scorer, temperature, right, worth_of(self.env), allowed * 3 / 4)

    @contextmanager
    def _scoring(self) -> Iterator[TokenScorer | None]:
        """The policy's scorer on rank 0. The other ranks score their share of what it asks, and get `None`."""
        scorer = self.parts.diagnostician.scorer
        with nullcontext() if isinstance(scorer, DealtScorer) else self.parts.learner.whole():
            if not self.world.is_rank_0:
                if isinstance(scorer, DealtScorer):
                    scorer.answer()
                yield None
                return
            with scorer.asking() if isinstance(scorer, DealtScorer | HFScorer) else nullcontext():
                yield scorer

    def policy(self, sampling: Sampling, seed: int) -> Policy:
        """The policy of one collection."""
        sampling = self.config.asked(sampling)
        # Each rank draws the noise of its own batches. Rank 0 draws the noise of a run with one process. Noise of a
        # conversation depends on its key, and no two ranks play the same key.
        shared = self.world.is_rank_0 or sampling.noise == "conversation"
        own = seed if shared else derive(seed, "process", self.world.rank)
        return self.source.policy(self.parts.renderer, sampling, own)

    def collect(self, step: int, treated: Treated) -> Collection:
        """The groups of a step, with shaped rewards, in as many rounds as the plan asks for."""
        config, env, algorithm, pool = self.config, self.env, self.config.algorithm, self.parts.tasks.pool
        past, seen = self.parts.selection.past, set(treated.left_out)
        offer = Offer(self.parts.tasks, past, step, seen, stream(config.seed, "choose", step))

        def draw(count: int) -> Sequence[Task]:
            probes = [task for task in treated.probes if task.id not in seen]
            seen.update(task.id for task in probes)
            tasks = [*probes, *config.choose.choose(count - len(probes), offer)]
            seen.update(task.id for task in tasks)
            return self.parts.treatments.begun(tasks, treated)

        def play(number: int, asks: Sequence[Ask]) -> list[Group]:
            policy = self.policy(config.sampling, derive(config.seed, "rollout", step, *([number] if number else [])))
            mine = self.world.scatter(asks)
            tasks, sizes = [ask.task for ask in mine], [ask.members for ask in mine]
            with self.parts.learner.whole():
                request = Request(env.episode, tasks, config.group_size, turns_of(env), config.context, sizes=sizes)
                groups = self.world.merge(config.collect(policy, request))
            if algorithm.overlong_buffer:
                limit = config.sampling.tokens_per_turn
                groups = shape_overlong(groups, limit, algorithm.overlong_buffer, algorithm.overlong_penalty)
            return without_rewards(groups, config.without_rewards) if config.without_rewards else groups

        now = Standing(
            config.groups,
            config.group_size,
            config.filter.on,
            draw,
            stream(config.seed, "plan", step),
            past,
            len(pool) - len(treated.left_out) if pool else None,
        )
        return collect_in_rounds(config.rounds, now, play)

    def diagnose(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> Diagnosis:
        """The diagnosis of rank 0. The other ranks score their share of what it asks."""
        config, asked, env = self.config, self.config.diagnostics, self.env
        with self._scoring():
            if not self.world.is_rank_0:
                return Diagnosis([])
            alike, on = at_one_size(groups), config.filter.on
            found = self.parts.diagnostician.measure(step, groups, verdicts, on, read=config.groups, alike=alike)
        if not (asked.enabled and asked.replays and asked.full_is_due(step) and getattr(env, "noisy", False)):
            return found
        # The share of the variance of rewards that is luck, with a full measurement in a noisy environment.
        values = replayed_values(env, groups[: config.groups], config.filter.on, asked.replays)
        luck = luck_metrics(values, [verdict.kept for verdict in verdicts[: config.groups]])
        return replace(found, metrics=[*found.metrics, *luck])

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

    def read_fresh(self, step: int, clock: Clock) -> None:
        """If the update of this step is to be split, read fresh thoughts before it."""
        asked, attributor = self.config.attribution, self.parts.attributor
        if attributor is None or not asked.every or step % asked.every:
            return
        with clock.stage("attribution"):
            self.finish = read_update(self.config, self.parts, self.env, self.source, step, step)

    def attribution(self, step: int, groups: Sequence[Group], clock: Clock) -> list[Metric]:
        """What the parts of the update did to the fresh thoughts, where they were read. It is stored, too."""
        if self.parts.attributor is None:
            return []
        finish, self.finish = self.finish or self.parts.attributor.finish, None
        with clock.stage("attribution"):
            found = finish()
            return [] if found is None else store_attribution(self.folder, self.config, self.parts, step, groups, found)

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

    def track_completions(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> None:
        if most := self.config.tracked_completions:
            rows = completion_rows(groups, verdicts, most)
            for tracker in self.trackers:
                if isinstance(tracker, TakesCompletions):
                    tracker.completions(step, rows)

    def is_checkpoint_due(self, version: int) -> bool:
        """At regular steps, wherever the run is evaluated, and at its end."""
        at_the_end = version == self.config.steps
        return at_the_end or version in self.evaluations or version % self.config.checkpoint_every == 0

    def pin(self, alarm: Alarm) -> None:
        """Keep the checkpoint from which `heedful fork` would go back before this collapse, whatever comes later."""
        latest = before_change(alarm.step, alarm.evidence)
        found = [step for step in self.folder.checkpoint_steps() if step <= latest]
        if found and self.config.keep_checkpoints == "around":
            self.parts.pinned.setdefault(alarm.name, found[-1])

    def save(self, version: int) -> None:
        parts, folder = self.parts, self.folder.path / "checkpoints"
        model, learner_state = parts.saveable(), parts.learner_state()  # on all ranks: shards are gathered
        if not self.world.is_rank_0:
            return
        self.folder.refuse_moved("--resume")
        if parts.selection.memory is not None:
            write_whole(self.folder.tasks, json.dumps(parts.selection.memory.table(), indent=1) + "\n")
        state = {**parts.state(), "config": to_json(self.config)}
        checkpoint.save(folder, version, model, parts.tokenizer, learner_state, state)
        if self.config.keep_checkpoints != "all":
            around = self.config.checkpoint_every if self.config.keep_checkpoints == "around" else 0
            checkpoint.prune(folder, 2, parts.best, around, parts.pinned.values())


def _not_met(left_out: Sequence[str], groups: Sequence[Group]) -> str:
    """Names the rewards to leave out that no reply has, such as a misspelt one. Empty where all were met."""
    turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
    paid = dict.fromkeys(name for turn in turns for name in turn.rewards)
    missing = [name for name in left_out if name not in paid]
    return (
        f"without_rewards {', '.join(missing)}: no reply of this step has such a reward. Replies have "
        f"{', '.join(paid) or 'none'}."
        if missing
        else ""
    )


def _about(on: str, groups: Sequence[Group]) -> str:
    """What to know about a filter that looks at `on`. Empty if nothing."""
    names = sorted({name for group in groups for t in group.trajectories for turn in t.turns for name in turn.rewards})
    if on == "reward" and len(names) > 1:
        return (
            f"The filter looks at the whole reward, of which {', '.join(names)} are parts: groups that differ in one "
            "of them alone count as if they told of the task; --filter.on outcome ignores it."
        )
    if on in ("reward", "outcome", *names):
        return ""
    return f"No episode of this step has the part of the reward {on!r} (--filter.on); parts: {', '.join(names)}."
