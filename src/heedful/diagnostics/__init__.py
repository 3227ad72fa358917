"""Metrics as pure functions of what they are handed. Nothing here can reach a policy, a learner or a file."""

from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.strategies import input_to_action, strategy_metrics
from heedful.diagnostics.behaviour import behaviour
from heedful.diagnostics.gradient.metrics import gradient_metrics
from heedful.diagnostics.regimes import label_regime
from heedful.diagnostics.signal import rollout_metrics, spread_metrics, verdict_metrics
from heedful.diagnostics.text import text_metrics
from heedful.diagnostics.triage import histories, triage

__all__ = [
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
