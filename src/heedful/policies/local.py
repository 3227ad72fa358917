"""Sampling in this process, from the learner's own model: `--policy local`. Torch-free until it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.models.cache import cache_root
from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.policies.source import OpenPolicySource, Weights
from heedful.types import Metric

if TYPE_CHECKING:
    from heedful.policies.hf import HFPolicy
    from heedful.policies.next_logits import Decode


@dataclass(frozen=True, slots=True)
class Local:
    """The model in this process samples. The learner and the sampler share one set of weights."""

    compile: bool = False
    """Compile the pass of one token (torch.compile): a minute at the start. For GPUs; on a CPU it was slower."""

    def sampling(self, sampling: Sampling) -> Sampling:
        return sampling

    @contextmanager
    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> Iterator[OpenPolicySource]:
        yield _SharedWeights(self.compile)


class _SharedWeights:
    """The weights of the last `weights_changed`, without a copy."""

    def __init__(self, compile: bool) -> None:
        self._compile = compile
        self._weights: Weights | None = None
        self._decode: Decode | None = None

    def weights_changed(self, weights: Weights) -> list[Metric]:
        self._weights = weights
        return []

    def policy(self, renderer: ReplyRenderer, sampling: Sampling, seed: int) -> HFPolicy:
        # Imported here, so that configurations need no torch.
        import torch

        from heedful.policies.hf import HFPolicy

        assert self._weights is not None, "a policy was asked for before any weights were handed over"
        model = self._weights.model
        if self._compile and self._decode is None:
            # Once for the run: the graph has open sizes, and the weights change in place. On a CPU torch needs a C++
            # compiler. Its own place for graphs is in /tmp, open to all users, and it loads code from there.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))
            self._decode = torch.compile(model, dynamic=True)
        return HFPolicy(model, renderer, sampling, seed=seed, version=self._weights.version, decode=self._decode)
