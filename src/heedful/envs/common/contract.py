"""What an object lacks to be an environment: asked before a name that a user typed is played."""

from __future__ import annotations

from heedful.guarded import Raised, guarded_call

MEMBERS = ("name", "turns", "task", "episode")
"""What an `Environment` consists of."""


def missing_from(env: object) -> str:
    """What the object is and which members it has not, as a clause. Empty if it has all."""
    asked = {name: guarded_call(lambda name=name: getattr(env, name)) for name in MEMBERS}  # type: ignore[misc]
    missing = {name: answer for name, answer in asked.items() if isinstance(answer, Raised)}
    if not missing:
        return ""
    found = f"a {type(env).__name__} without {', '.join(f'`{name}`' for name in missing)}"
    for name, raised in missing.items():
        if not isinstance(raised.error, AttributeError):
            found += f"; `{name}` raised {raised}"
    if "episode" in missing and callable(getattr(env, "make", None)):
        found += "; it has `make()`, the earlier name of `episode()`: rename that method to `episode`"
    return found


def refuse_unless_environment(env: object) -> None:
    """Raise ValueError for a class without an environment's methods. No member is read, since one may ask a server."""
    missing = [name for name in ("task", "episode") if not hasattr(type(env), name)]
    if missing:
        raise ValueError(
            f"Expected an environment, found a {type(env).__name__} without `{'` and `'.join(missing)}`. "
            "Name another class, or add what it lacks."
        )
