"""What the tests of the TRL integration share: a model of some thousand weights, a tokenizer of bytes, and rollouts
that are written down.

A `Script` says, for each prompt, what every member of its group answers and what that is worth, so a test knows the
batch that TRL trains on to the last id. To be imported after `pytest.importorskip("trl")`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # read when a trainer with a rollout_func is made

import datasets
import pytest
import torch
import transformers
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils

from heedful.filters import DropConstant
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.protocols import Filter
from heedful.seedlings.tokenizer import grow_tokenizer
from heedful.storage import Rollouts, RunFolder, StepMetrics, read_metrics, read_rollouts
from heedful.training.ranks.sharding import whole_tensor
from tiny_models import llama

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
END = 1
"""The id of the end-of-turn token."""
MEASURED = HeedfulConfig(
    filter=DropConstant(on="reward"), diagnostics=DiagnosticsConfig(every=1, full_every=1, share=None)
)
"""A filter, and every measurement at every step, none of them thinned."""

Reward = float | None
Rewards = Mapping[str, Reward]
"""Reward function -> what it gives."""


class LogProbs:
    """A stand-in for a kernel of TRL 1.15, which needs Triton. Other releases compute this loss on a CPU by themselves.

    Triton's interpreter computes it on a CPU, too, and takes hours for these tests.
    """

    @staticmethod
    def apply(
        hidden_ND: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        targets_N: torch.Tensor,
        temperature: float,
        chunk_size: int,
        softcap: float | None = None,
        scale: float = 1.0,
        outputs: Sequence[str] = (),
    ) -> tuple[torch.Tensor | None, ...]:
        logits_NV = functional.linear(hidden_ND, weight_VD, bias_V) * scale
        capped_NV = logits_NV if softcap is None else softcap * torch.tanh(logits_NV / softcap)
        logprobs_NV = (capped_NV / temperature).log_softmax(-1)
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1) if "entropy" in outputs else None
        return logprobs_NV.gather(1, targets_N[:, None])[:, 0], entropy_N, None, None, None


if vars(utils).get("_ChunkedLogProbFunction", LogProbs) is None:
    utils._ChunkedLogProbFunction = LogProbs


def save_model(folder: Path) -> Path:
    """A random Llama in float64 with a tokenizer of bytes, as a folder: TRL loads its reference model by name."""
    tokenizer = grow_tokenizer([], 5 + 256 + len(TAGS), 4096, TAGS)
    llama(len(tokenizer), window=4096).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class Scripted:
    """One prompt, and what each member of its group answers."""

    prompt: str
    answers: tuple[tuple[int, ...], ...]
    rewards: tuple[Rewards, ...]
    masks: tuple[tuple[int, ...], ...] | None = None
    """1 = sampled, 0 = written by an environment; `None` = all sampled."""


def written(rewards: Sequence[Sequence[Reward | Rewards]], seed: int = 0) -> list[Scripted]:
    """A task for each row of rewards, with prompts and answers of unequal lengths. A number is that of `score`."""
    rng = random.Random(seed)
    tasks = []
    for number, row in enumerate(rewards):
        named = tuple(value if isinstance(value, Mapping) else {"score": value} for value in row)
        answers = tuple((*(rng.randrange(5, 260) for _ in range(rng.randint(2, 9))), END) for _ in row)
        tasks.append(Scripted(f"{number}{'?' * rng.randint(1, 6)}", answers, named))
    return tasks


class Script:
    """A `rollout_func` that answers as written, whatever the weights."""

    def __init__(self, tasks: Sequence[Scripted]) -> None:
        self._tasks = {task.prompt: task for task in tasks}

    def dataset(self) -> Any:
        return datasets.Dataset.from_list([{"prompt": prompt} for prompt in self._tasks])

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        first = trainer.accelerator.process_index * len(prompts)
        drawn = [(self._tasks[prompt], (first + row) % trainer.num_generations) for row, prompt in enumerate(prompts)]
        rows: dict[str, Any] = {
            "prompt_ids": [trainer.processing_class(task.prompt)["input_ids"] for task, _ in drawn],
            "completion_ids": [list(task.answers[member]) for task, member in drawn],
            "logprobs": [[-4.0 - token % 3 for token in task.answers[member]] for task, member in drawn],
            "given": [task.rewards[member] for task, member in drawn],
        }
        if all(task.masks is not None for task, _ in drawn):
            rows["env_mask"] = [list((task.masks or ())[member]) for task, member in drawn]
        return rows


def reward_named(name: str) -> Callable[..., list[Reward]]:
    """The reward function of that name: it gives what the script says."""

    def as_written(given: list[Rewards], **_: Any) -> list[Reward]:
        return [row[name] for row in given]

    as_written.__name__ = name
    return as_written


class Gradients(TrainerCallback):
    """Notes the gradient of every optimiser step, as one row of numbers."""

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters() if p.requires_grad]
        self.steps.append(torch.cat([whole_tensor(gradient.detach()).clone().flatten() for gradient in found]))


def arguments(folder: Path, made: Any = GRPOConfig, **changes: Any) -> Any:
    """TRL's arguments for a run of one step, in the order of the dataset, that neither saves nor prints."""
    chosen: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "learning_rate": 0.0,
        "shuffle_dataset": False,
        "max_completion_length": 16,
        "seed": 3,
    }
    return made(**(chosen | changes))


