"""The settings of heedful inside another trainer, and what that trainer's own settings allow. Torch-free."""

from __future__ import annotations

import math
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, ClassVar, Literal

from heedful.algorithms.table import LossScale, check_loss_scale
from heedful.boundary import Choice, NamesSecret, settings
from heedful.boundary.foreign_text import clean_line
from heedful.diagnostics.names import SUCCESS_METRICS
from heedful.filters import FILTERS, TopP
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.models.chat.replies import Tags
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


@settings
class WatchingConfig:
    """What every trainer's settings of heedful begin with: the filter, the diagnostics, and facts that it lacks."""

    trainer: ClassVar[str]
    """The name of the trainer, for errors."""

    filter: Annotated[Filter, Choice(FILTERS)] = field(default_factory=lambda: TopP(on="reward"))
    """Chooses prompts by the spread of their completions' values. `on`: `reward` (the raw one, as the trainer sums it),
    `outcome`, the name of another value that the trainer gives for a completion (TRL: a reward function, verl: a key of
    `reward_extra_info`), or of a component of one of heedful's environments."""
    loss_scale: LossScale = "kept"
    """Factor of the loss when groups were dropped."""
    outcome: str | None = None
    """The name of the value that measures success: 1 = solved, between 0 and 1 = partly. TRL: a reward function, by its
    name in TRL's logs. verl: a key of `reward_extra_info`. Without it success is unknown, unless heedful's own
    environments are played."""
    tags: Tags = field(default_factory=lambda: Tags(of_model=False))
    """Delimiters of thought and answer in a completion."""
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    """How often and on how many thoughts heedful measures. Inside verl `max_tokens` has no effect: verl cuts batches
    itself."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """Effect of an alarm that names a collapse: warn = warning only, stop = end the training after the step, saved."""
    record: bool = True
    """Keep rollouts, metrics with intervals, and score matrices in the folder `heedful` in the trainer's output folder,
    for `heedful report` and `heedful audit`."""
    webhook: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds the URL of a webhook. Each alarm of a run with a record is posted there."""
    logs: Literal["main", "all"] = "main"
    """Which metrics go into the trainer's own logs. The record holds all of them."""

    def __post_init__(self) -> None:
        """Raises ValueError for a filter that the trainer's loss cannot apply: a group is kept or dropped. Also for a
        webhook without a record."""
        check_loss_scale(self.loss_scale, self.filter.share)
        if self.webhook and not self.record:
            raise ValueError("webhook tells of a run with a record: leave record on, or webhook out")
        weights = sorted({verdict.weight for verdict in self.filter(UNEVEN, random.Random(0))})
        if not set(weights) <= {0.0, 1.0}:
            soft = ", ".join(f"{weight:.3g}" for weight in weights)
            raise ValueError(
                f"Inside {self.trainer} a group is kept or dropped, but {type(self.filter).__name__} gives soft "
                f"weights (here {soft}). Choose a filter without weights, such as TopP."
            )

    def logged(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """The finite numbers among the metrics, by name, for the trainer's logs.

        Names of reward components come from environments. What no terminal and no file should get is escaped.
        """
        return {
            clean_line(metric.name): metric.number
            for metric in metrics
            if metric.number is not None
            and math.isfinite(metric.number)
            and (self.logs == "all" or not _DETAIL.match(metric.name))
        }


_DETAIL = re.compile(
    r"(information|retrieval)[^/]*/(?!first_turn(@[^/]*)?/)"  # other scopes than first turns
    r"|information/.*/(mi_loo|mi_tempered|mi_per_token|mi_head_.*|n_reaching_.*|zscore.*|entropy_.*(?<!per_token))$"
    r"|retrieval/.*(@|chance|2way)"
)
"""Metrics that only the record needs."""


def unknown_metrics(trainer: str, unknown_success: str, outcome: bool, played: bool) -> dict[str, str]:
    """Metric -> why `trainer` cannot give it.

    `unknown_success`: why success is unknown, and how to name it. `outcome`: success is known. `played`: the episodes
    are those of heedful's environments.
    """
    missing = {} if outcome else dict.fromkeys(SUCCESS_METRICS, unknown_success)
    validity = f"{trainer} does not say whether a completion could be executed"
    return missing | ({} if played else {"format/valid_rate": validity})


def check_version(
    trainer: str, found: str, tested: Sequence[str], parts: str, changed: Sequence[str], instead: str
) -> None:
    """Warn about an untested version of a trainer, and refuse one in which `parts` that heedful uses have `changed`.

    `tested`: the series of releases, the newest last.

    Raises ValueError, with `instead`: what to do without these parts.
    """
    if changed:
        raise ValueError(
            f"heedful expected {parts}, found {trainer} {found}, in which {', '.join(changed)} "
            f"{'is' if len(changed) == 1 else 'are'} gone or take other parameters. "
            f"Install {trainer}=={tested[-1]}.*, or {instead}."
        )
    if not found.startswith(tuple(f"{series}." for series in tested)):
        warnings.warn(
            f"heedful was tested with {trainer} {', '.join(tested)}, found {found}. The methods it uses look the same. "
            "Compare the first steps with `heedful audit`.",
            stacklevel=4,
        )
