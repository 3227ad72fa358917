"""The environments that heedful knows by name. Importing this package loads none of them.

Packages add their own through the entry point `heedful.environments`; the larger ones of heedful
(`heedful_envs`) come in the same way.
"""

from __future__ import annotations

from heedful.boundary.registry import Registry

__all__ = ["ENVIRONMENTS"]

ENVIRONMENTS = Registry(
    "heedful.environments",
    {
        "bandit": "heedful.envs.toys.bandit:Bandit",
        "chain": "heedful.envs.toys.chain:Chain",
        "countdown": "heedful.envs.countdown.environment:Countdown",
        "echo": "heedful.envs.toys.echo:Echo",
        "frozen_lake": "heedful.envs.frozen_lake.environment:FrozenLake",
        "math": "heedful.envs.math.environment:MathProblems",
        "remote": "heedful.envs.remote.environment:Remote",
        "sokoban": "heedful.envs.sokoban.environment:Sokoban",
    },
    "environment",
)
"""Name -> a dataclass that is an `Environment`."""
