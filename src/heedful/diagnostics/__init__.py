"""Metrics as pure functions of what they are handed. Nothing here can reach a policy, a learner or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.diagnostics.actions.grounding import grounding
    from heedful.diagnostics.actions.strategies import input_to_action, strategy_metrics
    from heedful.diagnostics.behaviour_metrics import behaviour
    from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
    from heedful.diagnostics.gradient.metrics import gradient_metrics
    from heedful.diagnostics.regimes import label_regime
    from heedful.diagnostics.signal import rollout_metrics, spread_metrics, verdict_metrics
    from heedful.diagnostics.task_triage import histories, triage
    from heedful.diagnostics.text import text_metrics

__all__ = [
    "ThoughtTags",
    "behaviour",
    "gradient_metrics",
    "grounding",
    "histories",
    "input_to_action",
    "label_regime",
    "rollout_metrics",
    "spread_metrics",
    "strategy_metrics",
    "text_metrics",
    "triage",
    "verdict_metrics",
]

__getattr__ = lazily(
    __name__,
    {
        "ThoughtTags": "heedful.diagnostics.cross_scores.thoughts",
        "behaviour": "heedful.diagnostics.behaviour_metrics",
        "gradient_metrics": "heedful.diagnostics.gradient.metrics",
        "grounding": "heedful.diagnostics.actions.grounding",
        "histories": "heedful.diagnostics.task_triage",
        "input_to_action": "heedful.diagnostics.actions.strategies",
        "label_regime": "heedful.diagnostics.regimes",
        "rollout_metrics": "heedful.diagnostics.signal",
        "spread_metrics": "heedful.diagnostics.signal",
        "strategy_metrics": "heedful.diagnostics.actions.strategies",
        "text_metrics": "heedful.diagnostics.text",
        "triage": "heedful.diagnostics.task_triage",
        "verdict_metrics": "heedful.diagnostics.signal",
    },
)
