"""Episodes, evaluations and rewards of tasks whose difficulty is drawn from a known distribution.

A task has a chance of success p from a beta distribution. Harder tasks take more turns, have longer replies, other
entropies and more invalid turns. So clusters differ in level and in size, as they do in training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import betaln, roots_jacobi, xlogy
from scipy.stats import betabinom, binom

from benchmarks.truth.simulation import Case, Floats
from heedful.diagnostics.actions.strategies import strategy_metrics
from heedful.diagnostics.behaviour_metrics import behaviour
from heedful.diagnostics.signal import spread_metrics
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn

LATER_TURNS = 3
"""Turns that an episode of an impossible task has after its first one."""
STRATEGIES = 4
"""Equally likely strategies of half of the tasks; the others have one."""


@dataclass(frozen=True)
class Tasks:
    """Tasks whose chance of success is Beta(a, b), each played by `members` episodes."""

    count: int
    members: int
    a: float
    b: float

    def chances(self, rng: np.random.Generator) -> list[float]:
        return [float(p) for p in rng.beta(self.a, self.b, self.count)]

    def mean(self, of: Callable[[Floats], Floats]) -> float:
        """The mean of a polynomial of p over all tasks, by Gauss-Jacobi quadrature on the distribution."""
        nodes, weights = roots_jacobi(60, self.b - 1, self.a - 1)
        return float(weights @ of((nodes + 1) / 2) / weights.sum())


def _turns(p: Floats) -> Floats:
    """Expected turns of an episode."""
    return 1 + LATER_TURNS * (1 - p)


def _batch(tasks: Tasks, rng: np.random.Generator) -> Iterator[Group]:
    for number, p in enumerate(tasks.chances(rng)):
        task = Task(f"task-{number}", number, "train")
        strategies = STRATEGIES if rng.random() < 0.5 else 1
        yield Group(task, tuple(_episode(task, member, p, strategies, rng) for member in range(tasks.members)))


def _episode(task: Task, member: int, p: float, strategies: int, rng: np.random.Generator) -> Trajectory:
    turns: list[Turn] = []
    for place in range(1 + rng.binomial(LATER_TURNS, 1 - p)):
        strategy = int(rng.integers(strategies)) if place == 0 else 0
        idle = place > 0 and rng.random() < 1 - p
        state = turns[-1].state if idle else f"{member} {place}"
        valid = bool(rng.random() < 0.9 + 0.1 * p)
        # Only the first turn acts, so that the strategy is its action.
        actions = (str(strategy),) if place == 0 else ()
        turns.append(Turn(_reply(p, strategy, rng), {}, actions, valid, "", state))
    solved = bool(rng.random() < p)
    turns[-1] = replace(turns[-1], rewards={"outcome": float(solved), "steps": -0.1 * len(turns)})
    ending = Ending.SOLVED if solved else Ending.FAILED
    return Trajectory(task, member, tuple(turns), ending, float(solved), float(rng.random()))


def _reply(p: float, thought: int, rng: np.random.Generator) -> Reply:
    """A thought of 2 to 11 tokens, an answer of 2, up to 2 trailing tokens, and the end."""
    length = 2 + rng.binomial(9, 1 - p)
    trailing = rng.binomial(2, 0.5)
    tokens = length + 2 + trailing + 1
    ids = (thought, *range(10, 9 + tokens))
    entropies = tuple(rng.exponential(0.1 + 0.4 * p, tokens).tolist())
    spans = Span(0, length), Span(length, length + 2)
    closed = bool(rng.random() < 0.8 + 0.2 * p)
    return Reply(Prompt("", (1,)), ids, "", (0.0,) * tokens, entropies, *spans, closed, False)


def _read(tasks: Tasks, rng: np.random.Generator) -> list[Metric]:
    groups = list(_batch(tasks, rng))
    return [
        *behaviour(groups),
        *strategy_metrics(groups),
        *spread_metrics([[trajectory.outcome for trajectory in group.trajectories] for group in groups]),
    ]


def _truths(tasks: Tasks) -> dict[str, float]:
    size, turns = tasks.members, tasks.mean(_turns)
    solved = tasks.a / (tasks.a + tasks.b)
    none = float(np.exp(betaln(tasks.a, tasks.b + size) - betaln(tasks.a, tasks.b)))
    hits = np.arange(size + 1)
    chance_of_hits = betabinom.pmf(hits, size, tasks.a, tasks.b)

    def over_turns(value: Callable[[Floats], Floats]) -> float:
        return tasks.mean(lambda p: _turns(p) * value(p)) / turns

    def over_tokens(tokens: Callable[[Floats], Floats], weight: Callable[[Floats], Floats]) -> float:
        counted = tasks.mean(lambda p: _turns(p) * weight(p) * tokens(p))
        return tasks.mean(lambda p: _turns(p) * weight(p) * tokens(p) * (0.1 + 0.4 * p)) / counted

    def reply(p: Floats) -> Floats:
        return 2 + 9 * (1 - p) + 2 + 1 + 1

    # Of `size` draws of STRATEGIES equally likely ones. The other half of the tasks has one.
    drawn = binom.pmf(hits, size, 1 / STRATEGIES)
    entropy = -STRATEGIES * float(drawn @ xlogy(hits / size, hits / size)) / 2
    different = (STRATEGIES * (1 - (1 - 1 / STRATEGIES) ** size) / size + 1 / size) / 2

    def distinct(p: Floats) -> Floats:
        """Expected share of different thoughts: a strategy and a length each."""
        lengths = binom.pmf(np.arange(10)[:, None], 9, 1 - p)
        one, many = (count * (1 - (1 - lengths / count) ** size).sum(axis=0) / size for count in (1, STRATEGIES))
        return (one + many) / 2

    return {
        "success/rate": solved,
        "success/any_of_group": 1 - none,
        "success/progress": solved + (1 - solved) / 2,
        "reward/mean": solved - 0.1 * turns,
        "reward/outcome": solved,
        "format/valid_rate": over_turns(lambda p: 0.9 + 0.1 * p),
        "format/closed_rate": over_turns(lambda p: 0.8 + 0.2 * p),
        "format/trailing_tokens": 1.0,
        "length/reasoning_tokens": over_turns(lambda p: 2 + 9 * (1 - p)),
        "length/response_tokens": over_turns(reply),
        "length/turns": turns,
        "policy/entropy_per_token": over_tokens(reply, np.ones_like),
        "policy/thought_entropy_per_token": over_tokens(lambda p: 2 + 9 * (1 - p), np.ones_like),
        "policy/answer_entropy_per_token": over_tokens(np.ones_like, np.ones_like),
        "policy/solved_entropy_per_token": over_tokens(reply, lambda p: p),
        "text/distinct_thoughts": tasks.mean(distinct),
        "grounding/strategy_entropy": entropy,
        "grounding/distinct_strategies": different,
        "grounding/oscillation_rate": tasks.mean(lambda p: LATER_TURNS * (1 - p) ** 2) / turns,
        "signal/reward_std": float(chance_of_hits @ np.sqrt(hits * (size - hits) / (size * (size - 1)))),
        "signal/reward_variance": float(chance_of_hits @ (hits * (size - hits) / (size * (size - 1)))),
    }


def _case(label: str, tasks: Tasks) -> Case:
    return Case(f"{tasks.count} tasks x {tasks.members}, {label}", partial(_read, tasks), _truths(tasks), small=25)


CASES = (
    _case("half solved", Tasks(16, 8, 2.0, 2.0)),
    _case("half solved", Tasks(8, 4, 2.0, 2.0)),
    _case("all or nothing", Tasks(16, 8, 0.3, 0.3)),
    _case("10% solved", Tasks(8, 8, 0.5, 4.5)),
    _case("5% solved", Tasks(16, 8, 0.2, 3.8)),
    _case("2% solved", Tasks(32, 8, 0.1, 4.9)),
    _case("98% solved", Tasks(16, 8, 4.9, 0.1)),
)
