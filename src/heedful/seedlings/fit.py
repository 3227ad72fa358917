"""Supervised learning of demonstrated replies, for a seedling and for the warm start of a loaded model.

It goes on after an interruption, from a copy of what was learned (`Copy`).
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from heedful.boundary.jsontext import expecting
from heedful.models.forward.token_logits import keeps_prompts, token_logits
from heedful.models.writing import errors_of_the_disk
from heedful.stopping import StoppedBySignal, StopRequest, finish_the_step_first
from heedful.storage import held, naming_a_full_disk
from heedful.training.batch import cut_micro_batches, pass_tokens
from heedful.types import TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state of each parameter."""

SAVED_EVERY = 180.0
"""Seconds between two copies of an unfinished model."""

Progress = Callable[[int, int, float], None]
"""Called with (step, steps, loss)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate over the steps: linear warm-up over 1/25 of them, then a cosine to a tenth of `peak`."""

    steps: int
    peak: float

    def at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warmup = max(1, self.steps // 25)
        cosine = 0.5 * (1 + math.cos(math.pi * max(0, step - warmup) / max(1, self.steps - warmup)))
        return self.peak * min(1.0, (step + 1) / warmup) * (0.1 + 0.9 * cosine)


def half_is_fast(device: torch.device) -> bool:
    """Whether bfloat16 matrices are multiplied faster than float32 ones: on GPUs, and CPUs with instructions for it."""
    if device.type == "cpu":
        found = torch.cpu.get_capabilities()
        return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


class Fit:
    """A model in training by next-token prediction, averaged over all trained tokens of a step.

    AdamW with betas .9 and .95 and no weight decay, gradient norm clipped at 1. `step` counts the steps done.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        schedule: Schedule,
        micro_batch_tokens: int,
        *,
        share_beginning: bool = False,
        half: bool = False,
    ) -> None:
        """The parameters of `model` that need gradients are trained in place.

        `share_beginning`: read once what all rows of a micro-batch begin with, where the model allows it. `half`:
        multiply matrices in bfloat16. Weights, sums of gradients and optimizer states keep their type.
        """
        self.step = 0
        self._model = model
        self._schedule = schedule
        self._micro_batch_tokens = micro_batch_tokens
        self._share = share_beginning and keeps_prompts(model)
        self._half = half
        self._per_pass = pass_tokens(model, model.device)
        self._logits_at_trained = token_logits(model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=schedule.peak, betas=(0.9, 0.95), weight_decay=0.0)

    def learn(self, samples: Sequence[TrainingSample]) -> float:
        """Take one step. Returns the loss in nats per token."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.at(self.step)
        tokens = sum(sum(sample.trained) for sample in samples)
        loss_sum = 0.0
        for batch in cut_micro_batches(
            samples,
            [1.0] * len(samples),
            self._micro_batch_tokens,
            self._model.device,
            share_beginning=self._share,
            per_pass=self._per_pass,
        ):
            targets_N = batch.ids_BT[:, 1:][batch.trained_BT[:, 1:]]
            with torch.autocast(self._model.device.type, torch.bfloat16, enabled=self._half):
                logits_NV = self._logits_at_trained(batch.ids_BT, batch.trained_BT, batch.prompts)
            loss = torch.nn.functional.cross_entropy(logits_NV.float(), targets_N, reduction="sum") / tokens
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss_sum

    def save(self, path: Path) -> None:
        """Write what the next step needs into one file. It replaces an earlier one whole.

        Raises OSError, with its number, when the disk does not take it. An earlier file stays.
        """
        tensors = {f"{place}.weight": parameter.detach() for place, parameter in enumerate(self._parameters)}
        for place, state in self._optimizer.state_dict()["state"].items():
            tensors |= {f"{place}.{name}": tensor for name, tensor in state.items()}
        unfinished = path.with_suffix(".part")
        try:
            with errors_of_the_disk(path):
                save_file(tensors, unfinished, metadata={"step": str(self.step)})
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Go on after the step at which `path` was written. Raises SafetensorError for a damaged file."""
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            self.step = int(file.metadata()["step"])
        states = []
        for place, parameter in enumerate(self._parameters):
            parameter.copy_(tensors[f"{place}.weight"])
            # A parameter that no gradient reached has no moments.
            states.append({part: tensors[f"{place}.{part}"] for part in _MOMENTS if f"{place}.{part}" in tensors})
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": dict(enumerate(states)), "param_groups": groups})


@dataclass(frozen=True, slots=True)
class Copy:
    """The file that holds what an interrupted process has learned."""

    file: Path
    what: str
    """What is learned: 'seedling' or 'warm start'."""


@contextmanager
def unfinished(path: Path, what: str) -> Iterator[Copy]:
    """Hold the folder beside `path`, the folder of the finished model, in which the copy is. It is removed at the end.

    Raises:
        InUse: another process is learning the same.
        DiskFull: there is no room. A copy that was saved before stays.
    """
    folder = path.with_name(f"{path.name}.unfinished")
    with naming_a_full_disk(path, kept=f"what {folder} holds of this {what}"), held(folder):
        yield Copy(folder / "fit.safetensors", what)
    shutil.rmtree(folder, ignore_errors=True)


def learn(fit: Fit, rows: Iterator[list[TrainingSample]], steps: int, progress: Progress, copy: Copy | None) -> None:
    """Take the steps that are left of `steps`. `rows`: those of every step, from the first one.

    A first Ctrl-C, or a scheduler's signal, saves a copy and ends the program. `copy=None`: nothing is saved.

    Raises:
        ValueError: the copy is damaged.
        StoppedBySignal: a signal came, and what is learned is saved.
    """
    if copy is not None and copy.file.exists():
        advice = f"Delete the folder {copy.file.parent} to begin the {copy.what} again."
        with expecting(f"the copy of an unfinished {copy.what} in {copy.file}", advice, also=(SafetensorError,)):
            fit.load(copy.file)
    saved = time.monotonic()
    with finish_the_step_first() if copy is not None else nullcontext(StopRequest()) as request:
        for samples in islice(rows, fit.step, steps):
            loss = fit.learn(samples)
            progress(fit.step, steps, loss)
            if copy is not None and (request.asked or time.monotonic() > saved + SAVED_EVERY):
                fit.save(copy.file)
                saved = time.monotonic()
                if request.asked:
                    raise StoppedBySignal(
                        request.signal,
                        f"the {copy.what} is saved after step {fit.step} of {steps}, and goes on from there",
                    )
