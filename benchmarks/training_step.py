"""One training step of heedful and one of TRL's GRPOTrainer, by stage: same model, prompts, group size and limits.

Both train GRPO on an environment's seedling, in two cases. Episodes of one reply are sampled by TRL itself. Episodes of
several turns are sampled through a `rollout_func`. The learning rate is almost zero, so both always sample from the
same policy, and tokens per step stay similar. TRL takes the micro-batch that is fastest here. The two alternate step by
step in one process. Neither filters nor measures.

    python benchmarks/training_step.py --repeats 5 --out benchmarks/results/training_step.json
    python benchmarks/training_step.py --model PATH --prompts 2 --tokens 32 --turns 1 --steps 1 --threads 2
    python benchmarks/training_step.py --model PATH --prompts 2 --tokens 32 --turns 1 --threads 2 --memory heedful

With `--model` both train a loaded model, with the full instructions of the environment. `--memory` takes two steps of
one side alone, and prints the peak of the process's memory. Figures are CPU seconds, with `--device cuda` those of the
clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import resource
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import datasets
import torch
import transformers
import trl
from devices import name_of, seconds
from transformers import AutoModelForCausalLM, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from heedful.algorithms import Grpo
from heedful.boundary import to_json
from heedful.integrations.trl import environment_reward, to_trl_rollout_func
from heedful.models.chat.render import Renderer
from heedful.models.load import load_model, read_tokenizer
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.rollout import LockStep, Request
from heedful.run.parts import stop_ids
from heedful.run.presets import preset
from heedful.seedlings.grow import load_seedling
from heedful.training.batch import UpdateSettings
from heedful.training.learner import Learner
from heedful.training.samples import make_samples
from heedful.training.settings import OptimizerConfig
from heedful.types import Message, Task, Verdict

STAGES = ("sample", "score", "update")
STILL = 1e-9
"""A learning rate that does not change the policy."""


class Clock:
    """Seconds per stage (`devices.seconds`) and sampled tokens, step by step."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.steps: list[dict[str, float]] = []

    def begin(self) -> None:
        self.steps.append({**dict.fromkeys(STAGES, 0.0), "tokens": 0.0})

    @contextmanager
    def stage(self, name: str, within: str | None = None) -> Iterator[None]:
        """Time a stage. If it runs `within` another stage, its time is not counted there."""
        start = seconds(self.device)
        yield
        spent = seconds(self.device) - start
        self.steps[-1][name] += spent
        if within:
            self.steps[-1][within] -= spent


class Job:
    """The model, the tasks and the limits of both sides."""

    def __init__(self, given: argparse.Namespace, turns: int) -> None:
        config = preset(given.env, given.model)
        self.given = given
        if given.model is None:
            _, self.tokenizer, self.folder = load_seedling(
                config.seedling, config.env, to_json(config.env), config.tags, lambda *progress: None
            )
        else:
            self.tokenizer, self.folder = read_tokenizer(given.model, ""), Path(given.model)
        self.env = dataclasses.replace(config.env, turns=turns)
        self.limit, self.tags = given.tokens or config.sampling.tokens_per_turn, config.tags
        self.tasks = [self.env.task(seed) for seed in range(given.prompts)]

    def renderer(self, stop_ids: list[int]) -> Renderer:
        return Renderer(self.tokenizer, self.tags, {}, stop_ids)


def ours(job: Job) -> tuple[Clock, Callable[[], None]]:
    """A clock, and a function that takes one step."""
    given, clock = job.given, Clock(job.given.device)
    if given.model is None:
        model = AutoModelForCausalLM.from_pretrained(job.folder, dtype=given.dtype).to(given.device)
    else:
        model, _ = load_model(given.model, torch.device(given.device), given.dtype)
    settings = UpdateSettings(micro_batch_tokens=given.micro_batch_tokens, device=given.device)
    learner = Learner(model, Grpo(), OptimizerConfig(lr=STILL), settings)
    renderer = job.renderer(stop_ids(model))

    def step() -> None:
        clock.begin()
        with clock.stage("sample"):
            policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=job.limit), seed=len(clock.steps))
            groups = LockStep()(policy, Request(job.env.episode, job.tasks, given.members, job.env.turns))
        with clock.stage("score"):
            verdicts = [Verdict(1.0, "kept", None)] * len(groups)
            samples = make_samples(groups, verdicts, learner.algorithm.advantage)
        with clock.stage("update"):
            learner.update(samples)
        clock.steps[-1]["tokens"] = sum(sum(sample.trained) for sample in samples)

    return clock, step


