"""Starting points: one function per environment that returns the whole configuration of a run.

A preset is plain data. `--print-config` shows everything that it sets, and flags override it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful import envs
from heedful.algorithms.table import ALGORITHMS, Grpo
from heedful.envs.common.contract import own_environment
from heedful.filters import Softmax, TopP
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.models.cache import GEMMA3, SMOLLM2
from heedful.policies.sampling import Sampling
from heedful.protocols import Demonstrates
from heedful.run.config import EvaluationConfig, TrainConfig
from heedful.seedlings.recipe import Seedling, WarmStart, nano
from heedful.training.settings import CriticConfig, LoraConfig, OptimizerConfig

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


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": ffn}
    usual = {"model_type": "qwen2", "vocab_size": 151_936, "tie_word_embeddings": True}
    return {**usual, **sizes, "num_key_value_heads": kv_heads, **more}


_QWEN_3B = _shape(2048, 36, 16, 2, 11_008)
_TOWER = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": 2048}
_VL = {"model_type": "qwen2_5_vl", "vision_config": _TOWER, "tie_word_embeddings": True}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2.5-0.5B": _shape(896, 24, 14, 2, 4864),
    "Qwen/Qwen2.5-1.5B": _shape(1536, 28, 12, 2, 8960),
    "Qwen/Qwen2.5-3B": _QWEN_3B,
    "Qwen/Qwen2.5-7B": _shape(3584, 28, 28, 4, 18_944, vocab_size=152_064, tie_word_embeddings=False),
    "Qwen/Qwen2.5-3B-Instruct": _QWEN_3B,
    "meta-llama/Llama-3.2-3B-Instruct": _shape(3072, 28, 24, 8, 8192, vocab_size=128_256, model_type="llama"),
    "Qwen/Qwen2.5-VL-3B-Instruct": {**_VL, "text_config": {**_QWEN_3B, "model_type": "qwen2_5_vl_text"}},
}
"""The models of the paper's table, and the sizes in their config.json, for an estimate without a download."""

_COLUMNS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "sokoban": ("sokoban", {"shortest": 1, "show_reward": True}),
    "frozen_lake": ("frozen_lake", {"shortest": 1, "show_reward": True, "frozen": 0.9}),
    "metamath": ("math", {"turns": 1, "path": "meta-math/MetaMathQA"}),
    "countdown": ("countdown", {"operations": ("+", "-")}),
}
_COLUMNS_VL: Mapping[str, tuple[str, dict[str, Any]]] = {
    f"{env}{shown}": (env, {"shortest": 1, "actions_per_turn": most, "observation": shown[1:] or "grid"})
    for shown in ("", "_image")
    for env, most in (("sokoban", 3), ("frozen_lake", 5))
}


def _cell(column: str, algorithm: str, model: str) -> TrainConfig:
    """A cell of the main table of RAGEN-2 (arXiv:2604.06268) with the filter, not run at this size.

    Source: `scripts/runs/run_main_table_*.sh` and `config/base.yaml` of mll-lab-nu/RAGEN at commit 20daedc. Qwen2.5-VL:
    `examples/train/*/*qwen25vl3b*.sh` of mll-lab-nu/VAGEN at commit 2936322. Deviations: docs/results/paper.md.
    """
    sees = "-VL-" in model
    env, knobs = (_COLUMNS_VL if sees else _COLUMNS)[column]
    config = TrainConfig(env=_env(env, **knobs), steps=400, groups=8, group_size=16, checkpoint_every=100)
    if sees:
        config = dataclasses.replace(config, steps=401, groups=32, group_size=8, loss_scale="sqrt")
    clip: dict[str, Any] = {"minibatches": 1} if sees else {"minibatches": 4, "clip_high": 0.28, "entropy": 0.001}
    # The published arm DAPO has PPO's settings. Here it has DAPO's advantages. Neither draws further prompts.
    draws: dict[str, Any] = {"sampling_batches": 1, "overlong_buffer": 0.0} if algorithm == "dapo" else {}
    return dataclasses.replace(
        loaded(config, model),
        algorithm=ALGORITHMS[algorithm](**clip, **draws),
        filter=TopP(p=0.9, on="reward") if sees else Softmax(p=0.9, on="reward"),
        sampling=Sampling(tokens_per_turn=512 if sees else 400),
        optimizer=OptimizerConfig(lr=1e-6, warmup_steps=0, betas=(0.9, 0.999), weight_decay=0.01),
        critic=CriticConfig(lr=1e-5, clip=0.5),
        evaluation=EvaluationConfig(tasks=256 if sees else 512, samples=1, times=21 if sees else 41, at_once=128),
        dtype="bfloat16",
        gradient_checkpointing=True,
    )


_ROWS = (*(("ppo", model) for model in SHAPES), *((name, "Qwen/Qwen2.5-3B") for name in ("dapo", "grpo", "dr_grpo")))
PAPER: Mapping[str, Callable[[], TrainConfig]] = {
    f"paper/{column}-{algorithm}-{model.partition('/')[2].lower()}": partial(_cell, column, algorithm, model)
    for algorithm, model in _ROWS
    for column in (_COLUMNS_VL if "-VL-" in model else _COLUMNS)
}
"""The paper's main table, as `heedful train paper/ENV-ALGORITHM-MODEL`. `--filter keep_all` takes the filter away."""

PRESETS: Mapping[str, Callable[[], TrainConfig]] = {
    make.__name__: make
    for make in (
        *(frozen_lake, sokoban, frozen_lake_image, sokoban_image, bandit, echo, chain, math, countdown, shop),
        *(gymnasium, reasoning_gym),
    )
}
"""The starting points of `heedful train NAME`."""


def starting_points() -> list[str]:
    """The names that `preset` knows: presets, registered environments, and the pattern of the paper's table."""
    return list(dict.fromkeys([*PRESETS, *envs.ENVIRONMENTS, "paper/ENV-ALGORITHM-MODEL"]))


def preset(name: str, model: str | None = None) -> TrainConfig:
    """The preset of this name, or defaults for a registered environment or your own one, given as `module:Class`.

    With a model other than the seedling the instructions become full English and the limits become those of a chat
    model. The caller vouches for a `module:Class`: it is imported. Names found in files are never passed on to here
    before `configuration.trust` was asked.

    Raises:
        ValueError: there is no such preset, or the module or class cannot be found.
    """
    if name in PAPER:
        config = PAPER[name]()
        return config if model is None else dataclasses.replace(config, model=model)
    if name in PRESETS:
        config = PRESETS[name]()
    elif name in envs.ENVIRONMENTS or ":" in name:
        config = TrainConfig(env=own_environment(name) if ":" in name else _env(name))
    else:
        known = starting_points()
        raise ValueError(
            f"There is no environment or preset named {name!r}; known are {', '.join(known)}, or your own as "
            f"module:Class.{did_you_mean(name, [*known, *PAPER])}"
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
