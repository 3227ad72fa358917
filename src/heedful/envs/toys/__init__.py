"""Small environments for tests and first runs: Bandit, Chain, Echo."""

from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo

__all__ = ["Bandit", "Chain", "Echo"]
