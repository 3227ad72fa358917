"""How right held-out first turns are, and by what: thoughts exchanged between tasks, within a number of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.diagnostics.actions.exchanged import Exchange, exchange, exchange_answers
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.rightness import NO_WORTH, PARTS, worthiness
from heedful.measuring.budget import step_tokens
from heedful.measuring.swapped import TokenScorer, read_exchange, requests_of_actions
from heedful.measuring.thought_scores import tokens_read
from heedful.types import Group, Metric, Rightness, Verdict, Worth

TASKS = (32, 24, 16, 12, 8)
"""Numbers of tasks that are tried in this order. Fewer have intervals too wide to read."""


def evaluated_metrics(
    prefix: str,
    groups: Sequence[Group],
    scorer: TokenScorer,
    temperature: float,
    right: Rightness,
    worth: Worth | None,
    allowed: float = math.inf,
) -> list[Metric]:
    """`<prefix>/right*` of first actions and `<prefix>/worth*` of whole first answers, with up to two thoughts a task.

    `allowed`: the tokens that may be read. First actions of at most 32 tasks come first, and whole answers read of the
    rest. Where 8 tasks are too many, nothing is read, and the metrics have the reason.
    """
    actions, read = _fitted(scorer, lambda tasks: exchange(groups, 2 * tasks, tasks), allowed)
    answers = Exchange(why=NO_WORTH)
    if worth is not None and groups and worth(groups[0].task, "") is not None:
        answers, _ = _fitted(scorer, lambda tasks: exchange_answers(groups, 2 * tasks, tasks), allowed - read)
    found = grounding(*read_exchange(scorer, actions, temperature), right=right)
    by_name = {metric.name.removeprefix("grounding/"): metric for metric in found}
    metrics = [replace(by_name[f"right{part}"], name=f"right{part}") for part in PARTS]
    metrics += worthiness(*read_exchange(scorer, answers, temperature), worth)
    return [replace(metric, name=f"{prefix}/{metric.name}") for metric in metrics]


def evaluated_tokens(share: float | None, groups: Sequence[Group]) -> float:
    """The tokens that may be read for an evaluation of these groups: a share of those that it read and sampled."""
    dropped = [Verdict(0.0, "", 0.0)] * len(groups)  # nothing is learned from them
    return math.inf if share is None else share * step_tokens(groups, dropped)


def _fitted(scorer: TokenScorer, ask: Callable[[int], Exchange], allowed: float) -> tuple[Exchange, int]:
    """What is asked of as many tasks as fit, and the tokens that it reads."""
    for tasks in TASKS:
        asked = ask(tasks)
        tokens = sum(tokens_read(scorer, each.prompts, each.thoughts) for each in requests_of_actions(asked))
        if tokens <= allowed:
            return asked, tokens
    return Exchange(why=f"not measured: the share of the evaluation allows {max(0, int(allowed))} tokens"), 0
