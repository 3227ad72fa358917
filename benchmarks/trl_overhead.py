"""Cost and savings of heedful inside TRL: CPU seconds per training step of one GRPO job, with and without it.

Every variant trains the same model on the same prompts and the same recorded episodes, which a plain trainer sampled
once. So the times contain rewards, filter, diagnostics, forward and backward passes and the optimiser, but no noise of
sampling. The cost of sampling is measured separately, through TRL's engine and through heedful's sampler. The variants
take turns, in another order in each repeat.

    python benchmarks/trl_overhead.py --repeats 3 --out benchmarks/results/trl_overhead.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import transformers
import trl
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from heedful.boundary import to_json
from heedful.filters import KeepAll, TopP
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer, Probe, environment_reward, to_trl_rollout_func
from heedful.integrations.trl.rollouts import EnvironmentRollouts
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.run.presets import preset
from heedful.seedlings.grow import load_seedling

OFF = DiagnosticsConfig(enabled=False)
WHOLE = DiagnosticsConfig(share=None)
"""Nothing is thinned."""
VARIANTS: dict[str, HeedfulConfig | None] = {
    "plain": None,
    "keep_all": HeedfulConfig(filter=KeepAll(on="outcome"), diagnostics=OFF, record=False),
    "filter": HeedfulConfig(filter=TopP(on="outcome"), diagnostics=OFF, record=False),
    "filter_record": HeedfulConfig(filter=TopP(on="outcome"), diagnostics=OFF),
    "filter_diagnostics": HeedfulConfig(filter=TopP(on="outcome"), diagnostics=WHOLE),
    "probe": HeedfulConfig(filter=KeepAll(on="outcome"), diagnostics=WHOLE),
}
"""Name -> settings. None = TRL alone."""


class Tape(EnvironmentRollouts):
    """Plays episodes, or plays back recorded ones, batch by batch."""

    def __init__(self, played: EnvironmentRollouts) -> None:
        self.__dict__ |= played.__dict__
        self.batches: list[dict[str, Any]] = []
        self.recording = True
        self.place = 0

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, Any]:
        if self.recording:
            self.batches.append(super().__call__(prompts, trainer))
            return self.batches[-1]
        self.place += 1
        return self.batches[self.place - 1]


class Clock(TrainerCallback):
    """CPU seconds of each step, counted from the end of the previous step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.before = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.before = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds.append(time.process_time() - self.before)


