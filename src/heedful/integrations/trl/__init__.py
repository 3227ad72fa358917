"""heedful inside TRL: the filter and the diagnostics for users of `trl.GRPOTrainer`.

TRL's trainer remains the trainer. heedful reads its batches, drops rows before its loss, and logs.

    from heedful.integrations.trl import HeedfulCallback          # watches a run by its logs, in one line
    from heedful.integrations.trl import HeedfulGRPOTrainer       # the filter, the diagnostics, the report
    from heedful.integrations.trl import Probe                    # the diagnostics alone, without a subclass
    from heedful.integrations.trl import AsyncGroups              # the filter in AsyncGRPOTrainer
    from heedful.integrations.trl import to_trl_rollout_func      # heedful's environments as a rollout_func
"""

from importlib.util import find_spec

if find_spec("trl") is None:
    raise ImportError(
        "heedful.integrations.trl expected TRL, found that it is not installed. Install torch first, then "
        "pip install 'heedful[trl]'."
    )

from heedful.integrations.trl.asynchronous import AsyncGroups
from heedful.integrations.trl.logged import HeedfulCallback
from heedful.integrations.trl.probe import Probe
from heedful.integrations.trl.rollouts import environment_reward, to_trl_rollout_func
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.trl.trainer import HeedfulGRPOTrainer

__all__ = [
    "AsyncGroups",
    "HeedfulCallback",
    "HeedfulConfig",
    "HeedfulGRPOTrainer",
    "Probe",
    "environment_reward",
    "to_trl_rollout_func",
]
