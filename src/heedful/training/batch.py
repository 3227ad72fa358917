"""Training samples as padded tensors, in micro-batches of bounded size.

Every sample is in exactly one micro-batch. How they are split changes memory and speed only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from heedful.models.forward.shared_prompts import PASS, SharedPrompts, cheapest_plans
from heedful.models.forward.token_logits import keeps_prompts
from heedful.training.ranks.sharding import Sharded
from heedful.training.ranks.world import World
from heedful.types import TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """The settings of an update, the same for the policy and its critic."""

    temperature: float = 1.0
    """The sampler's temperature."""
    micro_batch_tokens: int = 4096
    """Most padded tokens in one forward and backward pass."""
    device: torch.device | str = "cpu"
    seed: int = 0
    """Seed of the deal of trajectories into mini-batches."""
    world: World = field(default_factory=World)
    """The ranks that learn together. All of them get the same samples."""
    sharded: Sharded | None = None
    """The model, where it is sharded over these ranks."""
    recompute: bool = False
    """Keep no activations inside the layers (gradient checkpointing). See `recomputed`."""
    share_prompts: bool = True
    """Read a prompt that several samples begin with once per micro-batch, where the model allows it. The same for the
    beginning that different prompts have in common, where it is a large part of them."""

    def cutter(self, model: PreTrainedModel) -> Cutter:
        """`cut_micro_batches` of samples and their token weights, under these settings and for this model."""
        shares = self.share_prompts and self.sharded is None and not self.recompute and keeps_prompts(model)
        return partial(
            cut_micro_batches,
            micro_batch_tokens=self.micro_batch_tokens,
            device=self.device,
            share_prompts=shares,
            share_beginning=shares,
            per_pass=pass_tokens(model, self.device),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples padded on the right to one length."""

    ids_BT: torch.Tensor
    """int64, 0 where padded."""
    trained_BT: torch.Tensor
    """bool, True = sampled by the policy, False where padded."""
    logprobs_BT: torch.Tensor
    """float32, the sampler's log-probabilities, 0 where not trained."""
    advantages_BT: torch.Tensor
    """float32, 0 where not trained."""
    weights_B: torch.Tensor
    """float32, the weight in the loss of one trained token of each sequence."""
    places_B: tuple[int, ...]
    """The index of each sequence in the list of samples that was split."""
    trained_N: torch.Tensor
    """int64, the places of the trained tokens in `ids_BT`, counted row by row. Indexing with `trained_BT` would let the
    host wait for the device."""
    prompts: SharedPrompts | None = None
    """The shared prompts that a forward pass may read once, or `None`."""
    values_BT: torch.Tensor | None = None
    """float32, the critic's values before the update, 0 where not trained. `None` where the samples have none."""
    returns_BT: torch.Tensor | None = None
    """float32, the targets of the critic, 0 where not trained. `None` where the samples have none."""
    regularised_B: torch.Tensor | None = None
    """bool, False = KL penalty and entropy bonus leave the sequence out. `None`: they read all."""


def cut_micro_batches(
    samples: Sequence[TrainingSample],
    token_weights_B: Sequence[float],
    micro_batch_tokens: int,
    device: torch.device | str = "cpu",
    *,
    share_prompts: bool = False,
    share_beginning: bool = False,
    per_pass: int = PASS,
) -> list[MicroBatch]:
    """Micro-batches of at most `micro_batch_tokens` tokens each, padding included, the largest first.

    Largest first: if memory does not suffice, the first micro-batch shows it. A single sample longer than the bound is
    a micro-batch by itself, since it cannot be split. `share_prompts`: a prompt that several samples begin with counts
    once. `share_beginning`: so does the beginning that different prompts have in common, if that saves at least a third
    of all tokens. `per_pass`: see `pass_tokens`. The first token of a sample is never trained: no token comes before it
    to predict it from.
    """
    return [
        _pad([(samples[place], token_weights_B[place], place) for place in plan.places], plan.prompts, device)
        for plan in cheapest_plans(
            samples, micro_batch_tokens, prompts=share_prompts, beginning=share_beginning, per_pass=per_pass
        )
    ]


Cutter = Callable[[Sequence[TrainingSample], Sequence[float]], list[MicroBatch]]


@contextmanager
def naming_the_size(batch: MicroBatch, update: str, remedy: str) -> Iterator[None]:
    """Where the device has no memory left for this micro-batch of an `update`, say how large it is."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        sequences, length = batch.ids_BT.shape
        raise MemoryError(
            f"The device ran out of memory in {update}, on a micro-batch of {sequences} sequences of {length} tokens; "
            f"lower --micro-batch-tokens{remedy}."
        ) from error


def pass_tokens(model: PreTrainedModel, device: torch.device | str) -> int:
    """What a forward and backward pass costs beside its tokens, in tokens of `model`, at least `PASS`.

    A GPU waits for the host, which starts the kernels of each layer. On an H200 that took 4 ms a layer: 12 passes of a
    model of 135 million parameters and 30 layers took 1.54 s, in one benchmark. At an assumed 1.5e14 operations per
    second, and 6 per token and parameter, 4 ms are 1e11 tokens, divided by the number of parameters.
    """
    if torch.device(device).type != "cuda":
        return PASS
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    return max(PASS, round(1e11 * layers / model.num_parameters()))


def _pad(
    rows: Sequence[tuple[TrainingSample, float, int]], prompts: SharedPrompts | None, device: torch.device | str
) -> MicroBatch:
    samples = [sample for sample, _, _ in rows]
    length = max(len(sample.ids) for sample in samples)

    def padded(values_B: Sequence[Sequence[float]], filler: float, dtype: torch.dtype) -> torch.Tensor:
        return _copied([[*values, *[filler] * (length - len(values))] for values in values_B], dtype, device)

    trained = [
        row * length + place for row, one in enumerate(samples) for place, flag in enumerate(one.trained) if flag
    ]
    with_values = all(sample.values for sample in samples)
    regularised = [sample.regularised for sample in samples]
    return MicroBatch(
        ids_BT=padded([sample.ids for sample in samples], 0, torch.int64),
        trained_BT=padded([sample.trained for sample in samples], False, torch.bool),
        logprobs_BT=padded([sample.logprobs for sample in samples], 0.0, torch.float32),
        advantages_BT=padded([sample.advantages for sample in samples], 0.0, torch.float32),
        weights_B=_copied([weight for _, weight, _ in rows], torch.float32, device),
        trained_N=_copied(trained, torch.int64, device),
        places_B=tuple(place for _, _, place in rows),
        prompts=prompts,
        values_BT=padded([sample.values for sample in samples], 0.0, torch.float32) if with_values else None,
        returns_BT=padded([sample.returns for sample in samples], 0.0, torch.float32) if with_values else None,
        regularised_B=None if all(regularised) else _copied(regularised, torch.bool, device),
    )


def _copied(values: Sequence[object], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """The values on the device. The host does not wait for a copy to a GPU."""
    if torch.device(device).type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