class Job:
    """One job of TRL, created again for each variant."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        config = preset(arguments.env)
        knobs = to_json(config.env)
        _, self.tokenizer, self.model = load_seedling(
            config.seedling, config.env, knobs, config.tags, lambda *progress: None
        )
        self.env, self.tokens, self.arguments = config.env, config.sampling.tokens_per_turn, arguments

    def rollouts(self, sampler: Any = None) -> EnvironmentRollouts:
        return to_trl_rollout_func(self.env, tokens_per_turn=self.tokens, sampler=sampler)

    def own_sampler(self, trainer: Any, batch: int) -> HFPolicy:
        renderer = Renderer(self.tokenizer, Tags(), {}, trainer.eos_token_ids)
        return HFPolicy(trainer.model, renderer, Sampling(tokens_per_turn=self.tokens), seed=batch)

    def trainer(self, folder: str, rollouts: EnvironmentRollouts, kind: Callable[..., Any], **named: Any) -> Any:
        given = self.arguments
        options = GRPOConfig(
            output_dir=folder,
            max_steps=given.steps,
            per_device_train_batch_size=given.prompts * given.members // 2,
            gradient_accumulation_steps=2,
            num_generations=given.members,
            max_completion_length=self.env.turns * 2 * self.tokens,
            learning_rate=8e-5,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        functions = {"reward_funcs": environment_reward} | named
        trainer = kind(
            model=str(self.model),
            processing_class=self.tokenizer,
            rollout_func=rollouts,
            train_dataset=rollouts.dataset(given.tasks),
            args=options,
            **functions,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def train(self, tape: Tape, name: str) -> list[float]:
        """CPU seconds of each step of a variant."""
        settings, clock, tape.place = VARIANTS[name], Clock(), 0
        with tempfile.TemporaryDirectory() as folder:
            if name == "plain":
                trainer = self.trainer(folder, tape, GRPOTrainer)
            elif name == "probe":
                probe = Probe(settings)
                trainer = self.trainer(folder, tape, GRPOTrainer, reward_funcs=[environment_reward, probe])
                probe.attach(trainer)
            else:
                trainer = self.trainer(folder, tape, HeedfulGRPOTrainer, heedful=settings)
            trainer.add_callback(clock)
            trainer.train()
        return clock.seconds

    def sample(self, repeats: int) -> dict[str, list[float]]:
        """Sampled tokens per CPU second of one batch of episodes, environments included. The samplers alternate."""
        ways = {"engine": self.rollouts(), "heedful": self.rollouts(self.own_sampler)}
        found: dict[str, list[float]] = {name: [] for name in ways}
        with tempfile.TemporaryDirectory() as folder:
            trainer = self.trainer(folder, ways["engine"], GRPOTrainer)
            trainer.model.train()
            for way in ways.values():
                rows = way.dataset(self.arguments.prompts)
            prompts = [row["prompt"] for row in rows for _ in range(self.arguments.members)]
            for repeat in range(repeats + 1):
                for name, way in ways.items():
                    start = time.process_time()
                    batch = way(prompts, trainer)
                    seconds = time.process_time() - start
                    if repeat:  # the first of each warms up
                        found[name].append(_tokens(batch) / seconds)
        return found


def main() -> None:
    arguments = _arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    job = Job(arguments)
    tape = Tape(job.rollouts())
    job.train(tape, "plain")  # warms up, and records
    tape.recording = False
    names = list(VARIANTS)
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    for repeat in range(arguments.repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            seconds[name].append(job.train(tape, name))
            print(f"{repeat} {name}: {statistics.fmean(seconds[name][-1]):.3f} s per step", flush=True)
    sampled = job.sample(arguments.repeats + 2)
    tokens = statistics.fmean(map(_tokens, tape.batches))
    result = {
        "benchmark": "trl_overhead",
        "model": {"seedling": arguments.env, "parameters": _parameters(job)},
        "episodes": f"{arguments.prompts} prompts x {arguments.members} members",
        "sampled_tokens_per_step": round(tokens),
        "steps": arguments.steps,
        "repeats": arguments.repeats,
        "threads": arguments.threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
        "machine": platform.machine(),
        "cpu_seconds_per_step": {name: _row(runs, seconds["plain"]) for name, runs in seconds.items()},
        "sampled_tokens_per_cpu_second": {
            name: {"median": round(statistics.median(rates)), "range": [round(min(rates)), round(max(rates))]}
            for name, rates in sampled.items()
        },
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def _row(runs: list[list[float]], plain: list[list[float]]) -> dict[str, Any]:
    """Means over the steps of a run: median and spread over the repeats, and the ratio to plain TRL."""
    means = [statistics.fmean(run) for run in runs]
    ratios = [mean / statistics.fmean(other) for mean, other in zip(means, plain, strict=True)]
    full, cheap = DiagnosticsConfig().full_every, DiagnosticsConfig().every
    kinds = {
        "full": [run[step] for run in runs for step in range(len(run)) if step % full == 0],
        "cheap": [run[step] for run in runs for step in range(len(run)) if step % full and step % cheap == 0],
        "other": [run[step] for run in runs for step in range(len(run)) if step % cheap],
    }
    return {
        "median": round(statistics.median(means), 3),
        "range": [round(min(means), 3), round(max(means), 3)],
        "of_plain": round(statistics.median(ratios), 3),
        "of_plain_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "steps": {name: round(statistics.median(values), 3) for name, values in kinds.items() if values},
    }


def _tokens(batch: dict[str, Any]) -> int:
    return sum(map(sum, batch["env_mask"]))


def _parameters(job: Job) -> int:
    model = transformers.AutoModelForCausalLM.from_pretrained(job.model)
    return sum(parameter.numel() for parameter in model.parameters())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="frozen_lake", help="preset whose seedling is trained")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=512, help="prompts in the data set")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
