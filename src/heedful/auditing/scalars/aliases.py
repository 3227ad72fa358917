"""The names that trainers give to their scalars -> heedful's names. The first name that a row holds wins.

Sources: the loggers of TRL 1.16, verl, prime-rl, tinker-cookbook, slime, SkyRL, NeMo-RL, AReaL, ROLL, rLLM, OpenRLHF,
as they were from May to August 2026.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

STEP = (
    *("step", "train/global_step", "training/global_step", "trainer/global_step", "global_step", "rollout/step"),
    *("train/step", "eval/step", "eval/global_step", "system/step", "progress/batch", "_step", "Step"),
)
"""The keys of a row's step. W&B and Trackio count their calls in `_step`, so it comes late. `Step`: exported CSV."""

# prime-rl's `effective` values are of groups whose rewards differ, so those of `all` come first.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "trainer/reward": (
        *("reward", "critic/score/mean", "critic/rewards/mean", "train/agg/all/*/reward/mean"),
        "train/agg/effective/*/reward/mean",
        *("reward/avg_raw_reward", "rollout/raw_reward", "env/all/reward/total", "*_actor/task_reward/avg"),
    ),
    "trainer/success": (),  # no trainer logs it under a name of its own: --map success=rewards/correct/mean
    "trainer/reward_std": ("reward_std",),
    "trainer/zero_std": (
        *("frac_reward_zero_std", "1-env/all/by_group/frac_mixed", "1-batch/*/fractions/effective"),
        "1-train/agg/all/*/solved_some",
    ),
    "trainer/entropy": (
        *("entropy", "actor/entropy", "entropy/all/mean", "policy/policy_entropy", "rollout/entropy"),
        *("critic/entropy/mean", "optim/entropy", "approx_entropy", "*_actor/update/entropy/avg"),
    ),
    # To the reference. The divergence from the policy before the update has other names (`actor/ppo_kl`).
    "trainer/kl": (
        *("kl", "actor/kl_loss", "actor/reward_kl_penalty", "loss/avg_kl", "policy/policy_kl", "train/kl_loss"),
        *("critic/kl", "kl_penalty", "kl_policy_base"),
    ),
    "trainer/clip_share": (
        *("clip_ratio/region_mean", "clip_ratio", "actor/pg_clipfrac", "policy/loss_metrics/clip_ratio"),
        *("train/pg_clipfrac", "actor/ppo_ratio_clipfrac", "*_actor/update/clip_ratio/avg"),
    ),
    "trainer/grad_norm": (
        *("grad_norm", "actor/grad_norm", "optim/grad_norm", "policy/grad_norm", "actor_grad_norm"),
        *("actor_train/grad_norm", "*_actor/update/grad_norm"),
    ),
    "trainer/length": (
        *("completions/mean_length", "response_length/mean", "train/agg/all/num_output_tokens/mean"),
        "train/agg/effective/num_output_tokens/mean",
        *("generate/avg_num_tokens", "rollout/response_len/mean", "tokens/response_length/mean"),
        *("mean_gen_tokens_per_sample", "response_length"),
    ),
    "trainer/truncated": (
        *("completions/clipped_ratio", "response_length/clip_ratio", "train/agg/all/*/is_truncated/mean"),
        "train/agg/effective/*/is_truncated/mean",
        *("rollout/truncated_ratio", "truncation_rate", "truncated"),
    ),
    "trainer/validation": (
        *("eval_reward", "val-core/*/mean@*", "eval/*/effective/*/avg@*", "eval/all/avg_score", "validation/accuracy"),
        *("test/env/all/reward/total", "eval/reward", "eval_*_pass1", "eval/eval_*_pass1", "val/*/pass@1"),
    ),
    "trainer/learning_rate": (
        *("learning_rate", "actor/lr", "optim/lr", "policy/policy_lr", "train/lr-pg_0", "lr", "act_lr", "actor_lr"),
        "*_actor/update/lr",
    ),
    "trainer/mismatch": (
        "rollout_corr/k3_kl",
        "mismatch_kl/all/mean",
        "optim/kl_sample_train_v2",
        "gen_kl_error",
        # No divergence, but the mean distance of two log-probabilities or probabilities.
        *("sampling/sampling_logp_difference/mean", "train/train_rollout_logprob_abs_diff"),
        *("policy/rollout_train_logprobs_abs_diff_mean", "training/rollout_probs_diff_mean"),
    ),
    "trainer/loss": (
        "loss",
        "actor/pg_loss",
        "loss/mean",
        "policy/final_loss",
        "policy_loss",
        "*_actor/update/actor_loss/avg",
    ),
}
"""heedful's name -> the trainers' keys. `1-` stands for one minus the value, `*` for any part of a name."""

_EVALUATION = ("eval_", "eval/", "val", "test/")
"""How keys of evaluations begin. They never are values of training."""


@dataclass(slots=True)
class Names:
    """Translates rows, and remembers which keys were used, which not, and which pattern fits several keys."""

    given: Mapping[str, str] = field(default_factory=dict)
    """heedful's name -> the key that the user named for it."""
    used: dict[str, str] = field(default_factory=dict)
    """heedful's name -> the key that was read."""
    unknown: set[str] = field(default_factory=set)
    unclear: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """heedful's name -> keys that fit it equally well. None of them is read."""
    _seen: set[str] = field(default_factory=set)
    """The keys of earlier rows. A row without another key is compared with no pattern again."""

    def translated(self, row: Mapping[str, float]) -> dict[str, float]:
        """heedful's names and values of one row. A key that was read once is read in all later rows."""
        found: dict[str, float] = {}
        keys = {_plain(key): key for key in row}
        fresh = not keys.keys() <= self._seen
        self._seen |= keys.keys()
        for name, patterns in ALIASES.items():
            key, minus = self._key_of(name, patterns, keys, fresh)
            if key in keys:
                value = row[keys[key]]
                found[name] = 1 - value if minus else value
        read = {key.removeprefix("1-") for key in self.used.values()}
        self.unknown |= {key for plain, key in keys.items() if plain not in read and key not in STEP}
        return found

    def _key_of(self, name: str, patterns: tuple[str, ...], keys: Mapping[str, str], fresh: bool) -> tuple[str, bool]:
        """The key of this name in the row, and whether its value is taken from one. Empty if there is none."""
        if name in self.given:
            self.used.setdefault(name, self.given[name])
            return _plain(self.given[name]), False
        if name in self.used:
            return self.used[name].removeprefix("1-"), self.used[name].startswith("1-")
        for pattern in patterns if fresh else ():
            plain = pattern.removeprefix("1-")
            fits = sorted(key for key in keys if fnmatchcase(key, plain)) if "*" in plain else [plain] * (plain in keys)
            if name != "trainer/validation":
                fits = [key for key in fits if not key.startswith(_EVALUATION)]
            if len(fits) > 1:
                self.unclear.setdefault(name, tuple(fits))
            if len(fits) == 1 and name not in self.unclear:
                minus = plain != pattern
                self.used[name] = f"1-{fits[0]}" if minus else fits[0]
                return fits[0], minus
        return "", False


def _plain(key: str) -> str:
    """The key without the prefix of transformers' trackers and the tag of ROLL's, where the rest alone is an alias."""
    rest = key.removeprefix("train/").removesuffix("@sum")
    return rest if rest in _WITHOUT_PATTERNS else key


_WITHOUT_PATTERNS = {key for keys in ALIASES.values() for key in keys}


def key_of_step(row: Mapping[str, float]) -> str | None:
    """The key of a row's step. `None` if it names none."""
    return next((key for key in STEP if math.isfinite(row.get(key, math.nan))), None)
