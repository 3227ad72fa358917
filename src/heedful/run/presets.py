"""Starting points: one function per environment that returns the whole configuration of a run.

A preset is plain data. `--print-config` shows everything that it sets, and flags override it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful import envs
from heedful.algorithms.table import Grpo
from heedful.envs.common.contract import own_environment
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.models.cache import GEMMA3, SMOLLM2
from heedful.policies.sampling import Sampling
from heedful.protocols import Demonstrates
from heedful.run.config import EvaluationConfig, TrainConfig
from heedful.seedlings.recipe import Seedling, WarmStart, nano
from heedful.training.settings import LoraConfig, OptimizerConfig

_SYSTEM = Path("/sys/devices/system/cpu")


def frozen_lake() -> TrainConfig:
    """The main job: FrozenLake 4x4 on the built-in seedling, minutes on two cores."""
    return TrainConfig(
        env=_env("frozen_lake", instructions="brief"),
        # With the average over sequences, short failed episodes weigh more per token, and the greedy policy got worse.
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=8e-5),
    )


def sokoban() -> TrainConfig:
    """Sokoban 6x6 with one box on the built-in seedling."""
    return TrainConfig(
        env=_env("sokoban", instructions="brief"),
        seedling=Seedling(steps=500),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=8e-5),
    )


def frozen_lake_image() -> TrainConfig:
    """FrozenLake 4x4 shown as a picture and in no other way, on a seedling that sees."""
    # After 600 steps it reads the picture and plans badly: sampled success .26 instead of .55.
    return _as_picture(frozen_lake(), growth=1200, tokens=80, lr=2e-4)


def sokoban_image() -> TrainConfig:
    """Sokoban 6x6 with one box shown as a picture and in no other way, on a seedling that sees."""
    return _as_picture(sokoban(), growth=3000, tokens=112, lr=8e-5)


def _as_picture(config: TrainConfig, growth: int, tokens: int, lr: float) -> TrainConfig:
    """The board as a picture alone. `growth`: steps of few episodes, since a tower needs many updates."""
    small = {"hidden": 96, "layers": 3, "heads": 4, "kv_heads": 2, "ffn": 288}
    return dataclasses.replace(
        config,
        env=dataclasses.replace(config.env, observation="image", cell=8, thoughts="board"),
        seedling=Seedling(**small, steps=growth, episodes=8, imperfect=0.2, vision_width=48),
        optimizer=OptimizerConfig(lr=lr),
        steps=60,
        sampling=Sampling(tokens_per_turn=tokens),
    )


def bandit() -> TrainConfig:
    """Bandit on the nano seedling: a run of about a minute."""
    return TrainConfig(env=_env("bandit", instructions="brief"), seedling=nano(), steps=40)


def echo() -> TrainConfig:
    """Echo on the nano seedling: the smallest whole run, for a first look and for the tests."""
    return TrainConfig(
        env=_env("echo", instructions="brief"),
        seedling=nano(),
        steps=20,
        groups=8,
        optimizer=OptimizerConfig(lr=1e-3),
        sampling=Sampling(tokens_per_turn=24),
        evaluation=EvaluationConfig(tasks=128),  # Echo has fewer than 256 distinct start states in a held-out split
    )


def chain() -> TrainConfig:
    """Chain modulo 7, where the answer is only in the thought: two to three minutes, growth included."""
    return TrainConfig(
        env=_env("chain", instructions="brief"),
        seedling=Seedling(init=0.06, steps=200, imperfect=0.2),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=1.5e-4),
        steps=30,
        sampling=Sampling(tokens_per_turn=40),
        evaluation=EvaluationConfig(tasks=512, samples=2),
    )


def math() -> TrainConfig:
    """Word problems with numbers up to 12 and two attempts, on the built-in seedling."""
    return TrainConfig(
        env=_env("math", instructions="brief", turns=2, most=2, largest=12),
        # After 500 steps even the greedy policy does not know the sums of held-out problems (.79 instead of .90).
        seedling=Seedling(init=0.06, steps=800, imperfect=0.35),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=1e-4),
        steps=40,
        groups=32,
        sampling=Sampling(tokens_per_turn=40),
    )


def countdown() -> TrainConfig:
    """Countdown with three numbers of at most 12, + - * and targets of at most 30, on the built-in seedling."""
    small = {"most_numbers": 3, "largest": 12, "lowest_target": 1, "highest_target": 30, "largest_step": 30}
    return TrainConfig(
        env=_env("countdown", instructions="brief", operations=("+", "-", "*"), **small),
        seedling=Seedling(init=0.06, steps=500, lr=3e-3, imperfect=0.1),
        optimizer=OptimizerConfig(lr=5e-5),
        steps=60,
        sampling=Sampling(tokens_per_turn=144),
        evaluation=EvaluationConfig(tasks=200),  # a tenth of some 2,400 tasks is in a held-out split
    )


def sudoku() -> TrainConfig:
    """Sudoku 4x4 with 3 to 5 empty cells on the built-in seedling."""
    limits = {"least_empties": 3, "most_empties": 5, "turns": 3, "placements_per_turn": 3}
    return TrainConfig(
        env=_env("sudoku", instructions="brief", **limits),
        seedling=Seedling(init=0.06, steps=300, lr=3e-3, imperfect=0.1),
        optimizer=OptimizerConfig(lr=5e-5),
        steps=40,
        sampling=Sampling(tokens_per_turn=112),
    )


def shop() -> TrainConfig:
    """Drawn shops with slots: six products, one option, on a seedling of 0.2 million parameters."""
    small = {"slots": True, "products": 6, "rivals": 5, "types": 6, "attributes": 10, "colours": 4, "sizes": 0}
    return TrainConfig(
        env=_env("shop", instructions="brief", **small),
        seedling=Seedling(hidden=64, ffn=192, init=0.06, steps=400, lr=4e-3, imperfect=0.25),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=1e-4),
        steps=40,
        groups=8,
        sampling=Sampling(tokens_per_turn=96),
        evaluation=EvaluationConfig(samples=2, search_tasks=64),
    )


def gymnasium() -> TrainConfig:
    """A game of gymnasium (Taxi) on the built-in seedling. Needs the extra gymnasium."""
    return TrainConfig(
        env=_env("gymnasium", instructions="brief"),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=8e-5),
        evaluation=EvaluationConfig(tasks=16, samples=16),  # Taxi has 300 start states, 30 of them in a held-out split
    )


def reasoning_gym() -> TrainConfig:
    """A dataset of reasoning-gym (chain_sum) on the built-in seedling. Needs the extra reasoning-gym."""
    return TrainConfig(
        env=_env("reasoning_gym", instructions="brief"),
        seedling=Seedling(init=0.06),
        algorithm=Grpo(average="token"),
        optimizer=OptimizerConfig(lr=8e-5),
        sampling=Sampling(tokens_per_turn=96),
    )


def frozen_lake_qwen_0_5b() -> TrainConfig:
    """FrozenLake on Qwen2.5-0.5B-Instruct, meant for one 24 GB GPU.

    Tested: the same code path with a small Qwen2 of random weights on a CPU. Not tested: this model, a GPU of 24 GB,
    and the learning rate. Memory is set by --micro-batch-tokens and by --groups x --group-size.
    """
    return loaded(frozen_lake(), "Qwen/Qwen2.5-0.5B-Instruct")


def metamath() -> TrainConfig:
    """MetaMathQA, or --env.path FILE with rows like it, on Qwen2.5-0.5B-Instruct, meant for one 24 GB GPU.

    Tested: the same code path with rows of this form and a seedling in place of the model, on a CPU. Not tested: this
    model, a GPU of 24 GB, and the learning rate.
    """
    config = loaded(math(), "Qwen/Qwen2.5-0.5B-Instruct")
    return dataclasses.replace(
        config,
        env=_env("math", path="meta-math/MetaMathQA"),
        sampling=dataclasses.replace(config.sampling, tokens_per_turn=512),
    )


PRESETS: Mapping[str, Callable[[], TrainConfig]] = {
    make.__name__: make
    for make in (
        *(frozen_lake, sokoban, frozen_lake_image, sokoban_image, bandit, echo, chain, math, countdown, sudoku, shop),
        *(gymnasium, reasoning_gym, frozen_lake_qwen_0_5b, metamath),
    )
}
"""The starting points of `heedful train NAME`."""


def starting_points() -> list[str]:
    """The names that `preset` knows: the presets, and the registered environments without one."""
    return list(dict.fromkeys([*PRESETS, *envs.ENVIRONMENTS]))


def preset(name: str, model: str | None = None) -> TrainConfig:
    """The preset of this name, or defaults for a registered environment or your own one, given as `module:Class`.

    With a model other than the seedling the instructions become full English and the limits become those of a chat
    model. The caller vouches for a `module:Class`: it is imported. Names found in files are never passed on to here
    before `configuration.trust` was asked.

    Raises:
        ValueError: there is no such preset, or the module or class cannot be found.
    """
    if name in PRESETS:
        config = PRESETS[name]()
    elif name in envs.ENVIRONMENTS or ":" in name:
        config = TrainConfig(env=own_environment(name) if ":" in name else _env(name))
    else:
        known = starting_points()
        raise ValueError(
            f"There is no environment or preset named {name!r}; known are {', '.join(known)}, or your own as "
            f"module:Class.{did_you_mean(name, known)}"
        )
    if model in (None, "seedling"):
        return config
    sized = {SMOLLM2: on_two_cores, GEMMA3: with_large_vocabulary}.get(str(model))
    return sized(config) if sized else loaded(config, str(model))


def in_full(env: Any) -> Any:
    """The environment with its rules in full. One without such a knob stays as it is.

    The presets of seedlings leave the rules out. People and loaded models need them.
    """
    knobs = {knob.name for knob in dataclasses.fields(env) if knob.init} if dataclasses.is_dataclass(env) else set()
    spoken = "instructions" in knobs and isinstance(env.instructions, str)
    return dataclasses.replace(env, instructions="full") if spoken else env


def loaded(config: TrainConfig, model: str) -> TrainConfig:
    """The configuration for a loaded chat model instead of the seedling. It computes on all cores."""
    env = in_full(config.env)
    if getattr(env, "english", False):
        env = dataclasses.replace(env, thoughts="english")
    return dataclasses.replace(
        config,
        env=env,
        model=model,
        threads=physical_cores(),
        device="auto",
        sampling=dataclasses.replace(config.sampling, tokens_per_turn=256),
        optimizer=dataclasses.replace(config.optimizer, lr=1e-6),
        critic=dataclasses.replace(config.critic, lr=1e-5),
        evaluation=dataclasses.replace(config.evaluation, at_once=128),
        diagnostics=dataclasses.replace(config.diagnostics, share=DiagnosticsConfig().share),
        micro_batch_tokens=8192,
    )


def on_two_cores(config: TrainConfig) -> TrainConfig:
    """The configuration for SmolLM2-135M, which begins with a warm start: sizes for two cores and less than an hour.

    Weights are bfloat16 where the processor has instructions for it, which halves the time of a step. The loss is
    scaled by the share of kept groups: otherwise the few groups that are kept late in a run make updates of full size.
    """
    config = loaded(config, SMOLLM2)
    lr, steps = 8e-5, 16
    if config.env.name == "math":
        # One attempt has fewer tokens than two. At 8e-5 greedy success fell, and replies no longer ended.
        config, lr, steps = dataclasses.replace(config, env=dataclasses.replace(config.env, turns=1)), 3e-5, 20
    warm = isinstance(config.env, Demonstrates)
    return dataclasses.replace(
        config,
        warm_start=WarmStart(steps=60) if warm else WarmStart(),
        dtype="bfloat16" if multiplies_bfloat16() else "float32",
        optimizer=dataclasses.replace(config.optimizer, lr=lr, warmup_steps=2),
        sampling=dataclasses.replace(config.sampling, tokens_per_turn=96),
        loss_scale="all",
        steps=steps,
        groups=8,
        group_size=8,
        diagnostics=dataclasses.replace(config.diagnostics, full_every=steps - 1),  # the first step and the last
        evaluation=dataclasses.replace(config.evaluation, tasks=64, samples=2, times=2),
        micro_batch_tokens=2048,
    )


def with_large_vocabulary(config: TrainConfig) -> TrainConfig:
    """The same for Gemma 3 270M, a base model. Its 262,144 logits a token cost most of the time and memory.

    LoRA keeps gradients and moments small, and leaves the embeddings, two thirds of the weights, as they are.
    """
    config = on_two_cores(config)
    lora = LoraConfig(rank=16)
    warm = dataclasses.replace(config.warm_start, episodes=8, lr=1e-3, micro_batch_tokens=512, lora=lora)
    return dataclasses.replace(
        config,
        model=GEMMA3,
        lora=lora,
        warm_start=warm,
        optimizer=dataclasses.replace(config.optimizer, lr=4e-4),
        steps=8,
        groups=4,
        evaluation=dataclasses.replace(config.evaluation, tasks=32, samples=1),
        diagnostics=dataclasses.replace(config.diagnostics, full_every=7),
        micro_batch_tokens=512,
    )


def _env(name: str, **knobs: Any) -> Any:
    return envs.ENVIRONMENTS.get_class(name)(**knobs)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A closing question with the closest name; empty where none is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def physical_cores(system: Path = _SYSTEM, environment: Mapping[str, str] = os.environ) -> int:
    """The physical cores that this process may use, shared with the other ranks of its machine. At least 1.

    Two hardware threads of one core count once, since they share the units that multiply. Where the system does not say
    which threads belong together, every thread counts. torchrun names the ranks of a machine in `LOCAL_WORLD_SIZE`.
    """
    cores = set()
    for number in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1):
        threads = system / f"cpu{number}" / "topology" / "thread_siblings_list"
        cores.add((threads.read_text(encoding="ascii").strip() if threads.exists() else "") or str(number))
    return max(1, len(cores) // int(environment.get("LOCAL_WORLD_SIZE", "1")))


def multiplies_bfloat16(description: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has instructions that multiply matrices in bfloat16. `False` where nothing says so."""
    text = description.read_text(encoding="utf-8", errors="replace") if description.exists() else ""
    flags = next((line.partition(":")[2].split() for line in text.splitlines() if line.startswith("flags")), [])
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)
