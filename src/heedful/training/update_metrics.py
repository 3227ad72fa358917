"""The readings of an update, and the metrics computed from them.

The names are always the same. A missing reading is `None` with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heedful.algorithms import losses
from heedful.training.correction import METRICS
from heedful.training.objective import TokenTerms
from heedful.training.ranks.world import World
from heedful.types import Metric

EMPTY = "no sample to train on: the filter kept nothing, or nothing was scored"
WARMUP = "the critic warms up: the policy was not updated"
MASKED = "every token's importance weight lies outside floor and cap: all were masked"
REPLAYED = "replayed successes alone were trained on, and no token of this step"
_NO_REFERENCE = "no reference model"
_OF_THE_POLICY = (
    "loss",
    "gradient_norm",
    "learning_rate",
    "clip_fraction",
    "kl_to_sampler",
    "logprob_error",
    "kl_to_reference",
    "entropy_coefficient",
)


@dataclass(slots=True)
class Pass:
    """The readings of one optimizer step's batch, before the step. Sums run over the trained tokens, unweighted, and
    but for the loss over those of the policy's own episodes: replayed successes are left out."""

    loss: float = 0.0
    tokens: int = 0
    clipped: int = 0
    kl_to_sampler: float = 0.0
    logprob_error: float = 0.0
    """The largest absolute difference."""
    kl_to_reference: float | None = None
    entropy: float | None = None

    @torch.no_grad()
    def add(self, loss: torch.Tensor, terms: TokenTerms, reference_N: torch.Tensor | None) -> None:
        """Add one micro-batch. All readings reach the host in one transfer."""
        own_N = torch.ones_like(terms.clip_binds_N) if terms.regularised_N is None else terms.regularised_N
        clipped, gap_N = (own_N & terms.clip_binds_N).sum(), (terms.sampled_N - terms.logprobs_N).where(own_N, 0.0)
        readings = [loss, own_N.sum(), clipped, gap_N.sum(), gap_N.abs().amax()]
        if reference_N is not None:
            readings.append(losses.kl("k3", terms.logprobs_N, reference_N).where(own_N, 0.0).sum())
        if terms.entropy_N is not None:
            readings.append(terms.entropy_N.where(own_N, 0.0).sum())
        wide = torch.float32 if loss.device.type == "mps" else torch.float64  # both hold every value
        on_host = torch.stack([reading.to(wide) for reading in readings]).tolist()
        self.loss += on_host[0]
        self.tokens += int(on_host[1])
        self.clipped += int(on_host[2])
        self.kl_to_sampler += on_host[3]
        self.logprob_error = max(self.logprob_error, on_host[4])
        if terms.entropy_N is not None:
            self.entropy = (self.entropy or 0.0) + on_host.pop()
        if reference_N is not None:
            self.kl_to_reference = (self.kl_to_reference or 0.0) + on_host.pop()

    def over(self, world: World) -> Pass:
        """The same over the micro-batches of all ranks."""
        if world.size == 1:
            return self
        readings = world.gather(self)
        return Pass(
            loss=math.fsum(reading.loss for reading in readings),
            tokens=sum(reading.tokens for reading in readings),
            clipped=sum(reading.clipped for reading in readings),
            kl_to_sampler=math.fsum(reading.kl_to_sampler for reading in readings),
            logprob_error=max(reading.logprob_error for reading in readings),
            kl_to_reference=_sum_of_known([reading.kl_to_reference for reading in readings]),
            entropy=_sum_of_known([reading.entropy for reading in readings]),
        )

    @property
    def mean_entropy(self) -> float | None:
        """Nats per trained token. `None` where it was not requested, or replays alone are trained on."""
        return None if self.entropy is None or not self.tokens else self.entropy / self.tokens


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    """The sum of the known values. A rank without samples has a reading of `None`."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def update_metrics(
    passes: Sequence[Pass],
    norms: Sequence[float],
    *,
    lr: float,
    entropy: float,
    tokens: int,
    correction: Sequence[Metric] = (),
) -> list[Metric]:
    """The metrics of one update.

    `passes` and gradient `norms` belong to its optimizer steps, `entropy` is the entropy bonus's coefficient.
    `correction`: the metrics of `training.correction`. `kl_*` and `logprob_error` come from the first step's batch.
    """
    first, n = passes[0], passes[0].tokens

    def mean(name: str, total: float | None, tokens: int = n) -> Metric:
        if total is None or not tokens:
            return Metric(f"policy/{name}", None, why=REPLAYED if total is not None else _NO_REFERENCE)
        return Metric(f"policy/{name}", total / tokens, n=n)

    return [
        Metric("filter/empty", 0.0),
        Metric("policy/loss", math.fsum(reading.loss for reading in passes) / len(passes)),
        Metric("policy/gradient_norm", math.fsum(norms) / len(norms)),
        Metric("policy/learning_rate", lr),
        mean("clip_fraction", sum(each.clipped for each in passes), sum(each.tokens for each in passes)),
        mean("kl_to_sampler", first.kl_to_sampler),
        Metric("policy/logprob_error", first.logprob_error if n else None, n=n, why="" if n else REPLAYED),
        mean("kl_to_reference", first.kl_to_reference),
        Metric("policy/entropy_coefficient", entropy),
        Metric("tokens/update", float(tokens)),
        *correction,
    ]


def unread_metrics(
    why: str, *, empty: bool = False, capped: bool = False, tokens: int = 0, correction: Sequence[Metric] = ()
) -> list[Metric]:
    """The metrics of a step in which the policy was not updated, and why.

    `empty`: without samples. `capped`: the metrics of the correction are missing, too.
    """
    names = [*_OF_THE_POLICY, *(METRICS if capped else [])]
    return [
        Metric("filter/empty", float(empty)),
        *(Metric(f"policy/{name}", None, why=why) for name in names),
        Metric("tokens/update", float(tokens)),
        *correction,
    ]
