"""What the measurements of one environment may read in one step, and what they have read.

Promise: a function of the step's episodes and the settings. Nothing is carried from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heedful.measuring.budget import Sizes, fit, steps_paid_for
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.thought_scores import ThoughtScores
from heedful.types import Metric

COST_NAMES = ("diagnosis_share", "diagnosis_prompts", "diagnosis_thoughts")
"""Below `cost[/<environment>]/`, in this order."""


@dataclass(slots=True)
class Spending:
    """Makes the measurements of one environment and one step small enough, and counts what they read."""

    config: DiagnosticsConfig
    step: int
    step_tokens: int
    """Tokens of collecting and updating with the groups of this environment."""
    read: int = 0
    """Tokens that were read so far."""
    paid_for: float = 0.0
    """Steps that the last measurement pays for."""
    first: Sizes | None = None
    """The sizes of the last measurement. `None`: none was made."""

    def like_cheap(self, asked: ThoughtScores) -> Sizes:
        """The sizes that a cheap measurement of this step would have."""
        if self.config.share is None:
            return asked.cheap_sizes
        return fit(asked.cheap_sizes, asked.cost, self.config.share * self.step_tokens * self._steps(full=False)).sizes

    def _steps(self, *, full: bool) -> float:
        """The steps that a measurement pays for. Every one is taken to cost as much as this one."""
        return steps_paid_for(self.step, self.config.every, self.config.full_every, full=full)

    def fitted(self, asked: ThoughtScores, *, full: bool) -> ThoughtScores:
        """The cheap or the full measurement, at the sizes that fit."""
        config = self.config
        if config.share is None:
            return asked
        self.paid_for = self._steps(full=full)
        allowed = config.share * self.step_tokens * self.paid_for
        fitted = fit(asked.full_sizes if full else asked.cheap_sizes, asked.cost, allowed)
        self.read += fitted.tokens
        self.first = fitted.sizes
        why = f"not measured in this step: the share of {config.share:g} allows {int(allowed)} tokens"
        return replace(asked, sizes=fitted.sizes, left_out=dict.fromkeys(fitted.left_out, why))

    def metrics(self, place: str, why: str = "") -> list[Metric]:
        """`COST_NAMES` after the measurement. `why`: the reason why it read nothing, or not all."""
        if self.config.share is None:
            return []
        if self.first is None or why:
            return [Metric(f"cost{place}/{name}", None, why=why) for name in COST_NAMES]
        steps = self.step_tokens * self.paid_for
        found = (self.read / steps if steps else None, float(self.first.prompts), float(self.first.thoughts))
        return [
            Metric(f"cost{place}/{name}", value, why="" if value is not None else "the step has no tokens")
            for name, value in zip(COST_NAMES, found, strict=True)
        ]
