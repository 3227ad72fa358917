"""Independent random streams for every consumer, derived from one run seed.

A stream depends only on the seed and the names given. So no generator has to be saved to resume a run. Switching one
consumer on or off never changes the draws of another.
"""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the consumer named by `names`. Stable over processes, platforms and Python versions."""
    text = ":".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> random.Random:
    """A separate `random.Random` for the consumer named by `names`."""
    return random.Random(derive(seed, *names))
