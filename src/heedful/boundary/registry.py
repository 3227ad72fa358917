"""Tables of classes by name: heedful's own, and those that installed packages add through an entry point.

A package adds an environment with three lines in its `pyproject.toml`, and needs no change of heedful:

    [project.entry-points."heedful.environments"]
    maze = "mygame.maze:Maze"

The groups are `heedful.environments`, `heedful.filters`, `heedful.log_readers` and `heedful.commands`. An entry point
may name the extra of its distribution that it needs: `maze = "mygame.maze:Maze [graphics]"`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry(Mapping[str, Any]):
    """Name -> class, loaded when it is looked at. heedful's own names come first, and no package can replace one.

    Args:
        group: the group of entry points, such as `heedful.environments`.
        own: name -> class, or `module:Class` where it is loaded later.
        noun: what the table holds, for the sentence about an unknown name.
    """

    def __init__(self, group: str, own: Mapping[str, str | type], noun: str) -> None:
        self._group, self._own, self._noun = group, own, noun

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # a tenth of the time in which a command starts

        # Sorted, so that of two packages which add one name the same one is found on every machine.
        found = sorted(entry_points(group=self._group), key=lambda point: (point.name, point.value), reverse=True)
        return {point.name: point for point in found if point.name not in self._own}

    def origin(self, name: str) -> str:
        """`module:Class` of a name. Raises ValueError, with the known names, for any other name."""
        if name in self._own:
            own = self._own[name]
            return own if isinstance(own, str) else f"{own.__module__}:{own.__qualname__}"
        if name in self._added:
            point = self._added[name]
            return f"{point.module}:{point.attr}"
        close = difflib.get_close_matches(name, list(self), n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ValueError(f"There is no {self._noun} named {name!r}; known are {', '.join(sorted(self))}.{hint}")

    def how_to_install(self, name: str) -> str:
        """The command that brings what a name needs beyond its package; empty if it needs nothing more."""
        point = None if name in self._own else self._added[name]
        if point is None or not point.extras or point.dist is None:
            return ""
        extras = point.value.partition("[")[2].rstrip("] ")  # `extras` would cut `reasoning-gym` in two
        return f'pip install "{point.dist.name}[{extras}]"'

    def get_class(self, name: str) -> Any:
        """The class of a name. Raises ValueError, with the known names, for any other name."""
        module, _, attribute = self.origin(name).partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return self.get_class(name)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *sorted(self._added)))

    def __len__(self) -> int:
        return len(self._own) + len(self._added)
