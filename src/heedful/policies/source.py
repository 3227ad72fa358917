"""The choice of a policy: a source is configured, opened once per run, and handed the weights.

A source is a frozen dataclass (`--policy NAME`). Opened, it may hold connections and threads. It is handed the weights
before the first policy of each version is made, and then makes a policy for every collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.protocols import Policy
from heedful.types import Metric

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from heedful.models.writing import Saveable


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a policy after some number of updates. They are valid until the next update."""

    model: PreTrainedModel
    """The model in this process. It may be sharded, or have LoRA's additions next to its own weights."""
    version: int = 0
    """The number of updates of the weights so far."""
    merged: Callable[[], Saveable | PreTrainedModel] | None = None
    """Makes the object that is saved instead of the model, if the model is not whole. Every rank must call it."""

    def saveable(self) -> Saveable | PreTrainedModel:
        """The writer of an ordinary model folder with these weights. Every rank must call it, and rank 0 may write."""
        return self.model if self.merged is None else self.merged()


class OpenPolicySource(Protocol):
    """An open source. It makes policies for the weights that it was handed last."""

    def weights_changed(self, weights: Weights) -> list[Metric]:
        """Take these weights, and return the metrics of the transfer, such as an error between two copies.

        Called on every rank, also when a run resumes, and before the first `policy` of a version. When the call has
        returned on every rank, replies must come from these weights.
        """
        ...

    def policy(self, renderer: ReplyRenderer, sampling: Sampling, seed: int) -> Policy:
        """A policy for one collection, with the version of the weights that were handed over last.

        `sampling`: has passed `PolicySource.sampling` and the collector's. `seed`: seeds the sampling noise. The policy
        is not used after the next `weights_changed`.
        """
        ...


class PolicySource(Protocol):
    """A configured way to sample replies. Its implementations are frozen dataclasses."""

    def sampling(self, sampling: Sampling) -> Sampling:
        """How the policies of this source sample. Raises ValueError for settings that the source cannot keep."""
        ...

    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> AbstractContextManager[OpenPolicySource]:
        """Open the source for one run or one command. Leaving the context closes it, also after an error.

        `rank`: number of this process. Rank 0 alone sends weights elsewhere. `note`: shows a sentence to the user.
        """
        ...


@contextmanager
def open_with(
    source: PolicySource, weights: Weights, note: Callable[[str], None] = print
) -> Iterator[OpenPolicySource]:
    """The source, opened in a single process for weights that do not change."""
    with source.open(note=note) as its:
        its.weights_changed(weights)
        yield its
