"""Jobs of the paper's studies that do more than train: sample, rank the tasks of a pool, train on a part, measure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from heedful.envs.common.tasks import TaskStream, check_same_start
from heedful.envs.toys.chain import UNREWARDED
from heedful.rollout.choosers import Yoked
from heedful.run.config import TrainConfig
from heedful.run.gradients import GradientsSettings
from heedful.seeds import derive, stream
from heedful.storage import RunFolder
from heedful.studies.jobs import OwnJob, TrainingJob, run_read
from heedful.types import Task
from research.ranking import RANKING, read_ranking, tasks_of_part


@dataclass(frozen=True, slots=True)
class SamplingJob(OwnJob):
    """Play batches with the untrained policy and take the full diagnosis of each: many readings of one state.

    `config`: `groups` prompts x `group_size` thoughts per batch; what concerns updates and evaluations is not used.

    Batch number b is step b of the measurements. Its tasks, its sampling noise and the draws of its diagnosis have
    seeds of their own, and nothing is carried from batch to batch, so batches are independent readings of one policy.
    """

    batches: int = 50
    forced: int = 0
    """Tasks per batch on which thoughts are forced - own, foreign and empty ones - to see whether they cause the
    answers; 0 = none, and at least 2: a single task has no foreign thought."""

    @property
    def about(self) -> str:
        return f"samples {self.batches} batches of {self.config.groups} x {self.config.group_size} from a warm start"

    @property
    def steps(self) -> int:
        return self.batches

    def with_steps(self, steps: int) -> SamplingJob:
        return replace(self, batches=steps)

    def seeded(self, seed: int) -> TrainConfig:
        config = OwnJob.seeded(self, seed)
        # Every batch is a full measurement.
        return replace(config, diagnostics=replace(config.diagnostics, full_every=1))

    def run(self, folder: RunFolder, seed: int) -> int:
        from research.sampling import sample_batches

        return sample_batches(self.seeded(seed), self.batches, self.forced, folder)


@dataclass(frozen=True, slots=True)
class RankingJob(OwnJob):
    """Play a pool of training tasks with the untrained policy and rank them by the variance of what they earn.

    Pass number p is step p of the measurements, and `ranking.json` in the run folder holds the tasks. Each seed has a
    pool of its own. Its episodes are not those of any training.

    `config`: `group_size` episodes per task and pass, and what the filter looks at; updates and evaluations are not
    used.
    """

    tasks: int = 512
    """Tasks of the pool."""
    passes: int = 8
    """How often the pool is played."""
    parts: int = 4
    """Parts of equal size that the ranking cuts the pool into."""

    @property
    def about(self) -> str:
        episodes = f"{self.passes} x {self.config.group_size} episodes"
        return f"ranks {self.tasks} tasks by {episodes} of the policy at the start"

    @property
    def steps(self) -> int:
        return self.passes

    def with_steps(self, steps: int) -> RankingJob:
        """A quick look plays fewer passes, and never more."""
        return replace(self, passes=min(steps, self.passes))

    def run(self, folder: RunFolder, seed: int) -> int:
        from research.sampling import rank_tasks

        return rank_tasks(self.seeded(seed), self.tasks, self.passes, self.parts, folder)


@dataclass(frozen=True, slots=True)
class PartJob(TrainingJob):
    """Training on one part of a pool that another arm has ranked, for the same seed."""

    after: str = "ranking"
    """The arm that ranks the tasks."""
    part: int | None = None
    """1 = the part with the smallest variances. none = as many tasks as a part has, drawn at random from the pool."""

    @property
    def about(self) -> str:
        part = "a random part" if self.part is None else f"part {self.part}"
        return f"trains {self.config.env.name} for {self.steps} steps on {part} of the tasks that {self.after} ranks"

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        ranked = read_ranking(run_read(self.after, folder).path / RANKING)
        chosen = tasks_of_part(ranked, self.part, stream(seed, "part"))
        for task in chosen:  # an arm with other knobs would train on other tasks under the same seeds
            check_same_start(Task(task.id, task.seed, "train"), self.config.env.task(task.seed))
        config = replace(self.config, task_seeds=tuple(task.seed for task in chosen))
        return TrainingJob(config, self.own_seedling).command(folder, seed)


@dataclass(frozen=True, slots=True)
class PlantedKindsJob(TrainingJob):
    """Training on the tasks of a pool of Chain that are planted to teach: the oracle of treatments by cause.

    The pool is that of the other arms of the same seed. Left out are tasks that pay nothing, and long ones.
    """

    pool: int = 128
    """Tasks of that pool."""
    longest: int = 16
    """Most operations of a task, in all turns."""

    @property
    def about(self) -> str:
        paid = f"those of {self.pool} tasks that are paid and have at most {self.longest} operations"
        return f"trains {self.config.env.name} for {self.steps} steps on {paid}"

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        env = self.config.env
        pool = TaskStream(env, "train", derive(seed, "tasks"), self.pool).pool or ()
        lengths = [sum(len(link.operations) for link in env.links(task.seed)) for task in pool]
        taught = [
            task
            for task, length in zip(pool, lengths, strict=True)
            if UNREWARDED not in task.tags and length <= self.longest
        ]
        config = replace(self.config, task_seeds=tuple(task.seed for task in taught))
        return TrainingJob(config, self.own_seedling).command(folder, seed)


@dataclass(frozen=True, slots=True)
class GradientsJob(OwnJob):
    """`heedful gradients` at checkpoints of another arm's run of the same seed, which keeps all of them."""

    after: str = "trained"
    """The arm whose checkpoints are measured. The study keeps checkpoints."""
    checkpoints: tuple[int, ...] = (0,)
    """Steps; 0 = the policy before training."""
    measurement: GradientsSettings = field(default_factory=GradientsSettings)

    @property
    def about(self) -> str:
        at, groups = ", ".join(map(str, self.checkpoints)), f"{self.measurement.groups} x {self.measurement.group_size}"
        return f"measures the gradients of {self.after} at steps {at} on {groups} episodes"

    @property
    def steps(self) -> int:
        return max(self.checkpoints)

    def with_steps(self, steps: int) -> GradientsJob:
        """The same places in a run of another length."""
        last = max(self.steps, 1)
        return replace(self, checkpoints=tuple(sorted({round(step * steps / last) for step in self.checkpoints})))

    def run(self, folder: RunFolder, seed: int) -> int:
        from research.sampling import measure_checkpoints

        return measure_checkpoints(run_read(self.after, folder), self.checkpoints, self.measurement, folder)


@dataclass(frozen=True, slots=True)
class YokedJob(TrainingJob):
    """Training by the schedule of another arm's run of the same seed, on other tasks: the control of a chooser.

    The configuration names that arm in place of a folder: `--choose yoked --choose.run ARM`. The arm stores its
    training rollouts.
    """

    @property
    def after(self) -> str | None:
        return self.config.choose.run if isinstance(self.config.choose, Yoked) else None

    @property
    def about(self) -> str:
        return f"trains {self.config.env.name} for {self.steps} steps by the schedule of {self.after}, on other tasks"

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        assert self.after is not None, "its configuration names the arm"
        config = replace(self.config, choose=Yoked(str(run_read(self.after, folder).path)))
        return TrainingJob(config, self.own_seedling).command(folder, seed)
