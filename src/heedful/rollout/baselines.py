"""What an agent that does not read gets: scripted players beside which every success rate is shown.

Promise: no model and no tokens; the same tasks and generator give the same counts. Every episode is played as member 0;
one whose environment breaks is not scored and not counted.

An environment lists its actions (`ListsActions`) or takes answers in free text (`AnswersFreely`, `AnswersBlindly`). One
that lists very many actions may offer blind answers as well, over which the search then runs instead.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heedful.envs.common.actions import actions_of, format_reply, most_actions_of
from heedful.envs.common.contract import MOST_CANDIDATES, blind_answers_of, random_answer_of, steps_of, turns_of
from heedful.envs.common.tools import in_form
from heedful.protocols import AnswersBlindly, AnswersFreely, Environment
from heedful.types import Step, Task


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """Solved episodes out of those played and scored."""

    solved: int
    episodes: int

    @property
    def rate(self) -> float:
        return self.solved / self.episodes


class _Played(NamedTuple):
    """How one episode went under a fixed sequence of actions."""

    executed: int
    over: bool
    solved: bool


def has_random_player(env: Environment) -> bool:
    """Whether `random_reply` knows what a random player answers in this environment."""
    return bool(actions_of(env)) or isinstance(env, AnswersFreely)


def has_blind_player(env: Environment) -> bool:
    """Whether there is anything to search the best input-blind player of this environment over."""
    return bool(actions_of(env)) or isinstance(env, AnswersBlindly)


def random_reply(env: Environment, task: Task, rng: random.Random) -> str:
    """The reply of a player who does not think: random actions, as many as a turn allows, or a random answer.

    Raises ValueError for an environment that offers neither, or whose `random_answer` fails.
    """
    actions = actions_of(env)
    if actions:
        return format_reply(rng.choices(actions, k=most_actions_of(env)), "")
    if isinstance(env, AnswersFreely):
        return in_form(env, format_reply([random_answer_of(env, task, rng)], ""))
    raise ValueError(
        f"A random player needs to know what can be answered, but {env.name} has neither `actions` and "
        "`actions_per_turn` nor `random_answer`."
    )


def random_policy_success(env: Environment, tasks: Sequence[Task], rng: random.Random) -> SuccessCount:
    """Success of uniformly random valid actions, as many in each turn as are allowed, or of random answers."""
    most = turns_of(env)
    played = [_steps(env, task, (random_reply(env, task, rng) for _ in range(most))) for task in tasks]
    return SuccessCount(sum(steps[-1].outcome == 1.0 for steps in played if steps), sum(map(bool, played)))


def fixed_sequence_success(env: Environment, tasks: Sequence[Task], sequence: Sequence[str]) -> SuccessCount:
    """Success of one sequence of actions, or of answers, played whatever is observed."""
    replies = _replies(env, sequence)
    played = [_play_fixed(env, task, replies) for task in tasks]
    return SuccessCount(sum(each.solved for each in played if each), sum(each is not None for each in played))


def best_fixed_sequence(env: Environment, tasks: Sequence[Task]) -> tuple[str, ...]:
    """A strong input-blind policy: one sequence of actions (or answers), as long as the budget, searched on `tasks`.

    Greedy: the sequence grows by the one or two actions that solve most tasks (of equal ones, that leave most episodes
    open; then the first in the order of `env.actions`). Then one pass over its positions takes every change of a
    single action that solves more. Search on training tasks and score with `fixed_sequence_success` on others.
    """
    # Whole answers of a turn where the environment offers them, else its actions.
    words = blind_answers_of(env, tasks) if isinstance(env, AnswersBlindly) else actions_of(env)
    if not words:
        return ()
    stride = 2 if len(words) ** 2 <= MOST_CANDIDATES else 1
    sequence = _grow(env, tasks, words, stride)
    # What was grown at once is the best of all sequences of its length: no change of it can solve more.
    return sequence if len(sequence) <= stride else _improve(env, tasks, words, sequence)


def _grow(env: Environment, tasks: Sequence[Task], words: Sequence[str], stride: int) -> tuple[str, ...]:
    """`stride`: how many actions the sequence grows by at once."""
    budget = turns_of(env) * _per_turn(env)
    sequence: tuple[str, ...] = ()
    undecided = list(tasks)
    while len(sequence) < budget:
        best_score = (-1, -1)
        best = sequence
        best_undecided = undecided
        for extension in itertools.product(words, repeat=min(stride, budget - len(sequence))):
            candidate = sequence + extension
            played = _play_all(env, undecided, candidate)
            score = (sum(result.solved for result in played), sum(not result.over for result in played))
            if score > best_score:
                best_score, best = score, candidate
                best_undecided = [task for task, result in zip(undecided, played, strict=True) if not result.over]
        sequence, undecided = best, best_undecided
    return sequence


def _improve(
    env: Environment, tasks: Sequence[Task], words: Sequence[str], sequence: tuple[str, ...]
) -> tuple[str, ...]:
    played = _play_all(env, tasks, sequence)
    for position in range(len(sequence)):
        # An episode that was over before this position goes the same way whatever stands here.
        open_ones = [index for index, result in enumerate(played) if not (result.over and result.executed <= position)]
        for action in words:
            candidate = (*sequence[:position], action, *sequence[position + 1 :])
            if candidate == sequence:
                continue
            changed = dict(
                zip(open_ones, _play_all(env, [tasks[index] for index in open_ones], candidate), strict=True)
            )
            if sum(result.solved for result in changed.values()) > sum(played[index].solved for index in open_ones):
                sequence = candidate
                for index, result in changed.items():
                    played[index] = result
    return sequence


def _per_turn(env: Environment) -> int:
    return 1 if isinstance(env, AnswersBlindly) else most_actions_of(env)


def _replies(env: Environment, sequence: Sequence[str]) -> list[str]:
    most = _per_turn(env)
    return [in_form(env, format_reply(sequence[start : start + most], "")) for start in range(0, len(sequence), most)]


def _play_all(env: Environment, tasks: Sequence[Task], sequence: Sequence[str]) -> list[_Played]:
    """One episode of each task. One that broke counts as over and not solved."""
    replies = _replies(env, sequence)
    return [_play_fixed(env, task, replies) or _Played(0, True, False) for task in tasks]


def _play_fixed(env: Environment, task: Task, replies: Sequence[str]) -> _Played | None:
    """`None` where the environment broke."""
    steps = _steps(env, task, replies)
    if steps is None:
        return None
    executed = len(steps) if isinstance(env, AnswersBlindly) else sum(len(step.actions) for step in steps)
    over = bool(steps) and steps[-1].ending is not None
    return _Played(executed, over, over and steps[-1].outcome == 1.0)


def _steps(env: Environment, task: Task, replies: Iterable[str]) -> list[Step] | None:
    """The environment's answers to member 0, until the episode ends. `None` where the environment broke."""
    try:
        return steps_of(env, task, replies)
    except (ValueError, ConnectionError):
        return None
