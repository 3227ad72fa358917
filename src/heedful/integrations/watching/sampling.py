"""Settings of a sampler under which a token's probability is softmax(logits / temperature). Torch-free."""

from __future__ import annotations

from collections.abc import Callable

_NEUTRAL = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "typical_p": (1, None),
    "epsilon_cutoff": (0, None),
    "eta_cutoff": (0, None),
    "repetition_penalty": (1, None),
    "no_repeat_ngram_size": (0, None),
}
"""Settings of a sampler -> values under which a token's probability is softmax(logits / temperature)."""


def truncating(setting: Callable[[str], object]) -> list[str]:
    """The names of the settings that cut off or change probabilities. `setting`: the value of a name, None = not set.

    Thoughts that were sampled so cannot be scored."""
    return [name for name, values in _NEUTRAL.items() if setting(name) not in values]