def trainer_of(
    folder: Path,
    args: GRPOConfig,
    script: Script | None = None,
    *,
    heedful: HeedfulConfig | None = None,
    functions: Sequence[str] = ("score",),
    **others: Any,
) -> Any:
    """TRL's own trainer, or ours where `heedful` is given; with the model in `folder` and on a script, unless `others`
    say otherwise."""
    common: dict[str, Any] = {
        "model": AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64),
        "args": args,
        "reward_funcs": [reward_named(name) for name in functions],
        "processing_class": AutoTokenizer.from_pretrained(folder),
    }
    if script is not None:
        common |= {"train_dataset": script.dataset(), "rollout_func": script}
    common |= others
    made = GRPOTrainer(**common) if heedful is None else HeedfulGRPOTrainer(heedful=heedful, **common)
    made.remove_callback(PrinterCallback)
    return made


def filtering(chosen: Filter | None = None, **changes: Any) -> HeedfulConfig:
    """A filter and nothing else: no measurement with the model, no record."""
    settings: dict[str, Any] = {
        "filter": chosen or DropConstant(on="reward"),
        "diagnostics": DiagnosticsConfig(enabled=False),
        "record": False,
    }
    return HeedfulConfig(**(settings | changes))


def weights_of(trainer: Any) -> torch.Tensor:
    """All weights as one row of numbers."""
    return torch.cat([whole_tensor(parameter.detach()).clone().flatten() for parameter in trainer.model.parameters()])


def recorded(folder: Path, step: int = 0) -> tuple[Rollouts, StepMetrics]:
    """What the record holds of a step."""
    run = RunFolder(folder / "heedful")
    return read_rollouts(run.rollouts(step)), list(read_metrics(run.metrics))[step]


def differing(completions: Sequence[Any], **_: Any) -> list[float]:
    """A reward that random bytes differ in."""
    texts = [completion if isinstance(completion, str) else completion[0]["content"] for completion in completions]
    return [float(sum(map(ord, text)) % 7) for text in texts]


def prompts(kind: str) -> Any:
    """Twice two prompts; those of the plain kind end in the opening tag."""
    if kind == "plain":
        return datasets.Dataset.from_list([{"prompt": f"Say {n}!<think>"} for n in range(4)])
    return datasets.Dataset.from_list([{"prompt": [{"role": "user", "content": f"Say {n}!"}]} for n in range(4)])


def lora(dropout: float = 0.1) -> Any:
    """An adapter; skips where peft is not installed. TRL 1.14 makes its weights before it sets a seed."""
    torch.manual_seed(3)
    peft = pytest.importorskip("peft", reason="peft is not installed")
    return peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules=["q_proj", "v_proj"])
