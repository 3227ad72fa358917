"""One sentence for every number that is too small."""

from __future__ import annotations


def refuse_below(config: object, **least: int) -> None:
    """Raise ValueError for the first field of `config` that is below its least value; a field that is None is not."""
    for name, value in least.items():
        found = getattr(config, name)
        if found is not None and found < value:
            raise ValueError(f"{name} must be at least {value}, found {found}")
