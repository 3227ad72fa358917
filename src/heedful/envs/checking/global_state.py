"""The random generators that a whole process shares, and whether an environment uses them.

Their state after the check is the state before it. Only this module may change it, to find out which call does.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def moved_generators(seed: int) -> Iterator[set[str]]:
    """Within, the shared generators of `random` and (where it is loaded) of numpy stand where `seed` puts them.

    After it the set holds the names of those that were drawn from or seeded inside.
    """
    touched: set[str] = set()
    numpy = sys.modules.get("numpy")
    state = random.getstate()
    array_state = numpy.random.get_state(legacy=False) if numpy else None
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed)
    begun = _positions()
    try:
        yield touched
    finally:
        ended = _positions()
        touched.update(name for name in begun if begun[name] != ended[name])
        random.setstate(state)
        if numpy:
            numpy.random.set_state(array_state)


def _positions() -> dict[str, str]:
    """The state of each shared generator."""
    found = {"random": repr(random.getstate())}
    numpy = sys.modules.get("numpy")
    if numpy:
        state = numpy.random.get_state(legacy=False)
        found["numpy.random"] = repr((state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]))
    return found