class StepByStep(GRPOTrainer):
    """TRL's trainer with timed stages. Its loop waits for its turn after each step."""

    clock: Clock

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.stage("update"):
            return super().training_step(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with self.clock.stage("score", within="update"):
            batch = super()._generate_and_score_completions(inputs)
        sampled = batch["completion_mask"] * batch.get("tool_mask", 1)
        self.clock.steps[-1]["tokens"] += int(sampled.sum())
        return batch

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.stage("sample", within="score"):
            return super()._generate(*args, **kwargs)


def theirs(job: Job, folder: str, parts: int) -> tuple[Clock, Callable[[int], None]]:
    """A clock, and a function that takes a number of steps, each batch in `parts` micro-batches."""
    given, clock = job.given, Clock(job.given.device)
    options = GRPOConfig(
        output_dir=folder,
        max_steps=1,
        per_device_train_batch_size=given.prompts * given.members // parts,
        gradient_accumulation_steps=parts,
        num_generations=given.members,
        max_completion_length=job.limit if job.env.turns == 1 else job.env.turns * 2 * job.limit,
        loss_type="grpo",
        beta=0.0,
        learning_rate=STILL,
        temperature=1.0,
        shuffle_dataset=False,
        logging_steps=10_000,
        save_strategy="no",
        report_to=[],
        use_cpu=given.device == "cpu",
        bf16=False,
        model_init_kwargs={"dtype": given.dtype},
        disable_tqdm=True,
    )
    named = one_turn(job) if job.env.turns == 1 else several_turns(job)
    trainer = StepByStep(model=str(job.folder), processing_class=job.tokenizer, args=options, **named)
    trainer.clock = clock
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_Stepper(clock, parts))

    def steps(count: int) -> None:
        trainer.args.max_steps = count
        trainer.train()

    return clock, steps


class _Stepper(transformers.TrainerCallback):
    """Begins a step of the clock, and adds the time from the backward pass to the end of the step."""

    def __init__(self, clock: Clock, parts: int) -> None:
        self.clock, self.parts, self.after = clock, parts, 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.clock.begin()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.after = seconds(self.clock.device)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.clock.steps[-1]["update"] += seconds(self.clock.device) - self.after


def one_turn(job: Job) -> dict[str, Any]:
    """Prompts as text, forced opening tag included, and the environment's reward of one reply."""
    renderer = job.renderer([])
    texts: dict[str, Task] = {}
    for task in job.tasks:
        observation = job.env.episode().start(task, 0)
        texts[renderer.start([Message("user", observation.text)]).text] = task

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        rewards = []
        for prompt, completion in zip(prompts, completions, strict=True):
            environment = job.env.episode()
            environment.start(texts[prompt], 0)
            rewards.append(sum(environment.step(job.tags.open + completion).rewards.values()))
        return rewards

    return {"reward_funcs": reward, "train_dataset": datasets.Dataset.from_dict({"prompt": list(texts)})}


def several_turns(job: Job) -> dict[str, Any]:
    """Whole episodes through `rollout_func`, sampled by TRL's engine."""
    rollouts = to_trl_rollout_func(job.env, tokens_per_turn=job.limit)
    rows = rollouts.dataset(job.given.prompts)
    return {"rollout_func": rollouts, "train_dataset": rows, "reward_funcs": environment_reward}


