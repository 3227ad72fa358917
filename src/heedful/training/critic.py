"""The critic: the value of the state before each sampled token, and the update of that estimate from observed returns.

Values are read at the same positions as logits, before the token that they belong to. The critic's loss weights tokens
as the policy's loss does, so neither depends on how the batch is cut into micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch

from heedful.algorithms import losses
from heedful.algorithms.gae import explained_variance
from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.forward.token_logits import Over, TokenLogits, hidden_before_trained
from heedful.models.vision import vision_of
from heedful.protocols import UsesCritic
from heedful.training.batch import MicroBatch, UpdateSettings, naming_the_size
from heedful.training.objective import at_trained
from heedful.training.optimizer_step import OptimizerStep
from heedful.training.ranks.world import World
from heedful.training.recompute import recomputed
from heedful.training.samples import Row, sampled_trajectories
from heedful.training.settings import CriticConfig, OptimizerConfig
from heedful.types import Group, Metric, TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OF_THE_UPDATE = ("critic/loss", "critic/clip_fraction", "critic/gradient_norm")
_OF_THE_VALUES = ("policy/explained_variance", "critic/value_mean", "critic/return_mean")


@dataclass(slots=True)
class CriticPass:
    """The readings of one optimizer step's batch, before the step."""

    loss: float = 0.0
    tokens: int = 0
    clipped: int = 0
    """Tokens at which the clipped error is the larger one, so that they pass no gradient."""
    gradient_norm: float = 0.0
    """The gradient norm of the critic's own parameters, before clipping."""

    def over(self, world: World) -> CriticPass:
        """The same over the micro-batches of all ranks."""
        if world.size == 1:
            return self
        loss, tokens, clipped = world.sum([self.loss, self.tokens, self.clipped])
        return CriticPass(loss, int(tokens), int(clipped))


