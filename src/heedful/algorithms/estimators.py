"""The advantage estimators, by the name that configurations and the command line use.

A custom estimator is one frozen dataclass with the method of one of the protocols `CreditsMembers`, `CreditsTurns` or
`CreditsTokens` (`heedful.protocols`). It is chosen as `--algorithm.advantage module:Class`. A row here gives it a name.
"""

from __future__ import annotations

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns
from heedful.protocols import Estimator

ESTIMATORS: dict[str, type[Estimator]] = {
    "group": GroupRelative,
    "leave_one_out": LeaveOneOut,
    "turns": TurnReturns,
    "gae": Gae,
}
