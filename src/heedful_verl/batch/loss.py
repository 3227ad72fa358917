"""verl's losses with the number of real rows as the denominator of means over rows.

verl fills a batch up to whole mini-batches with masked rows, and divides means over rows by all rows of a mini-batch.
So an update shrinks if rows were dropped. The driver counts the real rows of each mini-batch
(`rows.mini_batch_counts`) and stores them as a column. Means over tokens need no correction. The workers import this
module.
"""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.utils.losses import ppo_loss, value_loss

ROWS = "heedful_rows"
"""Column: real rows of the row's mini-batch in the update of the actor."""
CRITIC_ROWS = "heedful_critic_rows"
"""Column: the same in the update of the critic."""
SCALE = "heedful_scale"
"""Column: the factor of the whole loss, the same in every row."""


def counted_loss(config: Any, model_output: Any, data: TensorDict, dp_group: Any = None) -> tuple[Any, dict[str, Any]]:
    """`ppo_loss` over the real rows of a mini-batch, times the scale."""
    return _counted(ppo_loss, ROWS, "log_probs", config, model_output, data, dp_group)


def counted_value_loss(
    config: Any, model_output: Any, data: TensorDict, dp_group: Any = None
) -> tuple[Any, dict[str, Any]]:
    """`value_loss` over the real rows of a mini-batch, times the scale."""
    return _counted(value_loss, CRITIC_ROWS, "values", config, model_output, data, dp_group)


def _counted(
    loss_of: Any, column: str, output: str, config: Any, model_output: Any, data: TensorDict, dp_group: Any
) -> tuple[Any, dict[str, Any]]:
    if column not in data:
        return loss_of(config=config, model_output=model_output, data=data, dp_group=dp_group)
    rows, scale = int(data[column][0]), float(data[SCALE][0])
    if not rows:  # verl would divide zero by zero
        return model_output[output].values().sum() * 0.0, {}
    tensordict_utils.assign_non_tensor(data, global_batch_size=rows)
    loss, metrics = loss_of(config=config, model_output=model_output, data=data, dp_group=dp_group)
    return loss if scale == 1 else loss * scale, metrics
