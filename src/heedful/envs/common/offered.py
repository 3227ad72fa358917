"""Answers of an environment that may be a user's: it may raise or return anything, and the error names it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from heedful.envs.common.contract import tells_its_user
from heedful.guarded import Raised, guarded_call
from heedful.protocols import AnswersBlindly, AnswersFreely
from heedful.types import Task

MOST_CANDIDATES = 64
"""A sequence is extended by two actions at once if that makes no more candidates than this, else by one. Of an
environment's blind answers so many are tried."""


def random_answer_of(env: AnswersFreely, task: Task, rng: random.Random) -> str:
    """A random answer. Raises ValueError, a sentence, where `random_answer` raises or returns no text."""
    answer = guarded_call(lambda: env.random_answer(task, rng))
    if isinstance(answer, Raised) or not isinstance(answer.value, str):
        found = f"that it raised {answer}" if isinstance(answer, Raised) else type(answer.value).__name__
        raise ValueError(
            f"Expected a text from `random_answer` of the environment {env.name} for task {task.id} (seed "
            f"{task.seed}), found {found}. Mend it; `heedful check-env` tries it out."
        )
    return answer.value


def blind_answers_of(env: AnswersBlindly, tasks: Sequence[Task]) -> list[str]:
    """The first answers to try blindly. Raises ValueError where `blind_answers` raises or returns other than texts."""
    answer = guarded_call(lambda: list(itertools.islice(env.blind_answers(tasks), MOST_CANDIDATES)))
    if isinstance(answer, Raised) and tells_its_user(answer.error):
        raise answer.error
    other = [] if isinstance(answer, Raised) else [each for each in answer.value if not isinstance(each, str)]
    if isinstance(answer, Raised) or other:
        found = f"that it raised {answer}" if isinstance(answer, Raised) else f"{other[0]!r:.80} among them"
        raise ValueError(
            f"Expected texts from `blind_answers` of the environment {env.name}, found {found}. Mend it; `heedful "
            "check-env` tries it out."
        )
    return answer.value
