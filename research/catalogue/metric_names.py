"""Names of the metrics that most studies read."""

from __future__ import annotations

SUCCESS = "eval/val/sampled/success"
GREEDY = "eval/val/greedy/success"
INFORMATION = "information/first_turn"
ONE_OUTCOME = "policy/advantage_without_outcome"