def compare(given: argparse.Namespace, turns: int) -> dict[str, Any]:
    """Compare both in alternation, after one step each to warm up."""
    job = Job(given, turns)
    clock, step = ours(job)
    step()
    best, pilots = _best_parts(job, given)
    with tempfile.TemporaryDirectory() as folder:
        other, steps = theirs(job, folder, best)
        steps(1)
        for repeat in range(given.repeats):
            for _ in range(given.steps):
                step()
            steps(given.steps)
            print(f"{turns} turns, repeat {repeat}: {_ratio(clock, other, given.steps):.2f}", flush=True)
    rows = {name: _rows(made, given) for name, made in (("heedful", clock), ("trl", other))}
    totals = {name: [sum(row[stage] for stage in STAGES) for row in made] for name, made in rows.items()}
    return {
        "turns": turns,
        "trl_micro_batches": best,
        "trl_seconds_by_micro_batches": pilots,
        "stages": {
            name: {stage: round(statistics.median(row[stage] for row in made), 3) for stage in (*STAGES, "tokens")}
            for name, made in rows.items()
        },
        "seconds_per_step": {
            name: {"median": round(statistics.median(made), 3), "range": [round(min(made), 3), round(max(made), 3)]}
            for name, made in totals.items()
        },
        "ratio": _spread([theirs / own for own, theirs in zip(totals["heedful"], totals["trl"], strict=True)]),
        "ratio_per_token": _spread(
            [
                (theirs / other_row["tokens"]) / (own / own_row["tokens"])
                for own, theirs, own_row, other_row in zip(
                    totals["heedful"], totals["trl"], rows["heedful"], rows["trl"], strict=True
                )
            ]
        ),
    }


def _best_parts(job: Job, given: argparse.Namespace) -> tuple[int, dict[int, float]]:
    """The number of micro-batches with which TRL's update is fastest, and seconds of the update with each."""
    updates = {}
    for parts in given.parts:
        with tempfile.TemporaryDirectory() as folder:
            clock, steps = theirs(job, folder, parts)
            steps(1 + given.pilots)
        updates[parts] = round(min(row["update"] for row in clock.steps[1:]), 3)
    return min(updates, key=lambda parts: updates[parts]), updates


def _peak(given: argparse.Namespace) -> dict[str, Any]:
    """The peak of the process's memory over two steps of one side, in MB, and before the first one."""
    job = Job(given, given.turns[0])
    with tempfile.TemporaryDirectory() as folder:
        if given.memory == "heedful":
            _, step = ours(job)
            before = _largest_mb()
            step()
            step()
        else:
            _, steps = theirs(job, folder, given.parts[0])
            before = _largest_mb()
            steps(2)
    return {"side": given.memory, "trl_micro_batches": given.parts[0], "before_mb": before, "peak_mb": _largest_mb()}


def _largest_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _rows(clock: Clock, given: argparse.Namespace) -> list[dict[str, float]]:
    """The mean step of each repeat, without the warm-up steps."""
    steps = clock.steps[-given.repeats * given.steps :]
    chunks = [steps[start : start + given.steps] for start in range(0, len(steps), given.steps)]
    return [{name: statistics.fmean(row[name] for row in chunk) for name in chunk[0]} for chunk in chunks]


def _ratio(own: Clock, other: Clock, steps: int) -> float:
    last = [[sum(row[stage] for stage in STAGES) for row in clock.steps[-steps:]] for clock in (own, other)]
    return sum(last[1]) / sum(last[0])


def _spread(ratios: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(ratios), 2), "range": [round(min(ratios), 2), round(max(ratios), 2)]}


def main() -> None:
    given = _arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    if given.memory:
        print(json.dumps(_peak(given)))
        return
    result = {
        "benchmark": "training_step",
        "model": Path(given.model).name if given.model else "seedling",
        "env": given.env,
        "episodes": f"{given.prompts} prompts x {given.members} members",
        "steps": given.steps,
        "repeats": given.repeats,
        "threads": given.threads,
        "device": name_of(given.device),
        "dtype": given.dtype,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
        "machine": platform.machine(),
        "comparisons": [compare(given, turns) for turns in given.turns],
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="frozen_lake", help="preset whose seedling is trained")
    parser.add_argument("--model", help="folder of a model to train in place of the seedling")
    parser.add_argument("--tokens", type=int, help="most tokens of a reply; default: the preset's")
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2, 4, 8], help="micro-batches to try for TRL")
    parser.add_argument("--pilots", type=int, default=2, help="timed steps of each of these tries")
    parser.add_argument("--memory", choices=("heedful", "trl"), help="measure the memory of this side only")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 5], help="turns of an episode, each compared")
    parser.add_argument("--steps", type=int, default=3, help="steps of each side before the other one's turn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the weights")
    parser.add_argument("--micro-batch-tokens", type=int, default=1024, help="heedful's bound, its default")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