class Critic:
    """A backbone and a head of one number per position.

    Kind `model`: the backbone is a copy of the policy's, taken when the critic is made. Kind `head`: it is the policy's
    own. The head starts at zero, so before its first step the critic values every state at exactly 0. The head's bias
    starts at the mean return of the first update, so that the backbone is not trained to produce a constant offset.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        config: CriticConfig,
        optimizer: OptimizerConfig,
        settings: UpdateSettings | None = None,
    ) -> None:
        """`optimizer`: the policy's. The critic's differs from it by its learning rate.

        Raises ValueError for a policy whose hidden states cannot be computed without its logits.
        """
        decoder = policy.get_decoder()
        if decoder is None or decoder is policy:
            raise ValueError(
                f"A critic needs the hidden states under the output head of {type(policy).__name__}, but the model "
                "names no decoder of its own; choose an algorithm without a critic, for instance grpo."
            )
        settings = settings or UpdateSettings()
        self.config = config
        self.updates = 0
        """Training steps in which the critic learned."""
        self.micro_batch_tokens = settings.micro_batch_tokens
        self.device = device = settings.device
        self._world = settings.world
        self._cut_up = settings.cutter(policy)
        if config.kind == "model":
            vision = vision_of(policy)  # the copy of a model that sees has no tower of its own
            decoder = deepcopy(decoder) if vision is None else vision.copied_decoder()
        self._backbone = cast(torch.nn.Module, decoder).to(device).eval()
        states: TokenLogits = partial(_states, self._backbone)
        self._states = recomputed(cast("PreTrainedModel", self._backbone), states) if settings.recompute else states
        # `skip_init`: the layer's own initialisation would draw from the global generator.
        self._head = torch.nn.utils.skip_init(
            torch.nn.Linear,
            policy.config.get_text_config().hidden_size,
            1,
            device=device,
            dtype=torch.promote_types(policy.dtype, torch.float32),
        )
        torch.nn.init.zeros_(self._head.weight)
        torch.nn.init.zeros_(self._head.bias)
        self._optimizer_step = OptimizerStep(self._own.parameters(), replace(optimizer, lr=config.lr), self._world)

    @property
    def warming(self) -> bool:
        """Whether only the critic learns in the next update."""
        return self.updates < self.config.warmup_steps

    @torch.no_grad()
    def values(self, rows: Sequence[Row], *, alone: bool = False) -> list[tuple[float, ...]]:
        """One value per token for each row: the value of the state before each sampled token, 0 elsewhere.

        All ranks read together, and each gets all values. `alone`: only this rank reads.
        """
        if alone:
            return self._values(rows)
        return self._world.together(
            [len(row.ids) for row in rows], lambda mine: self._values([rows[at] for at in mine])
        )

    def _values(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        blank = [
            TrainingSample(row.ids, row.trained, row.logprobs, row.logprobs, row.group, row.member, row.weight)
            for row in rows
        ]
        values: list[tuple[float, ...]] = [()] * len(rows)
        for batch in self._cut_up(blank, [0.0] * len(rows)):
            values_N = self._read(batch, 0.0).tolist()
            start = 0
            for place in batch.places_B:
                trained = rows[place].trained
                own = iter(values_N[start : start + sum(trained)])
                values[place] = tuple(next(own) if one else 0.0 for one in trained)
                start += sum(trained)
        return values

    @torch.no_grad()
    def begin(self, samples: Sequence[TrainingSample]) -> None:
        """Prepare an update on `samples`, with their values and returns. Every rank must pass all of them."""
        if self.updates:
            return
        pairs = [
            (sample.weight, own)
            for sample in samples
            for own, trained in zip(sample.returns, sample.trained, strict=True)
            if trained
        ]
        total = math.fsum(weight for weight, _ in pairs)
        self._head.bias.fill_(math.fsum(weight * own for weight, own in pairs) / total)

    def learn(self, micro_batches: Sequence[MicroBatch], scale: float, *, through_trunk: bool) -> CriticPass:
        """Take one optimizer step of the critic's own parameters, on `scale` x `coefficient` x the weighted value loss.

        `through_trunk`: add the share `trunk` of the gradient to the policy's `.grad`, without a step of the policy.
        The batches must have values and returns. Raises FloatingPointError, before the step, for a gradient that is not
        finite.
        """
        reading = self._backward(micro_batches, scale, self.config.trunk if through_trunk else 0.0)
        reading.gradient_norm = self._optimizer_step.take("critic")
        return reading

    def finish(self, passes: Sequence[CriticPass]) -> list[Metric]:
        """Count one update and return its metrics: means over its optimizer steps."""
        self.updates += 1
        tokens = sum(reading.tokens for reading in passes)
        if self.config.clip is None:
            clip_fraction = Metric("critic/clip_fraction", None, why="the critic's values are not clipped")
        else:
            clip_fraction = Metric(
                "critic/clip_fraction", sum(reading.clipped for reading in passes) / tokens, n=tokens
            )
        return [
            Metric("critic/loss", math.fsum(reading.loss for reading in passes) / len(passes)),
            clip_fraction,
            Metric("critic/gradient_norm", math.fsum(reading.gradient_norm for reading in passes) / len(passes)),
        ]

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs: the critic's own weights, its optimizer's state and its counts."""
        return {
            "weights": self._own.state_dict(),
            "descent": self._optimizer_step.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` gave."""
        self._own.load_state_dict(state["weights"])
        self._optimizer_step.load_state_dict(state["descent"])
        self.updates = state["updates"]

    def _backward(self, micro_batches: Sequence[MicroBatch], scale: float, share: float) -> CriticPass:
        reading = CriticPass()
        for batch in micro_batches:
            assert batch.values_BT is not None
            assert batch.returns_BT is not None
            with naming_the_size(
                batch, "the critic's update", f" (now {self.micro_batch_tokens}), or choose --critic.kind head"
            ):
                values_N = self._read(batch, share)
                error = losses.value(
                    values_N,
                    at_trained(batch.values_BT, batch).to(values_N.dtype),
                    at_trained(batch.returns_BT, batch).to(values_N.dtype),
                    self.config.clip,
                )
                weights_N = at_trained(batch.weights_B[:, None].expand_as(batch.trained_BT), batch).to(values_N.dtype)
                loss = (weights_N * error.loss).sum()
                (scale * self.config.coefficient * loss).backward()
            reading.loss += float(loss.detach())
            reading.tokens += len(values_N)
            reading.clipped += int(error.clip_binds.sum())
        return reading.over(self._world)

    @property
    def _own(self) -> torch.nn.Module:
        """The modules that no other part of the run trains or saves."""
        owned = {"head": self._head}
        return torch.nn.ModuleDict(owned if self.config.kind == "head" else {"backbone": self._backbone, **owned})

    def _read(self, batch: MicroBatch, share: float) -> torch.Tensor:
        """The values before the trained tokens, row by row. A `share` of the gradient reaches the policy's layers."""
        shared = self.config.kind == "head"
        with torch.set_grad_enabled(torch.is_grad_enabled() and (share > 0 or not shared)):
            hidden_ND = self._states(batch.ids_BT, batch.trained_BT, batch.prompts)
        hidden_ND = hidden_ND.to(self._head.weight.dtype)
        if shared and 0 < share != 1:
            fixed_ND = hidden_ND.detach()
            hidden_ND = fixed_ND + share * (hidden_ND - fixed_ND)  # the same value, a share of the gradient
        values_N: torch.Tensor = self._head(hidden_ND)[:, 0]
        return values_N


def value_metrics(
    rows: Sequence[Row], groups: Sequence[Group], values: Sequence[Sequence[float]], estimator: UsesCritic
) -> list[Metric]:
    """How well the values of `rows` predicted the rewards that were observed from each sampled token on."""
    trajectories = sampled_trajectories(rows, groups, values)
    foreseen = [value for trajectory in trajectories for value in trajectory.values_T]
    observed = [one for returns_T in estimator.observed_returns(trajectories) for one in returns_T]
    n = len(observed)
    explained = explained_variance(foreseen, observed)
    constant = "what came of every sampled token was the same: nothing to explain"
    return [
        Metric("policy/explained_variance", explained, n=n, why=constant if explained is None else ""),
        Metric("critic/value_mean", math.fsum(foreseen) / n, n=n),
        Metric("critic/return_mean", math.fsum(observed) / n, n=n),
    ]


def empty_critic_metrics(why: str) -> list[Metric]:
    """The critic's metrics for a step without samples."""
    return [Metric(name, None, why=why) for name in (*_OF_THE_VALUES, *_OF_THE_UPDATE)]


def _states(
    backbone: torch.nn.Module,
    ids_BT: torch.Tensor,
    trained_BT: torch.Tensor,
    prompts: SharedPrompts | None = None,
    over: Over | None = None,
) -> torch.Tensor:
    """Hidden states in the place of logits. They are as wide as the model, so nothing is computed `over` them."""
    return hidden_before_trained(backbone, ids_BT, trained_BT, prompts)
