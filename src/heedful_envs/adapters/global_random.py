"""The one module that sets the global random generators: foreign code that draws from them gets its own state.

Inside the `with`, the generators of `random` and `numpy.random` follow a state of one owner, whatever others draw.
Outside, they are unchanged.
"""

from __future__ import annotations

import random
import threading
from types import TracebackType

import numpy as np

from heedful.seeds import derive

_ONE_AT_A_TIME = threading.RLock()


class OwnRandom:
    """A state of the global generators, taken in for the length of a `with`, and kept from one `with` to the next.

    Names as in `seeds.derive`: `OwnRandom(task.seed, member)`. One thread at a time is inside.
    """

    __slots__ = ("_numpy", "_outside", "_python")

    def __init__(self, seed: int, *names: str | int) -> None:
        own = derive(seed, "global generators", *names)
        self._python = random.Random(own).getstate()
        self._numpy = np.random.RandomState(own % 2**32).get_state()
        self._outside: list[tuple[object, object]] = []

    def __enter__(self) -> None:
        _ONE_AT_A_TIME.acquire()
        self._outside.append((random.getstate(), np.random.get_state()))
        random.setstate(self._python)
        np.random.set_state(self._numpy)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()
        python, numpy = self._outside.pop()
        random.setstate(python)  # type: ignore[arg-type]
        np.random.set_state(numpy)  # type: ignore[arg-type]
        _ONE_AT_A_TIME.release()
