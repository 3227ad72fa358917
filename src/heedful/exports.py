"""Names that a package exports without loading the modules that define them (PEP 562).

So `import heedful.training` works without torch, and a module is loaded only when one of its names is used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers read it, without the time that `typing` takes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: `homes` gives for each public name the module that defines it.

    The function raises AttributeError, with the public names, for any other name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            public = ", ".join(sorted(homes))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; its public names are {public}")
        return getattr(import_module(homes[name]), name)

    return find
