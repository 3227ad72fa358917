"""Demonstrations of an environment that may be a user's: it may raise or return anything, and the error names it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

from heedful.guarded import Raised, guarded_call
from heedful.protocols import Demonstrates
from heedful.types import Observation, Task

Answer = TypeVar("Answer")

MOST_PAIRS = 10_000
"""Replies of one demonstration. A generator without an end has more."""


def demonstrated(env: Demonstrates, task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """The (observation, reply) pairs of one episode. Raises ValueError, a sentence, where there are none."""
    pairs = _asked(env, task, "demonstrate", lambda: pairs_of(env, task, rng))
    misfit = misfit_of(pairs)
    if misfit:
        raise _unusable(env, task, "demonstrate", misfit)
    return [(shown, reply) for shown, reply in pairs]


def pairs_of(env: Demonstrates, task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """What `demonstrate` returns, one more than is allowed at most. Raises what the environment raises."""
    return list(islice(iter(env.demonstrate(task, rng)), MOST_PAIRS + 1))


def misfit_of(pairs: Sequence[object]) -> str:
    """What is wrong with the pairs of a demonstration, as a clause. Empty if they serve."""
    if not 0 < len(pairs) <= MOST_PAIRS:
        count = f"{len(pairs)} pairs" if len(pairs) <= MOST_PAIRS else f"more than {MOST_PAIRS:,} pairs"
        return f"it returned {count}"
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            return f"it returned {type(pair).__name__} in place of two texts"
    return ""


def answer_to(env: Demonstrates, task: Task, reply: str) -> str:
    """What the environment shows after one reply to its first observation. Raises ValueError where it raises."""
    episode = _asked(env, task, "episode", env.episode)
    _asked(env, task, "start", lambda: episode.start(task, 0))
    step = _asked(env, task, "step", lambda: episode.step(reply))
    shown = getattr(step, "observation", None)
    if not isinstance(shown, Observation) or not isinstance(shown.text, str):
        raise _unusable(env, task, "step", f"it returned {type(step).__name__} without the text of an observation")
    return shown.text


def _asked(env: Demonstrates, task: Task, name: str, call: Callable[[], Answer]) -> Answer:
    answer = guarded_call(call)
    if isinstance(answer, Raised):
        raise _unusable(env, task, name, f"it raised {answer}" + (f" ({answer.place})" if answer.place else ""))
    return answer.value


def _unusable(env: Demonstrates, task: Task, name: str, found: str) -> ValueError:
    return ValueError(
        f"Expected `{name}` of the environment {env.name} to serve in a demonstration of task {task.id} (seed "
        f"{task.seed}), found that {found}. Mend it; `heedful check-env` tries it out. Training with --model PATH "
        "needs no demonstrations."
    )
