"""What the adapters share: loading a library, its options, start states, endings, and scores that pay for nothing.

Asking whether a library is installed does not import it. Loading a library leaves the global random generators
unchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from heedful.boundary import expecting, parse_json
from heedful.envs.common import Answered, BaseEnvironment, BaseEpisode, Raised, guarded_call, task_of
from heedful.types import Ending, Task
from heedful_envs.adapters.global_random import OwnRandom

Answer = TypeVar("Answer")
Knobs = TypeVar("Knobs", bound=BaseEnvironment)

LIBRARIES: Mapping[str, str] = {
    "gymnasium": "gymnasium",
    "reasoning_gym": "reasoning_gym",
    "textarena": "textarena",
    "openenv": "openenv.core",
    "verifiers": "verifiers",
}
"""Environment -> the module of its library that is loaded."""

FULL = 1.0 - 1e-9
"""From here on a score counts as full: scorers sum fractions in floating point."""

SEEDS_LOOKED_AT = 64
"""The number of seeds drawn to find out whether there is more than one start state."""

ONE_START = "one start state"
"""Tag of the tasks of an environment that has no more."""


def is_installed(name: str) -> bool:
    """Whether the library behind the environment `name` can be found."""
    return importlib.util.find_spec(LIBRARIES[name].partition(".")[0]) is not None


def load_library(name: str, part: str = "") -> Any:
    """The library's module, or a part of it such as `envs.toy_text`.

    Raises ImportError with a sentence that names the extra.
    """
    try:
        with OwnRandom(0):
            return importlib.import_module(f"{LIBRARIES[name]}.{part}".rstrip("."))
    except ImportError as error:
        if is_installed(name):
            raise ImportError(f"The library behind {name} is installed, but cannot be loaded here: {error}") from error
        raise ImportError(
            f"The environment {name} plays those of a library that is not installed. Install it with "
            f'pip install "heedful[{name.replace("_", "-")}]".'  # older pips find no other spelling
        ) from error


def made_by_library(what: str, options: str, call: Callable[[], Answer]) -> Answer:
    """What the library makes of a user's options. Raises ValueError with the library's own error."""
    made = guarded_call(call)
    if isinstance(made, Raised):
        raise ValueError(
            f"{what} cannot be made with the options {options:.200}; the library says: {made.located}"
        ) from made.error
    return made.value


def answer_of_library(own: OwnRandom, call: Callable[[], Answer]) -> Answered[Answer] | Raised:
    """What the library answers to an agent's reply, or what it raised. It draws from `own`, and prints nothing."""
    with own, contextlib.redirect_stdout(io.StringIO()):
        return guarded_call(call)


def read_options(env: str, knob: str, text: str) -> dict[str, Any]:
    """`{"a": 1, "b": "x"}` as JSON, or `a=1 b=x`: values are JSON where they can be read so, else text.

    Raises ValueError for anything else.
    """
    text = text.strip()
    if text.startswith("{"):
        with expecting(f"{knob} of {env} as a JSON object"):
            return dict(parse_json(text))
    with expecting(f"{knob} of {env} as words that a shell splits", value=text):
        words = [word.partition("=") for word in shlex.split(text)]
    for name, equals, value in words:
        if not equals or not name.isidentifier():
            raise ValueError(
                f'{env}: {knob} is written as name=value with spaces between, or as JSON such as {{"name": 1}}, but '
                f"found {name + equals + value!r}."
            )
    return {name: _value(value) for name, _, value in words}


def write_options(options: dict[str, Any]) -> str:
    """The canonical form of options: the same text for the same values."""
    return json.dumps(options, sort_keys=True)


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def task_of_start(env: Any, start_state: Callable[[Any, int], str], seed: int) -> Task:
    """The task of a seed. `start_state`: of an environment and a seed, in a canonical form.

    If all seeds draw one start state, each seed is a separate task, with a warning.
    """
    start = start_state(env, seed)
    if has_one_start(env, start_state):
        return task_of(env.name, f"{start}\nseed {seed}", seed, tags=(ONE_START,))
    return task_of(env.name, start, seed)


@lru_cache(maxsize=64)
def has_one_start(env: Any, start_state: Callable[[Any, int], str]) -> bool:
    """Whether the first seeds all draw one start state. If so, warns. Slow where a start is slow."""
    first = start_state(env, 0)
    if any(start_state(env, seed) != first for seed in range(1, SEEDS_LOOKED_AT)):
        return False
    warnings.warn(
        f"All seeds of {env.id} draw one start state, so in the first turn there is nothing that a thought could "
        "depend on, and the information metrics of that turn are null. Every seed counts as a task of its own: only "
        "noise tells them apart, and val and test are no other tasks than train.",
        stacklevel=4,
    )
    return True


def ending_of(outcome: float, ended: bool) -> Ending:
    """The ending of an episode. `ended`: by itself, and not by the limit of turns."""
    if outcome == 1.0:
        return Ending.SOLVED
    return Ending.FAILED if ended else Ending.OUT_OF_TURNS


class HoldingEpisode(BaseEpisode[Knobs]):
    """An episode that holds a part of its library, which `close` ends."""

    __slots__ = ("held",)

    restarts = False
    """What a library says may leave out what an earlier turn has said."""

    def __init__(self, env: Knobs) -> None:
        super().__init__(env)
        self.held: Any = None

    def close(self) -> None:
        """End what is held."""
        held, self.held = self.held, None
        if held is not None:
            held.close()

    def __del__(self) -> None:
        # In a thread of its own: this may be a thread of the library, for which closing would wait. None begins at the
        # end of the process.
        if self.held is not None and not sys.is_finalizing():
            threading.Thread(target=self.held.close, daemon=True).start()


def above_floor(score: float, floor: float) -> float:
    """`score` in [0, 1], rescaled so that `floor` (what a reply that answers nothing gets) becomes 0.

    The full score becomes 1, and the order of all others is kept.
    """
    if score >= FULL:
        return 1.0
    if score <= floor or floor >= FULL:
        return 0.0
    return (score - floor) / (1.0 - floor)
