"""One update of the policy as a sum of parts: what each term of the loss did to the weights.

Promise: reading the parts changes no byte of the update. They add up to it, but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from heedful.training.gradients.adamw import AdamWStep, Tensors
from heedful.training.gradients.components import CRITIC, Advantages
from heedful.training.gradients.parts import Pull, Weighing, pulls
from heedful.training.learner import Batch, Learner
from heedful.types import TrainingSample

CARRIED, DECAY = "carried", "decay"
"""The first moments from before the update, as far as no term owns them; the weight decay."""


@dataclass(slots=True)
class TermMoments:
    """The first moment of each term of the loss. They add up to the optimizer's, from their first step on."""

    of_term: dict[str, Tensors] = field(default_factory=dict)

    def after(self, term: str, moved: Tensors, beta: float) -> Tensors:
        """The moment of a term after a step that adds `moved` to it; it is kept."""
        before = self.of_term.get(term)
        self.of_term[term] = (
            moved if before is None else [beta * one + new for one, new in zip(before, moved, strict=True)]
        )
        return self.of_term[term]

    def state_dict(self) -> dict[str, Any]:
        return dict(self.of_term)

    def load_state_dict(self, state: Mapping[str, Tensors]) -> None:
        self.of_term = {name: list(moments) for name, moments in state.items()}


@dataclass(slots=True)
class UpdateParts:
    """Splits the optimizer steps of one update (`Learner.splits_steps`)."""

    learner: Learner
    advantages: Mapping[str, Advantages]
    """Part of the reward -> the advantages of every sample, from `split_advantages`."""
    moments: TermMoments | None = None
    """Where they are kept, a part is what the term's moment takes, else what this step's gradient takes alone."""
    parts: dict[str, Tensors] = field(default_factory=dict)
    """Part -> what it adds to the weights, summed over the optimizer steps."""
    token_pulls: dict[str, dict[int, Pull]] = field(default_factory=dict)
    """Term -> sample -> its pull on each trained token, in the first optimizer step."""
    first: AdamWStep | None = None
    """The first optimizer step."""
    samples: Sequence[TrainingSample] = ()
    """The samples of the update, by place."""
    steps: int = 0

    def take(self, batch: Batch, places: Sequence[int]) -> None:
        step = self.learner.optimizer_step.ahead()
        whole = self.learner.optimizer_step.gradients()
        gradients = self._terms(batch, places)
        if self.learner.critic is not None and self.learner.critic.config.trunk > 0:
            # The value loss reaches the policy's layers, too.
            rest = [one - sum(found[place] for found in gradients.values()) for place, one in enumerate(whole)]
            known = gradients.get(CRITIC)
            gradients[CRITIC] = rest if known is None else list(map(torch.add, known, rest))
        self._add(CARRIED, step.step(step.carried()))
        for term in dict.fromkeys([*gradients, *(self.moments.of_term if self.moments else ())]):
            moved = step.moved(gradients[term]) if term in gradients else [torch.zeros_like(one) for one in whole]
            if self.moments is None:
                self._add(term, step.step(moved))
                continue
            owned = self.moments.of_term.get(term)
            self._add(term, step.step(self.moments.after(term, moved, step.beta)))
            if owned is not None:  # no longer of no term
                self._add(CARRIED, step.step([-step.beta * one for one in owned]))
        if step.decayed:
            self._add(DECAY, step.decay(self.learner.optimizer_step.optimized))
        if self.first is None:
            self.first, self.samples = step, batch.samples
        self.steps += 1

    def _add(self, name: str, part: Tensors) -> None:
        known = self.parts.get(name)
        self.parts[name] = part if known is None else list(map(torch.add, known, part))

    def _terms(self, batch: Batch, places: Sequence[int]) -> dict[str, Tensors]:
        """Term -> its gradient over the samples at `places`. Terms that pull nowhere are left out."""
        learner, parameters = self.learner, self.learner.parameters
        weighing = Weighing(learner.algorithm.kl, learner.entropy_coefficient, batch.scale)
        found: dict[str, Tensors] = {}
        for micro in learner.cut([batch.samples[place] for place in places], batch.token_budget):
            at = [places[place] for place in micro.places_B]
            scores = learner.scores(micro, weighing.entropy > 0)
            advantages = {
                name: scores.logprobs_N.new_tensor([one for place in at for one in self._trained(batch, place, parts)])
                for name, parts in self.advantages.items()
            }
            of_term = pulls(learner.algorithm, weighing, micro, scores, advantages, **batch.known(at))
            counts = [sum(batch.samples[place].trained) for place in at]
            for name, pull in of_term.items():
                if pull.silent:
                    continue
                target = pull.along(*scores).sum()
                grads = torch.autograd.grad(target, parameters, retain_graph=True, materialize_grads=True)
                wide = [one.to(torch.promote_types(one.dtype, torch.float32)) for one in grads]
                found[name] = wide if name not in found else list(map(torch.add, found[name], wide))
                if self.first is None:
                    self._keep(name, pull, at, counts)
        return found

    def _keep(self, name: str, pull: Pull, at: Sequence[int], counts: Sequence[int]) -> None:
        entropies = [None] * len(at) if pull.entropy_N is None else pull.entropy_N.split(list(counts))
        for place, of_logprobs, of_entropy in zip(at, pull.logprobs_N.split(list(counts)), entropies, strict=True):
            self.token_pulls.setdefault(name, {})[place] = Pull(of_logprobs, of_entropy)

    def _trained(self, batch: Batch, place: int, advantages: Advantages) -> list[float]:
        return [one for one, trained in zip(advantages[place], batch.samples[place].trained, strict=True) if trained]
