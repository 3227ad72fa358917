"""What an object lacks to be an environment: asked before a name that a user typed is played."""

from __future__ import annotations

from heedful.guarded import Answered, guarded_call

MEMBERS = ("name", "turns", "task", "episode")
"""What an `Environment` consists of."""


def missing_from(env: object) -> str:
    """What the object is and which members it has not, as a clause. Empty if it has all."""
    missing = [name for name in MEMBERS if not _has(env, name)]
    if not missing:
        return ""
    found = f"a {type(env).__name__} without {', '.join(f'`{name}`' for name in missing)}"
    if "episode" in missing and callable(getattr(env, "make", None)):
        found += "; it has `make()`, the earlier name of `episode()`: rename that method to `episode`"
    return found


def _has(env: object, name: str) -> bool:
    """Like `hasattr`, also for a property that raises something else than AttributeError."""
    return isinstance(guarded_call(lambda: getattr(env, name)), Answered)
