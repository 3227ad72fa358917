"""Logits of the next tokens of a batch: from its KV cache, or from whole sequences if the KV cache is not exact.

The KV cache of a model is used only after a probe: it must give the log-probabilities of plain forward passes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from heedful.models.cache import cache_root
from heedful.models.forward.exactness import Probe, evaluating, plain_states
from heedful.policies.kv import KVBatch

_OBSTACLES: WeakKeyDictionary[PreTrainedModel, tuple[str, str]] = WeakKeyDictionary()
"""For each model that was probed: the kind of attention, and the obstacle."""


Decode = Callable[..., Any]
"""The forward pass of a model: the model itself, or a compiled form of it."""


def compiled(model: PreTrainedModel) -> Decode:
    """The model's forward pass as a graph of open sizes: neither a longer cache nor new weights compile again.

    On a CPU torch needs a C++ compiler. What torch keeps of the graph is in heedful's cache, unless
    `TORCHINDUCTOR_CACHE_DIR` is set: torch's own place in /tmp, from which it loads code, is open to all users.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))
    return torch.compile(model, dynamic=True)


def cached_logits(model: Decode, batch: KVBatch, ids_BT: Tensor, filled_BT: Tensor) -> Tensor:
    """Append columns of tokens to the batch: the logits `[B, V]` of the last one, in float32 or wider.

    They come from the keys and values of earlier tokens. The batch has a layer for each layer of the model.
    """
    mask, positions_BT = batch.extend(filled_BT)
    output = model(
        input_ids=ids_BT,
        attention_mask=mask,
        position_ids=positions_BT,
        past_key_values=batch.cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return _wide(output.logits[:, -1])


def uncached_logits(model: PreTrainedModel, batch: KVBatch, ids_BT: Tensor, filled_BT: Tensor) -> Tensor:
    """`cached_logits` from one plain forward pass per row. The only layer of the batch holds token ids instead of keys.

    Rows without a new token are not read. Their logits are 0.
    """
    batch.extend(filled_BT)
    ids_B1T1 = ids_BT[:, None, :, None]
    known_B1T1, _ = cast(CacheLayerMixin, batch.cache.layers[0]).update(ids_B1T1, ids_B1T1)
    grown = [row for row, filled_T in enumerate(filled_BT) if bool(filled_T.any())]
    read = [plain_states(model, known_B1T1[row, 0, batch.filled_BT[row], 0][None])[0, -1] for row in grown]
    logits_BV = read[0].new_zeros(len(ids_BT), len(read[0]))
    logits_BV[grown] = torch.stack(read)
    return _wide(logits_BV)


def obstacle_to_kv_cache(model: PreTrainedModel) -> str:
    """Why replies cannot be sampled with a KV cache, as half a sentence. Empty if they can.

    Probed once per model and kind of attention. Warns if there is an obstacle, because sampling is slow then. Without
    finite logits nothing can be compared: then the result is empty, and the next call probes again.
    """
    attention = str(model.config._attn_implementation)
    if model not in _OBSTACLES or _OBSTACLES[model][0] != attention:
        found = "its attention takes no masks of booleans"
        if attention == "sdpa":
            with evaluating(model), torch.no_grad():
                probe = Probe.of(model)
                if not probe.finite:
                    return ""
                found = probe.obstacle(lambda: _sampled_logprobs(model, probe))
        _OBSTACLES[model] = attention, found
        if found:
            warnings.warn(
                f"The KV cache of {type(model).__name__} cannot be used for sampling, since {found}. Each token is "
                "sampled from a whole forward pass. This is exact and slow; a model with full attention, such as "
                "Qwen2.5 or Llama 3, is faster.",
                stacklevel=2,
            )
    return _OBSTACLES[model][1]


def left_padded(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The ids, right-aligned, and the mask that is True where there is a token."""
    width = max(map(len, sequences))
    ids = [[0] * (width - len(sequence)) + list(sequence) for sequence in sequences]
    filled = [[False] * (width - len(sequence)) + [True] * len(sequence) for sequence in sequences]
    return torch.tensor(ids, device=device), torch.tensor(filled, device=device)


def _sampled_logprobs(model: PreTrainedModel, probe: Probe) -> list[list[np.ndarray]]:
    """Log-probabilities of the probe's thoughts, read as the sampler reads: ragged rows, two turns, token by token."""
    prompts = probe.prompts * len(probe.thoughts)
    thoughts = [thought for thought in probe.thoughts for _ in probe.prompts]
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    batch = KVBatch.empty(len(prompts), layers, max(map(len, prompts)), model.device)
    cached_logits(model, batch, *left_padded([ids[: len(ids) // 2] for ids in prompts], model.device))
    logits_BV = cached_logits(model, batch, *left_padded([ids[len(ids) // 2 :] for ids in prompts], model.device))
    columns = []
    for place in range(max(map(len, thoughts))):
        fed_B1 = torch.tensor([[ids[place] if place < len(ids) else 0] for ids in thoughts], device=model.device)
        feeds_B1 = torch.tensor([[place < len(ids)] for ids in thoughts], device=model.device)
        columns.append(logits_BV.log_softmax(-1).gather(1, fed_B1)[:, 0])
        logits_BV = cached_logits(model, batch, fed_B1, feeds_B1)
    logprobs_BT = torch.stack(columns, dim=1).double().cpu().numpy()
    rows = [logprobs_T[: len(ids)] for logprobs_T, ids in zip(logprobs_BT, thoughts, strict=True)]
    return [rows[start : start + len(probe.prompts)] for start in range(0, len(rows), len(probe.prompts))]


def _wide(logits_BV: Tensor) -> Tensor:
    return logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
