"""The module to name in VERL_USE_EXTERNAL_MODULES: it registers heedful's trainers and agent loop with verl.

verl imports it in every process. What goes wrong here is raised, while verl hides the errors of entry points.
"""

from __future__ import annotations

from heedful_verl import compatibility

compatibility.check()

from heedful_verl import trainer  # noqa: E402  # registered by being imported
from heedful_verl.play import agent_loop  # noqa: E402

__all__ = ["agent_loop", "trainer"]
