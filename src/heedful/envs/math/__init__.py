"""Math: word problems drawn here, or the problems of a file."""

from heedful.envs.math.environment import MathProblems

__all__ = ["MathProblems"]
