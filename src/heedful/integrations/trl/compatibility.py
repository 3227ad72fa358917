"""The supported TRL versions, and the checks of other versions.

A changed private part is found when the trainer is created, not in the middle of a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import trl
from trl.trainer.grpo_trainer import GRPOTrainer

from heedful.integrations.watching.settings import check_version

TESTED = ("1.14", "1.15", "1.16")
"""The series of TRL releases that the tests run with, the newest last: `make test-trl VERSION=1.14`."""

PROBE_INSTEAD = "use heedful.integrations.trl.Probe, which needs less of TRL"

PRIVATE: Mapping[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_generate": ("self", "prompts"),
    "_get_per_token_logps_and_entropies": (
        *("self", "model", "input_ids", "attention_mask", "logits_to_keep"),
        *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"),
        *("image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
    ),
}
"""The private methods of `GRPOTrainer` that `HeedfulGRPOTrainer` overrides, with their parameters."""

FORWARDED = "_get_per_token_logps_and_entropies"
"""An override that hands on what TRL gives it, so a TRL may give more. The parameters above are heedful's own part: the
rows, and the columns of pictures by name. TRL 1.14 takes them as `*args` and `**kwargs`."""

PRIVATE_ATTRIBUTES = ("_metrics", "_logs", "_last_world_entropy")
"""Private attributes that it reads and writes."""

PRIVATE_OF_ROLLOUTS: Mapping[str, tuple[str, ...]] = {
    "_generate_single_turn": (
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ),
}
"""Private methods that heedful's environments call to sample with the trainer's own engine."""

PRIVATE_OF_PROBE: Mapping[str, tuple[str, ...]] = {"_tokenize_prompts": ("self", "prompts")}
"""Private methods that the probe calls to tokenise a prompt like the trainer."""

FILTER_OF_TRL = "reward_variance_filtering"
"""The setting of a filter in TRL itself (proposed in its pull request 7242)."""


def check(
    methods: Mapping[str, tuple[str, ...]], version: str = trl.__version__, trainer: GRPOTrainer | None = None
) -> None:
    """Warn about an untested TRL version, and refuse one with other private parts.

    Raises ValueError if a method is missing or takes other parameters, or if `trainer` lacks a private attribute.
    """
    changed = [name for name, expected in methods.items() if not _takes(name, expected)]
    changed += [name for name in PRIVATE_ATTRIBUTES if trainer is not None and not hasattr(trainer, name)]
    parts = f"the methods {', '.join(methods)} of TRL {TESTED[-1]}"
    check_version("trl", version, TESTED, parts, changed, PROBE_INSTEAD)


def _takes(name: str, expected: tuple[str, ...]) -> bool:
    if not hasattr(GRPOTrainer, name):
        return False
    signature = inspect.signature(getattr(GRPOTrainer, name))
    if name != FORWARDED:
        return tuple(signature.parameters) == expected
    try:
        signature.bind(*expected[:4], **dict.fromkeys(expected[4:]))
    except TypeError:
        return False
    return True
