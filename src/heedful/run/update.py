"""One update of the policy from groups and verdicts: the same in training and in the replay of a stored step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.algorithms.table import loss_scale_factor
from heedful.envs.common.contract import turns_of
from heedful.protocols import UsesCritic
from heedful.run.config import TrainConfig
from heedful.training.critic import value_metrics
from heedful.training.gradients.attribution import Attributor
from heedful.training.learner import Learner
from heedful.training.replay import Success, replayed
from heedful.training.samples import advantage_without_outcome, credit, merge_rows
from heedful.types import Group, Metric, Verdict


def update_policy(
    config: TrainConfig,
    learner: Learner,
    groups: Sequence[Group],
    verdicts: Sequence[Verdict],
    attributor: Attributor | None = None,
    replays: Mapping[int, Success] | None = None,
) -> list[Metric]:
    """One update from the kept groups. With a critic, also how well its values predicted.

    `attributor`: splits the update. It changes nothing. `replays`: place of a group -> a success that is one more
    member of it. `None`: nothing is replayed in this run.
    """
    estimator, rows = config.algorithm.advantage, merge_rows(groups, verdicts)
    metrics: list[Metric] = []
    if learner.critic is not None and rows and isinstance(estimator, UsesCritic):
        values = learner.critic.values(rows)
        samples = credit(rows, groups, estimator, values)
        metrics += value_metrics(rows, groups, values, estimator)
    else:
        samples = credit(rows, groups, estimator)
    metrics.append(advantage_without_outcome(samples, groups))
    if attributor is not None:
        attributor.begin(samples, rows, groups, estimator)
    if replays is not None:
        more, told = replayed(replays, groups, learner.logprobs)
        samples += more
        metrics += told
    # A replay counts as one member of a group.
    kept = sum(verdict.kept for verdict in verdicts) + len(replays or ()) / config.group_size
    scale = loss_scale_factor(config.loss_scale, kept, len(verdicts), config.filter.share)
    budget = turns_of(config.env) * config.sampling.tokens_per_turn
    return metrics + learner.update(samples, scale=scale, token_budget=budget)
