"""What an agent that does not read gets: scripted players beside which every success rate is shown.

Promise: no model and no tokens; the same tasks and generator give the same counts. Every episode is played as member 0;
one whose environment breaks is not scored and not counted.

An environment either lists its `actions` (`ActionEnvironment`) or takes answers in free text (`AnswerEnvironment`). One
that lists very many actions may offer `blind_answers` as well: whole answers of one turn, over which the
search then runs instead.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from heedful.envs.common.actions import ActionEnvironment, format_reply
from heedful.envs.common.answers import AnswerEnvironment
from heedful.guarded import Answered, Raised, guarded_call
from heedful.protocols import Environment
from heedful.types import Step, Task

ReplyFunction = Callable[[str, int], str]
"""(observation text, turn number from 0) -> reply text."""

ScriptedEnvironment = ActionEnvironment | AnswerEnvironment
"""What scripted players can play."""

MOST_CANDIDATES = 64
"""A sequence is extended by two actions at once if that makes no more candidates than this, else by one. Of an
environment's blind answers so many are tried."""


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


def play(env: Environment, task: Task, member: int, reply: ReplyFunction) -> list[Step]:
    """Play one episode to its end with scripted replies; returns what the environment answered, turn by turn."""
    environment = env.episode()
    observation = environment.start(task, member)
    steps: list[Step] = []
    while not steps or steps[-1].ending is None:
        steps.append(environment.step(reply(observation.text, len(steps))))
        observation = steps[-1].observation
    return steps


def has_random_player(env: object) -> bool:
    """Whether `random_reply` knows what a random player answers in this environment."""
    return bool(getattr(env, "actions", None)) or hasattr(env, "random_answer")


def has_blind_player(env: object) -> bool:
    """Whether there is anything to search the best input-blind player of this environment over."""
    return bool(getattr(env, "actions", None)) or hasattr(env, "blind_answers")


def random_reply(env: ScriptedEnvironment, task: Task, rng: random.Random) -> str:
    """The reply of a player who does not think: random actions, as many as a turn allows, or a random answer."""
    actions: Sequence[str] = getattr(env, "actions", ())
    if actions:
        return format_reply(rng.choices(actions, k=getattr(env, "actions_per_turn", 1)), "")
    return format_reply([cast(AnswerEnvironment, env).random_answer(task, rng)], "")


def random_policy_success(env: ScriptedEnvironment, tasks: Sequence[Task], rng: random.Random) -> SuccessCount:
    """Success of uniformly random valid actions, as many in each turn as are allowed, or of random answers."""

    def solved(task: Task) -> bool:
        return play(env, task, 0, lambda observation, turn: random_reply(env, task, rng))[-1].outcome == 1.0

    return _count([guarded_call(lambda task=task: solved(task)) for task in tasks])  # type: ignore[misc]


def fixed_sequence_success(env: ScriptedEnvironment, tasks: Sequence[Task], sequence: Sequence[str]) -> SuccessCount:
    """Success of one sequence of actions, or of answers, played whatever is observed."""
    replies = _replies(env, sequence)
    played = [_play_fixed(env, task, replies) for task in tasks]
    return SuccessCount(sum(each.solved for each in played), sum(not each.broke for each in played))


def _count(solved: Sequence[Answered[bool] | Raised]) -> SuccessCount:
    scored = [each.value for each in solved if isinstance(each, Answered)]
    return SuccessCount(sum(scored), len(scored))


def best_fixed_sequence(env: ScriptedEnvironment, tasks: Sequence[Task]) -> tuple[str, ...]:
    """A strong input-blind policy: one sequence of actions (or answers), as long as the budget, searched on `tasks`.

    Greedy: the sequence grows by the one or two actions that solve most tasks (of equal ones, that leave most episodes
    open; then the first in the order of `env.actions`). Then one pass over its positions takes every change of a
    single action that solves more. Search on training tasks and score with `fixed_sequence_success` on others.
    """
    if not tasks:
        raise ValueError(f"{env.name}: the best fixed sequence is searched on tasks, but none were given.")
    words = _candidates(env, tasks)
    return _improve(env, tasks, words, _grow(env, tasks, words)) if words else ()


def _candidates(env: ScriptedEnvironment, tasks: Sequence[Task]) -> Sequence[str]:
    """What a sequence is made of: whole answers of a turn where the environment offers them, else its actions."""
    if _plays_answers(env):
        return cast(AnswerEnvironment, env).blind_answers(tasks)[:MOST_CANDIDATES]
    return cast(ActionEnvironment, env).actions


def _plays_answers(env: ScriptedEnvironment) -> bool:
    return hasattr(env, "blind_answers")


def _per_turn(env: ScriptedEnvironment) -> int:
    return 1 if _plays_answers(env) else cast(ActionEnvironment, env).actions_per_turn


def _grow(env: ScriptedEnvironment, tasks: Sequence[Task], words: Sequence[str]) -> tuple[str, ...]:
    budget = env.turns * _per_turn(env)
    stride = 2 if len(words) ** 2 <= MOST_CANDIDATES else 1
    sequence: tuple[str, ...] = ()
    undecided = list(tasks)
    while len(sequence) < budget:
        best_score = (-1, -1)
        best = sequence
        best_undecided = undecided
        for extension in itertools.product(words, repeat=min(stride, budget - len(sequence))):
            candidate = sequence + extension
            replies = _replies(env, candidate)
            played = [_play_fixed(env, task, replies) for task in undecided]
            score = (sum(result.solved for result in played), sum(not result.over for result in played))
            if score > best_score:
                best_score, best = score, candidate
                best_undecided = [task for task, result in zip(undecided, played, strict=True) if not result.over]
        sequence, undecided = best, best_undecided
    return sequence


def _improve(
    env: ScriptedEnvironment, tasks: Sequence[Task], words: Sequence[str], sequence: tuple[str, ...]
) -> tuple[str, ...]:
    replies = _replies(env, sequence)
    played = [_play_fixed(env, task, replies) for task in tasks]
    for position in range(len(sequence)):
        # An episode that was over before this position goes the same way whatever stands here.
        open_ones = [index for index, result in enumerate(played) if not (result.over and result.executed <= position)]
        for action in words:
            candidate = (*sequence[:position], action, *sequence[position + 1 :])
            if candidate == sequence:
                continue
            replies = _replies(env, candidate)
            changed = {index: _play_fixed(env, tasks[index], replies) for index in open_ones}
            if sum(result.solved for result in changed.values()) > sum(played[index].solved for index in open_ones):
                sequence = candidate
                for index, result in changed.items():
                    played[index] = result
    return sequence


def _replies(env: ScriptedEnvironment, sequence: Sequence[str]) -> list[str]:
    most = _per_turn(env)
    return [format_reply(sequence[start : start + most], "") for start in range(0, len(sequence), most)]


def _play_fixed(env: ScriptedEnvironment, task: Task, replies: Sequence[str]) -> _Played:
    played = guarded_call(lambda: _execute(env, task, replies))
    return _Played(0, True, False, broke=True) if isinstance(played, Raised) else played.value


def _execute(env: ScriptedEnvironment, task: Task, replies: Sequence[str]) -> _Played:
    environment = env.episode()
    environment.start(task, 0)
    executed, answers = 0, _plays_answers(env)
    for reply in replies:
        step = environment.step(reply)
        executed += 1 if answers else len(step.actions)
        if step.ending is not None:
            return _Played(executed, True, step.outcome == 1.0)
    return _Played(executed, False, False)
