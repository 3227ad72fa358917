"""verl's batches in its TransferQueue: read rows, take rows out, add columns. No other file knows the queue.

verl is about to replace the queue, so what depends on it stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from heedful_verl.batch.rows import Row

_IDS = ("prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs")
_PLAIN = ("extra_fields", "data_source", "multi_modal_inputs")


def read(batch: KVBatchMeta) -> list[Row]:
    """The rows of a batch, in its order. Rows with which verl fills up are left out."""
    places = [place for place, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    keys, tags = [batch.keys[place] for place in places], [batch.tags[place] for place in places]
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[*_IDS, *_PLAIN])
    ids: dict[str, list[Any]] = {name: found[name].unbind() if name in found else [None] * len(keys) for name in _IDS}
    plain: dict[str, list[Any]] = {name: list(found[name]) if name in found else [None] * len(keys) for name in _PLAIN}
    return [
        Row(
            key=key,
            prompt_ids=tuple(ids["prompts"][row].tolist()),
            response_ids=tuple(ids["responses"][row].tolist()),
            sampled=tuple(map(bool, ids["response_mask"][row].tolist())),
            score=float(ids["rm_scores"][row].double().sum()),
            logprobs=None if (held := ids["rollout_log_probs"][row]) is None else tuple(held.tolist()),
            extra=_unwrapped(plain["extra_fields"][row]) or {},
            source=str(_unwrapped(plain["data_source"][row]) or ""),
            versions=_versions(tags[row]),
            images=bool(_unwrapped(plain["multi_modal_inputs"][row])),
        )
        for row, key in enumerate(keys)
    ]


def without(batch: KVBatchMeta, dropped: Iterable[str]) -> KVBatchMeta:
    """The batch without these rows, which leave the queue, too."""
    gone = set(dropped)
    if not gone:
        return batch
    tq.kv_clear(keys=[key for key in batch.keys if key in gone], partition_id=batch.partition_id)
    return batch.select_keys([key for key in batch.keys if key not in gone])


def annotate(batch: KVBatchMeta, columns: Mapping[str, Sequence[float]]) -> KVBatchMeta:
    """The same batch, after one number per row was stored in each of these columns."""
    fields = {name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()}
    tq.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch.keys))
    )
    if batch.fields is not None:  # a fixed list: a column that is not in it would not reach the workers
        batch.fields = [*batch.fields, *(name for name in columns if name not in batch.fields)]
    return batch


def real_rows(batch: KVBatchMeta) -> list[bool]:
    """For each row, whether it was sampled. False for rows with which verl fills up."""
    return [not tag.get("is_padding", False) for tag in batch.tags]


def _versions(tag: Mapping[str, Any]) -> tuple[int, int] | None:
    first, last = tag.get("min_global_steps"), tag.get("max_global_steps")
    return None if first is None or last is None else (int(first), int(last))


def _unwrapped(value: Any) -> Any:
    """The value of a cell, which tensordict may have wrapped."""
    return getattr(value, "data", value) if type(value).__name__ == "NonTensorData" else value
