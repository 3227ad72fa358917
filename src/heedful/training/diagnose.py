"""Takes every measurement of a training step, with the weights that sampled it and before they are updated.

Promise: reads only. Its random numbers are its own, so training with and without it gives the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedful.diagnostics.information import ZScoreState, information
from heedful.diagnostics.regimes import RegimeState, label_regime
from heedful.diagnostics.score_matrix import select_rows
from heedful.diagnostics.signal import rollout_metrics
from heedful.diagnostics.thoughts import Thoughts, first_turn_thoughts
from heedful.protocols import Scorer
from heedful.seeds import derive
from heedful.training.config import DiagnosticsConfig
from heedful.types import CrossScores, Group, Metric, Verdict

SCOPES = ("first_turn", "first_turn_closed")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The metrics of one step and, after a full measurement, the matrix they came from."""

    metrics: list[Metric]
    scores: CrossScores | None = None
    thoughts: Thoughts | None = None


@dataclass(slots=True)
class Diagnostician:
    """Measures at two cadences and carries the few numbers that connect measurements."""

    config: DiagnosticsConfig
    scorer: Scorer
    seed: int
    close_tag: str
    """Ends a thought: for the texts beside the scores."""
    zscores: dict[str, ZScoreState] = field(default_factory=dict)
    regimes: dict[str, RegimeState] = field(default_factory=dict)

    def measure(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], on: str) -> Diagnosis:
        """All metrics of this step's groups; information and retrieval only when they are due."""
        metrics = rollout_metrics(groups, verdicts, on)
        full = step % self.config.full_every == 0
        if not self.config.enabled or not (full or step % self.config.every == 0):
            return Diagnosis(metrics)
        config = self.config
        chosen = (None, None) if full else (config.prompts, config.thoughts)
        thoughts = first_turn_thoughts(groups, self.close_tag, *chosen)
        temperature = groups[0].trajectories[0].temperature
        scores = self.scorer.cross_score(thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M, temperature)
        closed = select_rows(scores, thoughts.closed_M)
        for scope, matrix in zip(SCOPES, (scores, closed), strict=True):
            metrics += self._read(step, scope, matrix)
        return Diagnosis(metrics, scores, thoughts) if full else Diagnosis(metrics)

    def _read(self, step: int, scope: str, scores: CrossScores) -> list[Metric]:
        rng = np.random.default_rng(derive(self.seed, "permutations", step, scope))
        reading = information(scores, scope, rng=rng, state=self.zscores.get(scope))
        if reading.state is not None:
            self.zscores[scope] = reading.state
        self.regimes[scope], label = label_regime(self.regimes.get(scope), reading.metrics, scope)
        return [*reading.metrics, label]

    def state(self) -> dict[str, Any]:
        """The numbers to checkpoint, as a JSON tree."""
        return {
            "zscores": {scope: state.to_json() for scope, state in self.zscores.items()},
            "regimes": {scope: state.to_json() for scope, state in self.regimes.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.zscores = {scope: ZScoreState.from_json(tree) for scope, tree in state["zscores"].items()}
        self.regimes = {scope: RegimeState.from_json(tree) for scope, tree in state["regimes"].items()}
