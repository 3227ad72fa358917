"""What an agent that does not read gets: scripted players beside which every success rate is shown.

Promise: no model and no tokens; the same tasks and generator give the same counts. Every episode is played as member 0;
one whose environment breaks is not scored and not counted.

A family either lists its `actions` (`ActionFamily`) or takes answers in free text (`AnswerFamily`). One that lists very
many actions may offer `blind_answers` as well: whole answers of one turn, over which the search then runs instead.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from heedful.envs.actions import ActionFamily, format_reply
from heedful.envs.answers import AnswerFamily
from heedful.foreign import Answered, Raised, attempt
from heedful.protocols import EnvironmentFamily
from heedful.types import Step, Task

ReplyFunction = Callable[[str, int], str]
"""(observation text, turn number from 0) -> reply text."""

ScriptedFamily = ActionFamily | AnswerFamily
"""What scripted players can play."""

MOST_CANDIDATES = 64
"""A sequence is extended by two actions at once if that makes no more candidates than this, else by one. Of a family's
blind answers so many are tried."""


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """Solved episodes out of those played and scored."""

    solved: int
    episodes: int

    @property
    def rate(self) -> float:
        return self.solved / self.episodes


@dataclass(frozen=True, slots=True)
class _Played:
    """How one episode went under a fixed sequence of actions."""

    executed: int
    over: bool
    solved: bool
    broke: bool = False


def play(family: EnvironmentFamily, task: Task, member: int, reply: ReplyFunction) -> list[Step]:
    """Play one episode to its end with scripted replies; returns what the environment answered, turn by turn."""
    environment = family.make()
    observation = environment.start(task, member)
    steps: list[Step] = []
    while not steps or steps[-1].ending is None:
        steps.append(environment.step(reply(observation.text, len(steps))))
        observation = steps[-1].observation
    return steps


def has_random_player(family: object) -> bool:
    """Whether `random_reply` knows what a random player answers in this family."""
    return bool(getattr(family, "actions", None)) or hasattr(family, "random_answer")


def has_blind_player(family: object) -> bool:
    """Whether there is anything to search the best input-blind player of this family over."""
    return bool(getattr(family, "actions", None)) or hasattr(family, "blind_answers")


def random_reply(family: ScriptedFamily, task: Task, rng: random.Random) -> str:
    """The reply of a player who does not think: random actions, as many as a turn allows, or a random answer."""
    actions: Sequence[str] = getattr(family, "actions", ())
    if actions:
        return format_reply(rng.choices(actions, k=getattr(family, "actions_per_turn", 1)), "")
    return format_reply([cast(AnswerFamily, family).random_answer(task, rng)], "")


def random_policy_success(family: ScriptedFamily, tasks: Sequence[Task], rng: random.Random) -> SuccessCount:
    """Success of uniformly random valid actions, as many in each turn as are allowed, or of random answers."""

    def solved(task: Task) -> bool:
        return play(family, task, 0, lambda observation, turn: random_reply(family, task, rng))[-1].outcome == 1.0

    return _count([attempt(lambda task=task: solved(task)) for task in tasks])  # type: ignore[misc]


def fixed_sequence_success(family: ScriptedFamily, tasks: Sequence[Task], sequence: Sequence[str]) -> SuccessCount:
    """Success of one sequence of actions, or of answers, played whatever is observed."""
    replies = _replies(family, sequence)
    played = [_play_fixed(family, task, replies) for task in tasks]
    return SuccessCount(sum(each.solved for each in played), sum(not each.broke for each in played))


def _count(solved: Sequence[Answered[bool] | Raised]) -> SuccessCount:
    scored = [each.value for each in solved if isinstance(each, Answered)]
    return SuccessCount(sum(scored), len(scored))


def best_fixed_sequence(family: ScriptedFamily, tasks: Sequence[Task]) -> tuple[str, ...]:
    """A strong input-blind policy: one sequence of actions (or answers), as long as the budget, searched on `tasks`.

    Greedy: the sequence grows by the one or two actions that solve most tasks (of equal ones, that leave most episodes
    open; then the first in the order of `family.actions`). Then one pass over its positions takes every change of a
    single action that solves more. Search on training tasks and score with `fixed_sequence_success` on others.
    """
    if not tasks:
        raise ValueError(f"{family.name}: the best fixed sequence is searched on tasks, but none were given.")
    words = _candidates(family, tasks)
    return _improve(family, tasks, words, _grow(family, tasks, words)) if words else ()


def _candidates(family: ScriptedFamily, tasks: Sequence[Task]) -> Sequence[str]:
    """What a sequence is made of: whole answers of a turn where the family offers them, else its actions."""
    if _plays_answers(family):
        return cast(AnswerFamily, family).blind_answers(tasks)[:MOST_CANDIDATES]
    return cast(ActionFamily, family).actions


def _plays_answers(family: ScriptedFamily) -> bool:
    return hasattr(family, "blind_answers")


def _per_turn(family: ScriptedFamily) -> int:
    return 1 if _plays_answers(family) else cast(ActionFamily, family).actions_per_turn


def _grow(family: ScriptedFamily, tasks: Sequence[Task], words: Sequence[str]) -> tuple[str, ...]:
    budget = family.turns * _per_turn(family)
    stride = 2 if len(words) ** 2 <= MOST_CANDIDATES else 1
    sequence: tuple[str, ...] = ()
    undecided = list(tasks)
    while len(sequence) < budget:
        best_score = (-1, -1)
        best = sequence
        best_undecided = undecided
        for extension in itertools.product(words, repeat=min(stride, budget - len(sequence))):
            candidate = sequence + extension
            replies = _replies(family, candidate)
            played = [_play_fixed(family, task, replies) for task in undecided]
            score = (sum(result.solved for result in played), sum(not result.over for result in played))
            if score > best_score:
                best_score, best = score, candidate
                best_undecided = [task for task, result in zip(undecided, played, strict=True) if not result.over]
        sequence, undecided = best, best_undecided
    return sequence


def _improve(
    family: ScriptedFamily, tasks: Sequence[Task], words: Sequence[str], sequence: tuple[str, ...]
) -> tuple[str, ...]:
    replies = _replies(family, sequence)
    played = [_play_fixed(family, task, replies) for task in tasks]
    for position in range(len(sequence)):
        # An episode that was over before this position goes the same way whatever stands here.
        open_ones = [index for index, result in enumerate(played) if not (result.over and result.executed <= position)]
        for action in words:
            candidate = (*sequence[:position], action, *sequence[position + 1 :])
            if candidate == sequence:
                continue
            replies = _replies(family, candidate)
            changed = {index: _play_fixed(family, tasks[index], replies) for index in open_ones}
            if sum(result.solved for result in changed.values()) > sum(played[index].solved for index in open_ones):
                sequence = candidate
                for index, result in changed.items():
                    played[index] = result
    return sequence


def _replies(family: ScriptedFamily, sequence: Sequence[str]) -> list[str]:
    most = _per_turn(family)
    return [format_reply(sequence[start : start + most], "") for start in range(0, len(sequence), most)]


def _play_fixed(family: ScriptedFamily, task: Task, replies: Sequence[str]) -> _Played:
    played = attempt(lambda: _execute(family, task, replies))
    return _Played(0, True, False, broke=True) if isinstance(played, Raised) else played.value


def _execute(family: ScriptedFamily, task: Task, replies: Sequence[str]) -> _Played:
    environment = family.make()
    environment.start(task, 0)
    executed, answers = 0, _plays_answers(family)
    for reply in replies:
        step = environment.step(reply)
        executed += 1 if answers else len(step.actions)
        if step.ending is not None:
            return _Played(executed, True, step.outcome == 1.0)
    return _Played(executed, False, False)
