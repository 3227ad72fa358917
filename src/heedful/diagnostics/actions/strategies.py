"""What agents did, without a model: what the first action tells, how strategies vary, and which turns lead nowhere.

The input is executed actions and reported states. Where an environment names neither, the value is `None` with the
reason, not 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from heedful.diagnostics.actions.exchanged import mostly_alone
from heedful.diagnostics.actions.information import FEWEST_PROMPTS, action_information
from heedful.diagnostics.behaviour_metrics import mean, rate
from heedful.types import Group, Metric, Trajectory

FEWEST_ACTIONS = 4
"""Actions that a prompt needs to be counted."""
NO_ACTIONS = "no turn names an action"


def strategy_metrics(groups: Sequence[Group]) -> list[Metric]:
    """`grounding/strategy_entropy` (nats), `/distinct_strategies` and `/oscillation_rate` (shares).

    A strategy is the sequence of executed actions of a whole episode. Entropy and share of distinct strategies are
    taken within each group of at least two and averaged over groups. Both grow with the group's size G (at most log G,
    at least 1 / G): compare values of equal G. Intervals are clustered by task.

    A turn oscillates in three cases. It repeats an earlier turn of its episode (same actions, same state after it). The
    state after it is the state before it. It is a first turn with nothing executed of an invalid reply (before a first
    turn no state is known). Turns whose state is not reported do not count.
    """
    idle: dict[str, list[float]] = {}
    for group in groups:
        turns = idle.setdefault(group.task.id, [])
        turns += [float(each) for one in group.trajectories for each in _idle_turns(one)]
    oscillation = rate("grounding/oscillation_rate", list(idle.values()), "no turn reports a state")
    return [*_strategies(groups), oscillation]


def input_to_action(groups: Sequence[Group], place: str = "") -> Metric:
    """I(X;A) of prompt and first action, in nats: `grounding/input_to_action`.

    That of `action_information`, corrected for few prompts and few actions. It may be negative. Its interval is for the
    truth, and needs 8 prompts. An invalid reply of which nothing was executed counts as an action of its own. Prompts
    are distinct by token ids (by text where there are none). Prompts with fewer than 4 actions are left out. `place`:
    `/<environment>` in a batch that mixes several.
    """
    name = f"grounding{place}/input_to_action"
    by_prompt: dict[object, list[str | None]] = {}
    for trajectory in (one for group in groups for one in group.trajectories if one.turns):
        turn = trajectory.turns[0]
        prompt = turn.reply.prompt.ids or turn.reply.prompt.text
        by_prompt.setdefault(prompt, []).append(turn.actions[0] if turn.actions else None)
    actions = [action for found in by_prompt.values() for action in found]
    counted = [Counter(found) for found in by_prompt.values() if len(found) >= FEWEST_ACTIONS]
    why = "" if any(action is not None for action in actions) else NO_ACTIONS
    if not why and (alone := mostly_alone(actions)):
        why = f"free text: {alone} of {len(actions)} first actions are no other reply's"
    if not why and len(counted) < 2:
        why = f"needs at least 2 prompts with {FEWEST_ACTIONS} actions each, found {len(counted)}"
    if why:
        return Metric(name, None, len(actions), why=why)
    taken = dict.fromkeys(action for found in counted for action in found)
    counts_NA = np.array([[found[action] for action in taken] for found in counted], dtype=np.float64)
    found = action_information(counts_NA)
    low, high = found.interval or (None, None)
    why = "" if found.interval else f"no interval: an interval needs at least {FEWEST_PROMPTS} prompts"
    return Metric(name, found.value, int(counts_NA.sum()), low, high, why, found.clusters)


def _strategies(groups: Sequence[Group]) -> list[Metric]:
    names = "grounding/strategy_entropy", "grounding/distinct_strategies"
    played = [
        (
            group.task.id,
            [tuple(action for turn in one.turns for action in turn.actions) for one in group.trajectories if one.turns],
        )
        for group in groups
    ]
    why = "" if any(strategy for _, strategies in played for strategy in strategies) else NO_ACTIONS
    played = [(task, strategies) for task, strategies in played if len(strategies) > 1]
    if not played or why:
        return [Metric(name, None, len(played), why=why or "no group has two episodes") for name in names]
    entropies: dict[str, list[float]] = {}
    distinct: dict[str, list[float]] = {}
    for task, strategies in played:
        shares = [count / len(strategies) for count in Counter(strategies).values()]
        entropies.setdefault(task, []).append(-math.fsum(share * math.log(share) for share in shares))
        distinct.setdefault(task, []).append(len(shares) / len(strategies))
    return [
        mean(names[0], list(entropies.values()), why, floor=0.0),
        mean(names[1], list(distinct.values()), why, floor=0.0, ceiling=1.0),
    ]


def _idle_turns(trajectory: Trajectory) -> Iterable[bool]:
    """For each turn that reports a state: whether it led nowhere."""
    seen: set[tuple[tuple[str, ...], str]] = set()
    before = ""
    for place, turn in enumerate(trajectory.turns):
        if turn.state:
            nothing_said = place == 0 and not turn.valid and not turn.actions
            yield nothing_said or turn.state == before or (turn.actions, turn.state) in seen
            seen.add((turn.actions, turn.state))
        before = turn.state
