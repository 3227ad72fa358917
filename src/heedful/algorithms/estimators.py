"""The advantage estimators, by the name that configurations and the command line use.

Promise: an estimator says what it reads: `rewards` (one total per member of a group), `turns` (each member's reward per
turn) or `values` (a critic's estimates too); whoever calls it needs to know no more.
"""

from __future__ import annotations

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns

ESTIMATORS: dict[str, type] = {
    "group": GroupRelative,
    "leave_one_out": LeaveOneOut,
    "turns": TurnReturns,
    "gae": Gae,
}
