"""The server's tests serve the same perilous environment as those of the worker processes."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "rollout"))
