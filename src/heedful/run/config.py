"""The configuration of a training run: one default per knob, each written once, here.

Torch-free. A run's resolved configuration, written as JSON, can be read back and gives the same run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from annotated_types import Interval

from heedful import envs
from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.table import ALGORITHMS, Algorithm, Grpo, LossScale, check_loss_scale
from heedful.boundary import Choice, Count, Natural, Text, Threads, Wait, Workers, from_json, settings
from heedful.boundary.jsontext import expecting, read_json
from heedful.diagnostics.attribution import USUAL, Name
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.filters import FILTERS, Ranked, TopP
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.chat.replies import Tags
from heedful.models.chat.template import read_options
from heedful.models.sight import VisionConfig
from heedful.policies import POLICIES, Local, PolicySource, Vllm
from heedful.policies.sampling import Sampling
from heedful.protocols import CreditsTokens, Environment, Filter, UsesCritic
from heedful.rollout import CHOOSERS, COLLECTORS, PLANS, Chooser, Collector, Context, LockStep, Plan
from heedful.rollout.choosers import ByPool, InOrder, SkipSettled, Thompson
from heedful.rollout.plans import Dealt, Fixed, Refill, Sized
from heedful.rollout.workers import DEFAULT_TIMEOUT
from heedful.run.evaluation.held_out import BASELINE_TASKS
from heedful.run.selection import Coverage
from heedful.run.treatments import Action
from heedful.seedlings.recipe import Seedling, WarmStart
from heedful.storage import RunFolder
from heedful.training.ranks.parallel import PARALLEL, DataParallel, Parallel
from heedful.training.settings import CriticConfig, LoraConfig, OptimizerConfig

SERVED_CAP = 2.0
"""The importance cap where servers sample and none is set."""


@settings
class EvaluationConfig:
    """Success on held-out tasks, sampled and greedy, next to the random and the best input-blind policy."""

    tasks: Count = 256
    """Held-out tasks, the same ones at every evaluation."""
    samples: Count = 4
    """Sampled episodes per task (greedy: one)."""
    times: Natural = 3
    """Evaluations, evenly spread: 3 = before training, in the middle, after. 0 = none."""
    split: Literal["val", "test"] = "val"
    at_once: Count = 1024
    """Most episodes played at once. Lower it when memory is short. The noise of an episode depends on it."""
    start: Natural = 0
    """Training steps before the first evaluation. The others are spread from there on."""
    search_tasks: Natural = BASELINE_TASKS
    """Training tasks on which the best fixed sequence is searched, with some hundred thousand calls of the environment.
    0 = no search, for environments that are slow."""

    def at(self, steps: int) -> frozenset[int]:
        """The numbers of updates after which to evaluate."""
        if self.times < 1:
            return frozenset()
        first = min(self.start, steps)
        times = min(self.times, steps - first + 1)
        if times == 1:
            return frozenset({steps})
        return frozenset(first + round(index * (steps - first) / (times - 1)) for index in range(times))


Buckets = Annotated[int, Interval(ge=2, le=100)]
"""Of reward variance. Each is a row of the tables."""


@settings
class GradientsConfig:
    """Signal and noise of the gradient in training, by reward variance, measured on the groups of a step."""

    every: Natural = 0
    """Steps between measurements. 0 = none. One costs as much as several steps."""
    buckets: Buckets = 6
    """Buckets of reward variance: one for constant groups, the others are quantiles of the rest."""
    memory_mb: Count = 3072
    """Room for all gradients of one measurement together. Larger ones are projected."""


@settings
class AttributionConfig:
    """What each part of an update does to the thoughts: every reward, KL, entropy, the moments that were carried."""

    every: Natural = 0
    """Steps between updates that are split. 0 = none. One costs as much as several steps."""
    prompts: Annotated[int, Interval(ge=4)] = 36
    """Held-out tasks whose thoughts read the update, other ones at every step."""
    thoughts: Annotated[int, Interval(ge=2)] = 4
    """Episodes of each."""
    blocks: Annotated[int, Interval(ge=2)] = 6
    """Parts of the prompts that share nothing. Intervals are taken over them."""
    foreign: Count = 2
    """Foreign prompts of a thought in the gradient of the gap. They are drawn, so fewer add noise and no bias."""
    readings: tuple[Name, ...] = USUAL
    """What is read. right_by_thought costs about half as much as the four by default together. greedy_success has no
    parts: one greedy episode of each task is played before and after the update."""
    moments: bool = False
    """Keep one first moment of AdamW for each term of the loss, in the checkpoints: then what is carried from earlier
    steps has a name. It costs a backward pass and a copy of the weights per term."""

    def __post_init__(self) -> None:
        if self.prompts < 2 * self.blocks:
            raise ValueError(
                f"attribution.prompts must give each of the {self.blocks} blocks (attribution.blocks) two prompts, so "
                f"at least {2 * self.blocks}, found {self.prompts}"
            )

    @property
    def on(self) -> bool:
        return self.every > 0 or self.moments


@settings
class TrainConfig:
    """Everything that decides a run's numbers. `heedful train ENV` starts from the environment's preset."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)] = field(default_factory=FrozenLake)
    """The environment and its knobs."""
    model: Text = "seedling"
    """`seedling` grows a small model from the environment's solver. Otherwise a folder, `smollm2`, or a Hugging
    Face name."""
    vision: VisionConfig = field(default_factory=VisionConfig)
    seedling: Seedling = field(default_factory=Seedling)
    """Recipe of the seedling (only with --model seedling)."""
    warm_start: WarmStart = field(default_factory=WarmStart)
    """Learning from the environment's demonstrations before training (only with a loaded model)."""
    algorithm: Annotated[Algorithm, Choice(ALGORITHMS, Algorithm)] = field(default_factory=Grpo)
    """Advantage, clip, averaging, KL and entropy."""
    filter: Annotated[Filter, Choice(FILTERS)] = field(default_factory=TopP)
    """Chooses prompts by the spread of their members' outcomes."""
    loss_scale: LossScale = "kept"
    """Factor of the loss when groups were dropped."""
    steps: Count = 80
    """Training steps: one batch of episodes each."""
    groups: Count = 16
    """Tasks per step."""
    group_size: Count = 8
    """Episodes per task."""
    tasks: Count | None = None
    """Draw tasks from a fixed pool of this size. none = fresh tasks at every step."""
    task_seeds: tuple[int, ...] = ()
    """Draw tasks from the pool of the tasks of these seeds, all of the training split."""
    coverage: Coverage = field(default_factory=Coverage)
    choose: Annotated[Chooser, Choice(CHOOSERS, Chooser)] = field(default_factory=InOrder)
    """Which tasks of the pool a step plays, chosen before sampling by the outcomes of earlier visits."""
    plan: Annotated[Plan, Choice(PLANS, Plan)] = field(default_factory=Fixed)
    """How a step divides its episodes over tasks. refill is also typed --algorithm.sampling-batches N."""
    treat: tuple[Action, ...] = ()
    """Treat tasks of the pool that teach nothing, by the cause: skip, exclude, help, replay. skip = leave out tasks
    that always succeed. exclude = leave out tasks whose reward is broken, and name them. help = tasks that always fail
    begin with turns of the environment's solver, fewer and fewer of them. replay = learn again from the newest success
    of a task that always fails. With skip or help an eighth of a step's tasks is played without treatment."""
    treat_dealt: bool = False
    """Control: give each treatment to another task, drawn once by chance."""
    context: Context = field(default_factory=Context)
    collect: Annotated[Collector, Choice(COLLECTORS, Collector)] = field(default_factory=LockStep)
    """How episodes are played at the same time: lock_step, or async for slow environments."""
    env_workers: Workers = 0
    """Processes in which episodes are played. If one crashes or hangs, only its own episodes end. 0 = in this process.
    They work at the same time if --collect.threads is at least as many."""
    env_timeout: Wait = DEFAULT_TIMEOUT
    """Seconds for one start or step of an environment in such a process. 0 = no limit."""
    policy: Annotated[PolicySource, Choice(POLICIES, PolicySource)] = field(default_factory=Local)
    """The sampler of replies, typed --sampler NAME as well: local = the model in this process, vllm = servers."""
    sampling: Sampling = field(default_factory=Sampling)
    tags: Tags = field(default_factory=Tags)
    template_options: tuple[str, ...] = ()
    """Options of the chat template as name=value, for instance enable_thinking=true."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    # A seedling's measurements are cheap, so nothing of them is thinned. Presets of loaded models set a share.
    diagnostics: DiagnosticsConfig = field(default_factory=lambda: DiagnosticsConfig(share=None))
    gradients: GradientsConfig = field(default_factory=GradientsConfig)
    attribution: AttributionConfig = field(default_factory=AttributionConfig)
    without_rewards: tuple[Text, ...] = ()
    """Components of the reward that count as 0 in training, such as fluency. Outcomes do not change."""
    on_collapse: Literal["warn", "stop", "cut"] = "warn"
    """Reaction to an alarm named a collapse. warn = report it and continue. stop = end the run after the step, saved,
    with exit code 3. cut = set the coefficient of the entropy bonus to 0 for good. Other alarms only warn."""
    checkpoint_every: Count = 10
    """Steps between checkpoints."""
    keep_checkpoints: Literal["last", "around", "all"] = "last"
    """last: the last two and the best evaluated one. around: of older ones, too, those about 1, 2, 4, 8 ... checkpoints
    back, and the one before each collapse that is raised, from which heedful fork can go on. all: every one, for
    heedful gradients or eval later."""
    keep_rollouts: Literal["all", "evaluations", "none"] = "all"
    """Episodes that are stored, with their texts: all (of training and of evaluations), evaluations, or none. Without
    evaluations a verdict has no gain paired by task. Without training episodes a report shows none."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Besides metrics.jsonl: tensorboard, wandb, trackio."""
    tracked_completions: Natural = 0
    """Episodes of each step whose texts go to wandb and trackio, as a table per step; 0 = none."""
    seed: int = 0
    threads: Threads = 1
    """CPU threads. A run is reproducible to the byte only with the same number. The default is 1 for a seedling, and
    all physical cores with --model."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights of a loaded model. Log-probabilities are float32 in any case."""
    micro_batch_tokens: Count = 1024
    """Most padded tokens in one forward and backward pass. Changes speed and memory, never gradients."""
    gradient_checkpointing: bool = False
    """Compute the layers' activations a second time in the backward pass instead of keeping them: less memory, more
    time, the same gradients."""
    parallel: Annotated[Parallel, Choice(PARALLEL, DataParallel)] = field(default_factory=DataParallel)
    """The part of the model in each of several processes (torchrun --nproc-per-node N -m heedful train ...): data or
    fsdp2."""

    def __post_init__(self) -> None:
        for applies, sentence in self._contradictions():
            if applies:
                raise ValueError(sentence)
        check_loss_scale(self.loss_scale, self.filter.share)
        _ = self.asked(self.sampling)  # raises where the sampler or the collector cannot work with it
        _ = self.chat_options  # raises for an entry that is no option

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """What the settings demand of each other: whether it is broken, and the sentence."""
        algorithm, size = self.algorithm, len(self.task_seeds) or self.tasks
        yield (
            self.tasks is not None and bool(self.task_seeds),
            "tasks draws a pool and task_seeds lists one: give one of them",
        )
        yield (
            size is not None and size < self.groups,
            f"tasks (the pool) must hold at least the {self.groups} groups of one step, found {size}",
        )
        yield (
            self.coverage.rate > 0 and self.pool is None,
            "coverage.rate re-admits tasks that were passed over at earlier visits, but every step draws fresh tasks; "
            "give a pool with --tasks N, or leave the rate at 0",
        )
        yield (
            not isinstance(self.choose, InOrder) and self.pool is None,
            f"the chooser {type(self.choose).__name__} chooses by earlier visits to a task, but every step draws fresh "
            "tasks; give a pool with --tasks N, small enough that a task is visited several times, or leave out "
            "--choose",
        )
        sized = self.sized
        yield (
            (sized is not None or isinstance(self.choose, Thompson | SkipSettled | ByPool))
            and self.filter.on != "outcome",
            "choosers and the plan sized read chances of success, and the memory of the tasks holds the values of the "
            f"filter, {self.filter.on!r}; set --filter.on outcome, or leave out --choose and --plan",
        )
        if sized is not None:
            yield (
                size is None or size < self.groups * sized.candidates,
                f"the plan sized draws {sized.candidates} x {self.groups} tasks and reads their earlier visits; give a "
                f"pool of at least as many (--tasks N), found {size or 'fresh tasks at every step'}",
            )
            yield (
                not sized.least <= self.group_size <= sized.most,
                f"the plan sized gives a task {sized.least} to {sized.most} episodes (plan.least, plan.most), so "
                f"group_size, their mean, must be within, found {self.group_size}",
            )
            yield (
                sized.candidates > 1
                and (not isinstance(self.choose, InOrder) or bool({"skip", "help"} & set(self.treat))),
                "plan.candidates above 1 chooses among the drawn tasks, so probes of --choose and of --treat would get "
                "no episode; set plan.candidates to 1, or leave out --choose, and skip and help of --treat",
            )
            yield (
                sized.weigh == "task" and self.unit_of_groups is None,
                "plan.weigh task keeps the mean over tasks as the objective, which no weight does under "
                f"{type(algorithm.advantage).__name__} as it is set; choose the algorithm dr_grpo or rloo, or "
                "plan.weigh episode",
            )
        yield (
            bool(self.treat) and self.pool is None,
            "treat treats tasks by their earlier visits, but every step draws fresh tasks; give a pool with --tasks N, "
            "small enough that a task is visited several times, or leave out --treat",
        )
        yield (
            self.treat_dealt and not self.treat,
            "treat_dealt deals the treatments to other tasks, and there are none; give --treat skip,exclude,help",
        )
        for part, used in (
            ("a critic has not valued", isinstance(algorithm.advantage, UsesCritic)),
            ("--attribution cannot split", self.attribution.on),
        ):
            yield (
                "replay" in self.treat and used,
                f"a replayed success is no episode of the step, so {part} it; leave replay out of --treat",
            )
        yield (
            not isinstance(self.choose, InOrder) and bool({"skip", "help"} & set(self.treat)),
            f"the chooser {type(self.choose).__name__} passes over tasks that always succeed or fail, so there is "
            "nothing left to skip or to help; leave out --choose, or give --treat exclude alone",
        )
        yield (
            self.warm_start.steps > 0 and self.model == "seedling",
            "warm_start.steps is for a loaded model; a seedling learns from demonstrations by --seedling.steps",
        )
        yield (
            self.group_size < 2 and not isinstance(algorithm.advantage, CreditsTokens),
            "group_size must be at least 2 (a group of one has no spread, and "
            f"{type(algorithm.advantage).__name__} gives it no advantage; 1 is for algorithms with a critic, such as "
            f"ppo), found {self.group_size}",
        )
        yield (
            self.group_size < 2 and isinstance(self.filter, Ranked),
            f"group_size 1 needs a filter that keeps groups of one, but {type(self.filter).__name__} drops them, since "
            "they have no spread; choose the filter keep_all, or a group_size of at least 2",
        )
        yield (
            isinstance(self.rounds, Refill) and self.group_size < 2,
            f"dynamic sampling (algorithm.sampling_batches {algorithm.sampling_batches}, or plan refill) collects "
            f"until groups vary, but a group of {self.group_size} never does; set sampling_batches to 1 and the plan "
            "to fixed, or group_size to at least 2",
        )
        yield (
            self.on_collapse == "cut" and not algorithm.has_bonus,
            "on_collapse cut takes the entropy bonus away, and there is none (algorithm.entropy 0); give a "
            "coefficient, or set on_collapse to warn",
        )
        for part, used in (
            (
                "a critic on the policy's layers (--critic.kind head)",
                isinstance(algorithm.advantage, UsesCritic) and self.critic.kind == "head",
            ),
            ("the measurement of gradients (--gradients.every)", self.gradients.every > 0),
            ("the parts of an update (--attribution)", self.attribution.on),
            ("a copy of it in float64 (--sampling.precision double)", self.sampling.precision == "double"),
        ):
            yield (
                self.parallel.sharded and used,
                f"--parallel fsdp2 shards the model, and {part} cannot work on shards yet; use --parallel data",
            )

    # What follows from the settings. Nothing else changes them on the way to the parts of a run.

    @property
    def pool(self) -> int | tuple[int, ...] | None:
        """The pool of tasks: its size, or its seeds. `None`: fresh tasks at every step."""
        return self.task_seeds or self.tasks

    @property
    def rounds(self) -> Plan:
        """The plan of a step. More than one of the algorithm's batches turns fixed into refill."""
        batches = self.algorithm.sampling_batches
        return Refill(batches) if batches > 1 and isinstance(self.plan, Fixed) else self.plan

    @property
    def sized(self) -> Sized | None:
        """The plan of unequal groups, or the one that a control deals. `None`: all groups have one size."""
        plan = self.plan.like if isinstance(self.plan, Dealt) else self.plan
        return plan if isinstance(plan, Sized) else None

    @property
    def unit_of_groups(self) -> tuple[int, int] | None:
        """How groups of unequal size are weighed so that tasks count alike (`Selection.unit`)."""
        advantage = self.algorithm.advantage
        if self.sized is None or self.sized.weigh == "episode":
            return None
        if isinstance(advantage, LeaveOneOut):
            return self.group_size, 0
        return (self.group_size, 1) if isinstance(advantage, GroupRelative) and not advantage.standardize else None

    @property
    def learning(self) -> Algorithm:
        """The algorithm of the update. Where servers sample, their log-probabilities are corrected by default."""
        if isinstance(self.policy, Vllm) and self.algorithm.importance_cap is None:
            return replace(self.algorithm, importance_cap=SERVED_CAP)
        return self.algorithm

    def asked(self, sampling: Sampling) -> Sampling:
        """The sampling settings of this run's policy for its collector. Raises ValueError where they cannot work."""
        return self.collect.sampling(self.policy.sampling(sampling))

    @property
    def chat_options(self) -> dict[str, str | int]:
        """`template_options` as the chat template takes them."""
        return read_options(self.template_options)


def from_written(tree: Any) -> TrainConfig:
    """The configuration that a run wrote, perhaps an earlier version's. Raises ValueError if it is none of a run."""
    tree = copy.deepcopy(tree)
    with suppress(LookupError, TypeError):
        tree["tags"].setdefault("of_model", False)  # as it was before heedful knew the tags of families
        del tree["diagnostics"]["alarms"]["sampler"]  # changes nothing any more
    return from_json(TrainConfig, tree)


def read_config(folder: RunFolder) -> TrainConfig:
    """The configuration of a run. Raises ValueError, a sentence that names the file, if it is none of a run."""
    with expecting(f"the configuration of a run in {folder.config}"):
        tree = read_json(folder.config)
        trainer = tree.get("trainer") if isinstance(tree, dict) else None
        if isinstance(trainer, str):
            raise ValueError(
                f"that of a record which heedful wrote inside {trainer:.40}. `heedful report` and `heedful audit` read "
                "this folder. Its weights are the trainer's: resume the training there, or name the folder of a model "
                "and an environment"
            )
        return from_written(tree)
