"""A process with a limit on its memory (`ulimit -v`) ends with a sentence where the memory ends.

OpenBLAS, in which NumPy and SciPy compute, takes its buffers when it is first used. Where the limit leaves no room for
them it tries for ever, or ends the process with a line of its own.
"""

from __future__ import annotations

import mmap
import resource
import sys
from functools import cache
from typing import Any

_BUFFERS = 128 << 20
"""Bytes that the buffers of both libraries fit into."""


def report_no_lack_of_memory_at_exit() -> None:
    """Let what libraries do at the end of this process fail in silence where it finds no memory."""
    told = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, MemoryError):
            told(unraisable)

    sys.unraisablehook = hook


@cache
def reserve_buffers() -> None:
    """Let OpenBLAS take its buffers now, if the memory is limited. Raises MemoryError if there is no room for them."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, _BUFFERS).close()
    except OSError:
        raise MemoryError from None
    import numpy as np
    from scipy.linalg import lapack

    square = np.eye(256)
    np.linalg.eigh(square @ square)  # NumPy and SciPy have an OpenBLAS each
    lapack.dpotrf(square)
