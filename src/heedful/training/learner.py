"""One update of the policy from training samples: loss, gradient, optimizer and metrics.

The gradient depends on the samples, never on the micro-batch size or on the samples' order. An empty batch changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from heedful.algorithms.entropy_control import EntropyTarget
from heedful.algorithms.table import Algorithm
from heedful.models.forward.token_logits import TokenLogits, token_logits
from heedful.models.forward.token_scores import WIDE, block_of, scores_over
from heedful.seeds import stream
from heedful.training.batch import MicroBatch, UpdateSettings, naming_the_size
from heedful.training.correction import Correction, corrected
from heedful.training.critic import Critic, CriticPass, empty_critic_metrics
from heedful.training.objective import Scores, at_trained, scores_of, token_terms
from heedful.training.optimizer_step import OptimizerStep
from heedful.training.recompute import recomputed
from heedful.training.settings import OptimizerConfig
from heedful.training.update_metrics import EMPTY, MASKED, WARMUP, Pass, unread_metrics, update_metrics
from heedful.types import Metric, TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of an update, and the scores from before its first step: per sample, one value per trained token."""

    samples: Sequence[TrainingSample]
    scale: float
    """The factor of the whole loss."""
    token_budget: int | None
    reference: Sequence[torch.Tensor] | None
    """Log-probabilities under the reference, if there is one."""
    learner: Sequence[torch.Tensor] | None = None
    """Log-probabilities under the learner before the update, where it is not the sampler."""
    importance: Sequence[torch.Tensor] | None = None
    """The weights of the tokens, where the learner is not the sampler."""
    metrics: Sequence[Metric] = ()
    """Of the correction, if there is one."""

    def known(self, places: Sequence[int]) -> dict[str, torch.Tensor | None]:
        """What `token_terms` needs beside the scores, for the trained tokens of the samples at `places`."""
        scores = {"reference_N": self.reference, "learner_N": self.learner, "importance_N": self.importance}
        return {
            name: None if found is None else torch.cat([found[place] for place in places])
            for name, found in scores.items()
        }


class SplitsSteps(Protocol):
    """Reads each optimizer step of an update before it is taken, and changes nothing."""

    def take(self, batch: Batch, places: Sequence[int]) -> None:
        """The step on the samples at `places`. The gradient of the whole loss is in the parameters."""
        ...


