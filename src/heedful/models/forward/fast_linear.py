"""Linear layers that multiply with oneDNN, on processors for which torch's own choice is slow.

For float32 torch multiplies with MKL. MKL uses the AVX-512 units of Intel processors only. On other processors with
AVX-512, oneDNN is about twice as fast: 1.7 times for 32 rows and 2.2 times for 1024 rows, on one core of an AMD EPYC
(Zen 5). oneDNN is a part of torch. Results differ by rounding.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEAST_WIDTH = 256
"""Models with narrower hidden states keep torch's own layers: nothing is gained, and their results stay."""


def quicken(model: PreTrainedModel) -> int:
    """Let the linear layers of `model` multiply with oneDNN, where that is faster. Returns the number of such layers.

    The weights, their names and the files of the model stay the same. Layers change for models on a CPU whose hidden
    states have at least `LEAST_WIDTH` numbers, if `onednn_is_faster`. Each call of a layer that is not plain float32 on
    a CPU is computed as before.

    The output layer of every model gets contiguous states. torch copies the whole weight for each row of others: two
    bfloat16 rows of a vocabulary of 262,144 took 4.5 s on a Xeon, in place of .07 s.
    """
    if (head := model.get_output_embeddings()) is not None:
        head.register_forward_pre_hook(_contiguous)
    wide = int(getattr(model.config.get_text_config(), "hidden_size", 0)) >= LEAST_WIDTH
    if not wide or model.device.type != "cpu" or not onednn_is_faster():
        return 0
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    for layer in layers:
        layer.__class__ = OneDnnLinear
    return len(layers)


def _contiguous(head: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The last column of a batch, as the sampler wants it, is not."""
    return tuple(each.contiguous() for each in states)


@cache
def onednn_is_faster() -> bool:
    """Whether this processor has AVX-512, is not Intel's, and torch would multiply with MKL.

    The answer depends on the machine and on torch, never on a measurement. So a run on one machine stays reproducible.
    """
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    processor = Path("/proc/cpuinfo")
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not processor.is_file():
        return False
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and "GenuineIntel" not in processor.read_text(encoding="utf-8", errors="replace")


class OneDnnLinear(nn.Linear):
    """`nn.Linear` for float32 on a CPU, by oneDNN."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        plain = input.dtype == weight.dtype == torch.float32 and input.device.type == weight.device.type == "cpu"
        if not plain or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or not input.numel():
            return super().forward(input)
        rows_ND = input.reshape(-1, input.shape[-1])
        taken = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        found: Any = _Product.apply(rows_ND, weight) if taken else product(rows_ND, weight)
        if bias is not None:
            found = found + bias
        result: Tensor = found.view(*input.shape[:-1], weight.shape[0])
        return result


def product(rows_ND: Tensor, weight_MD: Tensor) -> Tensor:
    """`rows_ND @ weight_MD.T` by oneDNN, for float32 on a CPU. Transposed views are read as they are."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows_ND, weight_MD, None, "none", [], "")
    return result


class _Product(torch.autograd.Function):
    """`product` with its two gradients, both by oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows_ND: Tensor, weight_MD: Tensor) -> Tensor:
        ctx.save_for_backward(rows_ND, weight_MD)
        return product(rows_ND, weight_MD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NM: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows_ND, weight_MD = ctx.saved_tensors
        wants_rows, wants_weight = ctx.needs_input_grad
        of_rows = product(gradient_NM, weight_MD.t()) if wants_rows else None
        of_weight = product(gradient_NM.t(), rows_ND.t()) if wants_weight else None
        return of_rows, of_weight
