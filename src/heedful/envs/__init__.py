"""The environments that heedful knows by name. Importing this package loads none of them. `get` loads one."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ENVIRONMENTS", "REGISTRY", "get"]

REGISTRY: dict[str, str] = {
    "bandit": "heedful.envs.toys.bandit:Bandit",
    "chain": "heedful.envs.toys.chain:Chain",
    "code": "heedful.envs.code.environment:Code",
    "countdown": "heedful.envs.countdown.environment:Countdown",
    "echo": "heedful.envs.toys.echo:Echo",
    "frozen_lake": "heedful.envs.frozen_lake.environment:FrozenLake",
    "gymnasium": "heedful.envs.adapters.gymnasium.environment:Gymnasium",
    "math": "heedful.envs.math.environment:MathProblems",
    "openenv": "heedful.envs.adapters.openenv.environment:OpenEnv",
    "reasoning_gym": "heedful.envs.adapters.reasoning_gym.environment:ReasoningGym",
    "remote": "heedful.envs.remote.environment:Remote",
    "search_qa": "heedful.envs.search_qa.environment:SearchQA",
    "shop": "heedful.envs.shop.environment:Shop",
    "sokoban": "heedful.envs.sokoban.environment:Sokoban",
    "sudoku": "heedful.envs.sudoku.environment:Sudoku",
    "textarena": "heedful.envs.adapters.textarena.environment:TextArena",
    "verifiers": "heedful.envs.adapters.verifiers.environment:Verifiers",
}
"""Name -> `module:class` of a dataclass that is an `Environment`."""


def get(name: str) -> Any:
    """The environment class registered under `name`. Raises a sentence that lists the known names."""
    if name not in REGISTRY:
        close = difflib.get_close_matches(name, REGISTRY, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ValueError(f"There is no environment named {name!r}; known are {', '.join(sorted(REGISTRY))}.{hint}")
    module, _, attribute = REGISTRY[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


class _Environments(Mapping[str, type]):
    """The registry as a table of classes, each loaded when it is looked at."""

    def __getitem__(self, name: str) -> type:
        if name not in REGISTRY:
            raise KeyError(name)
        return get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(REGISTRY)

    def __len__(self) -> int:
        return len(REGISTRY)


ENVIRONMENTS: Mapping[str, type] = _Environments()
"""Name -> class."""