class Learner:
    """A model, its optimizer and its schedule. The model is updated in place.

    The model is put into evaluation mode and stays there: with dropout the policy that learns would differ from the
    policy that sampled. Every parameter that requires a gradient is trained.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        algorithm: Algorithm,
        optimizer: OptimizerConfig,
        settings: UpdateSettings | None = None,
        *,
        reference: PreTrainedModel | TokenLogits | None = None,
        critic: Critic | None = None,
    ) -> None:
        """`reference`: the KL penalty pulls the policy towards it. `critic`: learns in every update, along with the
        policy.

        Raises ValueError when the algorithm has a KL penalty but there is no reference model.
        """
        if algorithm.kl > 0 and reference is None:
            raise ValueError(
                f"The algorithm has a KL penalty (coefficient {algorithm.kl}), but the learner got no reference model; "
                "pass one, or set the coefficient to 0."
            )
        settings = settings or UpdateSettings()
        self.model = _placed(model, settings.device)
        self.algorithm = algorithm
        self.config = optimizer
        self.settings = settings
        self.device = settings.device
        self.world = settings.world
        self.entropy_coefficient = algorithm.entropy
        """The entropy coefficient of the next update."""
        self.entropy_cut = False
        """The entropy bonus is off for good."""
        self.updates = 0
        """Calls of `update` that changed the weights."""
        self.splits_steps: SplitsSteps | None = None
        self.critic = critic
        self.sharded = settings.sharded
        rows = token_logits(self.model) if self.sharded is None else self.sharded.token_logits
        self._token_logits = recomputed(self.model, rows) if settings.recompute else rows
        if isinstance(reference, torch.nn.Module):
            reference = token_logits(_placed(cast("PreTrainedModel", reference), self.device))
        self._reference_logits = cast("TokenLogits | None", reference)
        self.cut_up = settings.cutter(self.model)
        self._trained_shards = None if self.sharded is None or self.sharded.frozen else self.sharded
        self.optimizer_step = OptimizerStep(model.parameters(), optimizer, self.world, sharded=self._trained_shards)

    def update(
        self, samples: Sequence[TrainingSample], *, scale: float = 1.0, token_budget: int | None = None
    ) -> list[Metric]:
        """Take `algorithm.epochs` x `algorithm.minibatches` optimizer steps on the loss of `samples`, times `scale`.

        Returns the metrics of the update. `token_budget`: the most tokens one trajectory could sample (for the average
        `fixed`). Without samples the optimizer and the schedule take no step, and `filter/empty` is 1. `policy/kl_*`
        and `policy/logprob_error` are measured before the first step, on its batch. Loss, clip fraction and gradient
        norm are means over the steps. While the critic warms up, only the critic learns.

        Raises FloatingPointError when the gradient is not finite, before that step changes anything.
        """
        capped = self.algorithm.importance_cap is not None
        if not samples:
            unread = unread_metrics(EMPTY, empty=True, capped=capped)
            return unread + ([] if self.critic is None else empty_critic_metrics(EMPTY))
        with self.whole():
            batch = self._batch(samples, scale, token_budget)
        warming = self.critic is not None and self.critic.warming
        if not warming and not any(any(sample.trained) for sample in batch.samples):
            # Nothing but masked tokens. The critic learns from the next batch.
            unread = unread_metrics(MASKED, correction=batch.metrics)
            return unread + ([] if self.critic is None else empty_critic_metrics(EMPTY))
        if self.critic is not None:
            self.critic.begin(samples)
        passes: list[Pass] = []
        norms: list[float] = []
        critic_passes: list[CriticPass] = []
        for epoch in range(self.algorithm.epochs):
            for places in self._deal(samples, epoch):
                self.model.zero_grad(set_to_none=True)
                trains = not warming and any(any(batch.samples[place].trained) for place in places)  # not all masked
                if trains:
                    passes.append(self._backward(batch, places))
                if self.critic is not None:
                    cut = self.cut([samples[place] for place in places], token_budget)
                    critic_passes.append(self.critic.learn(cut, scale, through_trunk=not warming))
                if trains:
                    if self.splits_steps is not None:
                        self.splits_steps.take(batch, places)
                    norms.append(self.optimizer_step.take("policy"))
        self.model.zero_grad(set_to_none=True)
        tokens = sum(len(sample.ids) for sample in samples) * self.algorithm.epochs
        metrics = [] if self.critic is None else self.critic.finish(critic_passes)
        if warming:
            return unread_metrics(WARMUP, capped=capped, tokens=tokens) + metrics
        self.updates += 1
        metrics += update_metrics(
            passes,
            norms,
            lr=self.config.lr_at(self.optimizer_step.steps - 1),
            entropy=self.entropy_coefficient,
            tokens=tokens,
            correction=batch.metrics,
        )
        if not self.entropy_cut:
            self.entropy_coefficient = self.algorithm.entropy_control.next(
                self.algorithm.entropy, self.entropy_coefficient, self.updates, passes[0].mean_entropy
            )
        return metrics

    def cut_entropy(self) -> None:
        """Switch the entropy bonus off for good, whatever its control says later."""
        self.entropy_cut, self.entropy_coefficient = True, 0.0

    def accumulate_gradient(
        self, samples: Sequence[TrainingSample], *, scale: float = 1.0, token_budget: int | None = None
    ) -> Pass:
        """Add the gradient of the loss to the parameters' `.grad`, without a step.

        This is the gradient of the first optimizer step of `update` if there were one mini-batch. With several ranks
        each rank adds the gradient of its share of the samples. The returned `Pass` covers all ranks.
        """
        return self._backward(self._batch(samples, scale, token_budget), range(len(samples)))

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trained parameters, in the optimizer's order."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def whole(self) -> AbstractContextManager[None]:
        """A context in which this process may use the model without the others. See `Sharded.whole`."""
        return nullcontext() if self.sharded is None else self.sharded.whole()

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs besides the weights: the optimizer's state, the counts, and the critic."""
        return {
            "descent": self.optimizer_step.state_dict(),
            "updates": self.updates,
            "entropy_coefficient": self.entropy_coefficient,
            **({"entropy_cut": True} if self.entropy_cut else {}),
            "critic": None if self.critic is None else self.critic.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` gave. Raises ValueError when only one of both has a critic."""
        if (state["critic"] is None) != (self.critic is None):
            raise ValueError(f"Expected a learner's state with {'a' if self.critic else 'no'} critic, found the other.")
        self.optimizer_step.load_state_dict(state["descent"])
        self.updates, self.entropy_coefficient = state["updates"], state["entropy_coefficient"]
        self.entropy_cut = state.get("entropy_cut", False)
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])

    def _deal(self, samples: Sequence[TrainingSample], epoch: int) -> list[list[int]]:
        """The indices of the samples of each mini-batch. Whole trajectories, in a different order at every epoch."""
        parts = self.algorithm.minibatches
        if parts == 1:
            return [list(range(len(samples)))]
        places_of: dict[tuple[int, int], list[int]] = {}
        for place, sample in enumerate(samples):
            places_of.setdefault((sample.group, sample.member), []).append(place)
        trajectories = sorted(places_of)
        updates = self.updates if self.critic is None else self.critic.updates
        stream(self.settings.seed, "minibatches", updates, epoch).shuffle(trajectories)
        parts = min(parts, len(trajectories))
        dealt = [trajectories[part::parts] for part in range(parts)]
        return [[place for name in names for place in places_of[name]] for names in dealt]

    def cut(self, samples: Sequence[TrainingSample], token_budget: int | None) -> list[MicroBatch]:
        """Micro-batches of this rank's share of the samples of one optimizer step.

        Token weights depend on all samples, and on trajectories: one that became several samples counts as one.
        """
        counts: dict[tuple[int, int], int] = {}
        weights: dict[tuple[int, int], float] = {}
        for sample in samples:
            name = sample.group, sample.member
            counts[name] = counts.get(name, 0) + sum(sample.trained)
            weights[name] = sample.weight
        shares = self.algorithm.token_weights(list(counts.values()), list(weights.values()), token_budget)
        share_of = dict(zip(counts, shares, strict=True))
        weights_B = [share_of[sample.group, sample.member] for sample in samples]
        mine = self.world.mine([len(sample.ids) for sample in samples])
        cut = self.cut_up([samples[place] for place in mine], [weights_B[place] for place in mine])
        return [replace(batch, places_B=tuple(mine[place] for place in batch.places_B)) for batch in cut]

    def _logits(self, rows: TokenLogits, batch: MicroBatch) -> torch.Tensor:
        logits_NV = rows(batch.ids_BT, batch.trained_BT, batch.prompts)
        return logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / self.settings.temperature

    def scores(self, batch: MicroBatch, with_entropy: bool = False) -> Scores:
        """The learner's own scores of the trained tokens of a micro-batch."""
        return self._scores(self._token_logits, batch, with_entropy)

    def _scores(self, rows: TokenLogits, batch: MicroBatch, with_entropy: bool = False) -> Scores:
        """The scores of the trained tokens under the model behind `rows`, in blocks for wide vocabularies."""
        vocabulary = self.model.config.get_text_config().vocab_size
        if (
            vocabulary < WIDE or self.sharded is not None
        ):  # a shard is gathered for one call of the head, not for blocks
            return scores_of(self._logits(rows, batch), batch, with_entropy)
        targets_N = at_trained(batch.ids_BT, batch)
        over = scores_over(targets_N, self.settings.temperature, with_entropy, block_of(vocabulary))
        columns = rows(batch.ids_BT, batch.trained_BT, batch.prompts, over).unbind(1)
        return Scores(columns[0], columns[1] if with_entropy else None)

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """For each sample the learner's log-probabilities of its trained tokens, before the next update."""
        with self.whole():
            return [logprobs_T.tolist() for logprobs_T in self._score(self._token_logits, samples)]

    def _batch(self, samples: Sequence[TrainingSample], scale: float, token_budget: int | None) -> Batch:
        found = Correction(samples, None, None, ())
        if self.algorithm.importance_cap is not None:
            found = corrected(self.algorithm, samples, self._score(self._token_logits, samples))
        reference = None if self._reference_logits is None else self._score(self._reference_logits, found.samples)
        return Batch(found.samples, scale, token_budget, reference, found.learner, found.weights, found.metrics)

    def _score(self, rows: TokenLogits, samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
        """For each sample the log-probabilities of its trained tokens under the model behind `rows`."""
        if self.world.size == 1:
            return self._score_alone(rows, samples)
        lengths = [len(sample.ids) for sample in samples]
        scores = self.world.together(
            lengths, lambda mine: [t.cpu() for t in self._score_alone(rows, [samples[place] for place in mine])]
        )
        return [logprobs_T.to(self.device) for logprobs_T in scores]

    @torch.no_grad()
    def _score_alone(self, rows: TokenLogits, samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
        scores: list[torch.Tensor] = [torch.empty(0)] * len(samples)
        for batch in self.cut_up(samples, [0.0] * len(samples)):
            logprobs_N = self._scores(rows, batch).logprobs_N
            counts_B = [sum(samples[place].trained) for place in batch.places_B]
            for place, logprobs_T in zip(batch.places_B, logprobs_N.split(counts_B), strict=True):
                scores[place] = logprobs_T
        return scores

    def _backward(self, batch: Batch, places: Sequence[int]) -> Pass:
        """Add the gradient of the loss of the samples at `places`, averaged over these alone."""
        reading = Pass()
        samples = [batch.samples[place] for place in places]
        cut = self.cut(samples, batch.token_budget)
        reads_entropy = self.entropy_coefficient > 0 or isinstance(self.algorithm.entropy_control, EntropyTarget)
        # FSDP2 averages a sharded model's gradients over ranks, and their sum is needed.
        averaged = 1 if self._trained_shards is None else self.world.size
        # Each of its passes gathers the shards of all ranks, so every rank takes equally many backward passes.
        most = len(cut) if self.sharded is None else max(self.world.gather(len(cut)))
        for micro in cut:
            at = [places[place] for place in micro.places_B]
            known = batch.known(at)
            with naming_the_size(micro, "the update", f" (now {self.settings.micro_batch_tokens})"):
                scores = self.scores(micro, reads_entropy)
                terms = token_terms(self.algorithm, micro, scores, **known)
                loss = batch.scale * terms.loss(self.algorithm.kl, self.entropy_coefficient)
                (loss * averaged).backward()
            reading.add(loss.detach(), terms, known["reference_N"])
        for _ in range(most - len(cut)):
            (blank,) = self.cut_up([min(samples, key=lambda sample: len(sample.ids))], [0.0])
            (self._logits(self._token_logits, blank).sum() * 0.0).backward()
        return reading.over(self.world)


def _placed(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    cast(torch.nn.Module, model).to(device)
    return model.eval()
