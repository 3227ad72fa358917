"""What another trainer's settings allow heedful, and which metrics go into that trainer's own logs. Torch-free."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence

from heedful.boundary.foreign_text import clean_line
from heedful.diagnostics.names import SUCCESS_METRICS
from heedful.protocols import Filter
from heedful.types import Metric

_ONE = ("top_p", "typical_p", "repetition_penalty", "encoder_repetition_penalty", "guidance_scale", "num_beams")
_ZERO = (
    *("min_p", "epsilon_cutoff", "eta_cutoff", "presence_penalty", "frequency_penalty"),
    *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens", "min_tokens"),
)
_EMPTY = (
    *("top_h", "sequence_bias", "logit_bias", "exponential_decay_length_penalty", "watermarking_config"),
    *("bad_words_ids", "bad_words", "suppress_tokens", "begin_suppress_tokens", "allowed_token_ids"),
    *("forced_bos_token_id", "forced_eos_token_id", "structured_outputs", "vllm_structured_outputs_regex"),
)
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(_ONE, (1,)),
    **dict.fromkeys(_ZERO, (0,)),
    **dict.fromkeys(_EMPTY, ([],)),
    "top_k": (0, -1),
    "do_sample": (True,),
}
"""Settings of transformers' and vLLM's samplers -> values, beside None, under which a token's probability is
softmax(logits / temperature)."""


def truncating(setting: Callable[[str], object]) -> list[str]:
    """The names of the settings that cut off or change probabilities. `setting`: the value of a name, None = not set.

    Thoughts that were sampled so cannot be scored."""
    return [name for name, values in _NEUTRAL.items() if setting(name) not in (None, *values)]


UNEVEN = tuple((1.0,) * ones + (0.0,) * (8 - ones) for ones in (0, 1, 4, 8))
"""Values of groups to which a filter with weights gives unequal weights."""


def refuse_soft_weights(trainer: str, filter: Filter) -> None:
    """Raise ValueError for a filter that gives a few uneven groups other weights than 0 and 1.

    The trainer's loss can only keep or drop rows.
    """
    weights = sorted({verdict.weight for verdict in filter(UNEVEN, random.Random(0))})
    if not set(weights) <= {0.0, 1.0}:
        raise ValueError(
            f"Inside {trainer} a group is kept or dropped, but {type(filter).__name__} gives soft weights (here "
            f"{', '.join(f'{weight:.3g}' for weight in weights)}). Choose a filter without weights, such as TopP."
        )


def unknown_metrics(trainer: str, unknown_success: str, outcome: bool, played: bool) -> dict[str, str]:
    """Metric -> why `trainer` cannot give it.

    `unknown_success`: why success is unknown, and how to name it. `outcome`: success is known. `played`: the episodes
    are those of heedful's environments.
    """
    missing = {} if outcome else dict.fromkeys(SUCCESS_METRICS, unknown_success)
    validity = f"{trainer} does not say whether a completion could be executed"
    return missing | ({} if played else {"format/valid_rate": validity})


_DETAIL = re.compile(
    r"(information|retrieval)[^/]*/(?!first_turn(@[^/]*)?/)"  # other scopes than first turns
    r"|information/.*/(mi_loo|mi_tempered|mi_per_token|mi_head_.*|n_reaching_.*|zscore.*|entropy_.*(?<!per_token))$"
    r"|retrieval/.*(@|chance|2way)"
)


def numbers_of(metrics: Sequence[Metric], all_of_them: bool) -> dict[str, float]:
    """The finite numbers among the metrics, by name, with or without those that only the record needs.

    Names of reward components come from environments. What no terminal and no file should get is escaped.
    """
    return {
        clean_line(metric.name): float(metric.value)
        for metric in metrics
        if isinstance(metric.value, int | float)
        and math.isfinite(metric.value)
        and (all_of_them or not _DETAIL.match(metric.name))
    }
