"""What agents did, without a model: what the first action tells, how strategies vary, and which turns lead nowhere.

The input is executed actions and reported states. Where an environment names neither, the value is `None` with the
reason, not 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from heedful.diagnostics.actions.exchanged import mostly_alone
from heedful.diagnostics.actions.information import FEWEST_PROMPTS, action_information
from heedful.diagnostics.behaviour_metrics import mean, rate
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.mixture import FEW_PROMPTS
from heedful.types import Group, Metric, Trajectory

Floats = npt.NDArray[np.float64]

DRAWS = 200
"""Permutations of actions against prompts."""
FEWEST_ACTIONS = 4
"""Actions that a prompt needs to be counted."""
ACTION_NAMES = ("input_to_action", "input_to_action_plugin", "input_to_action_p_value")
NO_ACTIONS = "no turn names an action"
NO_INTERVAL = f"no interval: an interval needs at least {FEWEST_PROMPTS} prompts"


def strategy_metrics(groups: Sequence[Group]) -> list[Metric]:
    """`grounding/strategy_entropy` (nats), `/distinct_strategies` and `/oscillation_rate` (shares).

    A strategy is the sequence of executed actions of a whole episode. Entropy and share of distinct strategies are
    taken within each group of at least two and averaged over groups. Both grow with the group's size G (at most log G,
    at least 1 / G): compare values of equal G. Intervals are clustered by task.

    A turn oscillates in three cases. It repeats an earlier turn of its episode (same actions, same state after it). The
    state after it is the state before it. It is a first turn with nothing executed of an invalid reply (before a first
    turn no state is known). Turns whose state is not reported do not count.
    """
    return [*_strategies(groups), _oscillation(groups)]


def input_to_action(groups: Sequence[Group], rng: np.random.Generator, place: str = "") -> list[Metric]:
    """I(X;A) of prompt and first action, in nats: `grounding/input_to_action`, `_plugin` and `_p_value`.

    The first is that of `action_information`, corrected for few prompts and few actions. It may be negative. Its
    interval is for the truth. The plug-in has no correction, and its interval (delete-one-prompt jackknife) is for its
    own mean. An interval needs 8 prompts, that of the plug-in 3.

    The p-value is (1 + permutations of actions against prompts with as large a plug-in) / (200 + 1). Only permutations
    draw from `rng`. An invalid reply of which nothing was executed counts as an action of its own. Prompts are distinct
    by token ids (by text where there are none). Prompts with fewer than 4 actions are left out. `place`:
    `/<environment>` in a batch that mixes several.
    """
    actions, by_prompt = _first_actions(groups)
    why = "" if any(action is not None for action in actions) else NO_ACTIONS
    alone = mostly_alone(actions)
    if not why and alone:
        why = f"free text: {alone} of {len(actions)} first actions are no other reply's"
    if not why and len(by_prompt) < 2:
        why = f"needs at least 2 prompts with {FEWEST_ACTIONS} actions each, found {len(by_prompt)}"
    if why:
        return [Metric(f"grounding{place}/{name}", None, len(actions), why=why) for name in ACTION_NAMES]
    tables_BNA = _tables(list(by_prompt.values()), rng)
    plugin, *permuted = _informations(tables_BNA)
    found = action_information(tables_BNA[0])
    low, high = found.interval or (None, None)
    raw = None if len(by_prompt) < 3 else _informations_without(tables_BNA[0])
    rows = sum(map(len, by_prompt.values()))
    as_good = int(np.sum(np.asarray(permuted) >= plugin - 1e-9))
    names = [f"grounding{place}/{name}" for name in ACTION_NAMES]
    return [
        Metric(names[0], found.value, rows, low, high, "" if found.interval else NO_INTERVAL, found.clusters),
        metric_from(names[1], Estimate(plugin, raw, FEW_PROMPTS), rows),
        Metric(names[2], (1 + as_good) / (DRAWS + 1), rows),
    ]


def _first_actions(groups: Sequence[Group]) -> tuple[list[str | None], dict[object, list[str | None]]]:
    """First actions of first turns, `None` where none was executed: all, and by prompt where there are enough."""
    by_prompt: dict[object, list[str | None]] = {}
    for trajectory in (one for group in groups for one in group.trajectories if one.turns):
        turn = trajectory.turns[0]
        prompt = turn.reply.prompt.ids or turn.reply.prompt.text
        by_prompt.setdefault(prompt, []).append(turn.actions[0] if turn.actions else None)
    actions = [action for found in by_prompt.values() for action in found]
    return actions, {prompt: found for prompt, found in by_prompt.items() if len(found) >= FEWEST_ACTIONS}


def _tables(actions_N: Sequence[Sequence[str | None]], rng: np.random.Generator) -> Floats:
    """Counts of prompt x action: as they are, then of 200 permutations of the actions."""
    number: dict[str | None, int] = {}
    taken = np.array([number.setdefault(action, len(number)) for actions in actions_N for action in actions])
    own = np.repeat(np.arange(len(actions_N)), [len(actions) for actions in actions_N])
    dealt = np.vstack([taken, rng.permuted(np.tile(taken, (DRAWS, 1)), axis=1)])
    shape = DRAWS + 1, len(actions_N), len(number)
    cells = (np.arange(shape[0])[:, None] * shape[1] + own) * shape[2] + dealt
    return np.bincount(cells.ravel(), minlength=math.prod(shape)).reshape(shape).astype(np.float64)


def _informations(tables_BNA: Floats) -> Floats:
    """The plug-in mutual information of each table."""
    n = tables_BNA[0].sum()
    cells_B = _n_log_n(tables_BNA).sum(axis=(1, 2))
    prompts_B, actions_B = (_n_log_n(tables_BNA.sum(axis=axis)).sum(axis=1) for axis in (2, 1))
    found: Floats = (cells_B - prompts_B - actions_B + _n_log_n(n)) / n
    return found


def _informations_without(table_NA: Floats) -> Floats:
    """The plug-in of a table without the actions of one prompt, for every prompt."""
    prompts_N, cells_N = table_NA.sum(axis=1), _n_log_n(table_NA).sum(axis=1)
    n_N = prompts_N.sum() - prompts_N
    margins_N = _n_log_n(prompts_N)
    actions_N = _n_log_n(table_NA.sum(axis=0) - table_NA).sum(axis=1)
    found: Floats = (cells_N.sum() - cells_N - (margins_N.sum() - margins_N) - actions_N + _n_log_n(n_N)) / n_N
    return found


def _n_log_n(counts: Floats) -> Floats:
    found: Floats = xlogy(counts, counts)
    return found


def _strategies(groups: Sequence[Group]) -> list[Metric]:
    names = "grounding/strategy_entropy", "grounding/distinct_strategies"
    played = [(group.task.id, [_strategy(one) for one in group.trajectories if one.turns]) for group in groups]
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


def _strategy(trajectory: Trajectory) -> tuple[str, ...]:
    return tuple(action for turn in trajectory.turns for action in turn.actions)


def _oscillation(groups: Sequence[Group]) -> Metric:
    by_task: dict[str, list[float]] = {}
    for group in groups:
        turns = by_task.setdefault(group.task.id, [])
        turns += [float(idle) for one in group.trajectories for idle in _idle_turns(one)]
    return rate("grounding/oscillation_rate", list(by_task.values()), "no turn reports a state")


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
