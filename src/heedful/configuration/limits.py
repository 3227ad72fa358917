"""Limits of knobs, said in one way.

Promise: torch-free; a value outside its limits is answered by a sentence that names the knob.
"""

from __future__ import annotations


def refuse_below(config: object, **least: int) -> None:
    """Raise ValueError for the first field of `config` that lies below its least value."""
    for name, value in least.items():
        if getattr(config, name) < value:
            raise ValueError(f"{name} must be at least {value}, found {getattr(config, name)}")
