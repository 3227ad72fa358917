"""With a conftest here, pytest lets the folders below import the modules of this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "envs"))  # examples of environments that both folders play
