"""The metrics that another trainer's batch cannot give, with the reasons. Torch-free."""

from __future__ import annotations

from heedful.diagnostics.unavailable import SUCCESS_METRICS


def unknown_metrics(trainer: str, unknown_success: str, outcome: bool, played: bool) -> dict[str, str]:
    """Metric -> why `trainer` cannot give it.

    `unknown_success`: why success is unknown, and how to name it. `outcome`: success is known. `played`: the episodes
    are those of heedful's environments.
    """
    missing = {} if outcome else dict.fromkeys(SUCCESS_METRICS, unknown_success)
    validity = f"{trainer} does not say whether a completion could be executed"
    return missing | ({} if played else {"format/valid_rate": validity})
