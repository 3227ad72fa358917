"""heedful: reinforcement learning of LLM agents that keep listening to their input.

Promise: importing this package loads the plain-data types only - no torch, no numpy.
"""

__version__ = "0.1.0"
