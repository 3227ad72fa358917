"""Sampling in this process, from the learner's own model: `--policy local`. Torch-free until it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.policies.source import OpenPolicySource, Weights
from heedful.types import Metric

if TYPE_CHECKING:
    from heedful.policies.hf import HFPolicy


@dataclass(frozen=True, slots=True)
class Local:
    """The model in this process samples. The learner and the sampler share one set of weights."""

    def sampling(self, sampling: Sampling) -> Sampling:
        return sampling

    @contextmanager
    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> Iterator[OpenPolicySource]:
        yield _SharedWeights()


class _SharedWeights:
    """The weights of the last `weights_changed`, without a copy."""

    def __init__(self) -> None:
        self._weights: Weights | None = None

    def weights_changed(self, weights: Weights) -> list[Metric]:
        self._weights = weights
        return []

    def policy(self, renderer: ReplyRenderer, sampling: Sampling, seed: int) -> HFPolicy:
        # Imported here, so that configurations need no torch.
        from heedful.policies.hf import HFPolicy

        assert self._weights is not None, "a policy was asked for before any weights were handed over"
        return HFPolicy(self._weights.model, renderer, sampling, seed=seed, version=self._weights.version)
