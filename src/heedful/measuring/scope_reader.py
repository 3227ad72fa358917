"""Reads the metrics of one scope off its scores, for runs and for audits alike.

Promise: the permutations of a scope depend on the seed, the step and the scope's name alone, so an audit of a run gives
the run's own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from heedful.diagnostics.cross_scores.information import ZScoreState, information
from heedful.diagnostics.cross_scores.score_matrix import select_rows
from heedful.diagnostics.names import scope_name
from heedful.diagnostics.regimes import RegimeState, label_regime
from heedful.seeds import derive
from heedful.types import CrossScores, Metric

NO_SCORES = CrossScores([], [], [])


@dataclass(frozen=True, slots=True)
class ScoredThoughts:
    """The thoughts of one scope and their scores; without arguments: nothing to score."""

    scores: CrossScores = NO_SCORES
    closed_M: Sequence[bool] = ()
    """True where the thought was closed by its tag."""
    why: str = ""
    """Why there is nothing to score, in place of each metric's own reason."""
    note: str = ""
    """What is to be said of the thoughts, beside the ceiling."""


@dataclass(slots=True)
class ScopeReader:
    """Computes `information/*`, `retrieval/*` and `regime/*` of a scope, and keeps what connects two measurements."""

    seed: int
    zscores: dict[str, ZScoreState] = field(default_factory=dict)
    """Scope, with `@<scorer>` where another model scored -> the smoothed divisor of its z-score."""
    regimes: dict[str, RegimeState] = field(default_factory=dict)
    """Scope -> its first measurements."""

    def measure(self, step: int, scope: str, found: ScoredThoughts, place: str = "", scorer: str = "") -> list[Metric]:
        """The metrics of all thoughts of a scope, then those of its closed thoughts.

        Args:
            scope: `first_turn`, `any_turn`, `observation`, or what is exchanged where prompts hold pictures.
            place: `/<environment>` in a batch that mixes environments.
            scorer: name of the scoring model when it is not the policy that sampled. It has no regime: regimes are the
                policy's own.
        """
        closed = select_rows(found.scores, found.closed_M) if found.closed_M else found.scores
        metrics = [
            *self._one(step, scope_name(scope, place), found.scores, scorer),
            *self._one(step, scope_name(scope, place, closed=True), closed, scorer),
        ]
        if found.note:
            metrics = [replace(each, why=found.note) if each.name.endswith("/mi_ceiling") else each for each in metrics]
        if not found.why:
            return metrics
        return [replace(metric, why=found.why) if metric.value is None else metric for metric in metrics]

    def _one(self, step: int, scope: str, scores: CrossScores, scorer: str) -> list[Metric]:
        key = f"{scope}@{scorer}" if scorer else scope
        rng = np.random.default_rng(derive(self.seed, "permutations", step, key))
        found = information(scores, scope, rng, self.zscores.get(key), scorer=scorer)
        self.zscores[key] = found.state
        if scorer:
            return found.metrics
        self.regimes[scope], label = label_regime(self.regimes.get(scope), found.metrics, scope)
        return [*found.metrics, label]

    def state(self) -> dict[str, Any]:
        """What a later measurement needs of the earlier ones, as a JSON tree."""
        return {
            "zscores": {scope: asdict(state) for scope, state in self.zscores.items()},
            "regimes": {scope: asdict(state) for scope, state in self.regimes.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.zscores = {scope: ZScoreState(**tree) for scope, tree in state["zscores"].items()}
        self.regimes = {scope: RegimeState.from_json(tree) for scope, tree in state["regimes"].items()}
