"""Filters: prompts chosen by how much their members' rewards vary. Rewards in, verdicts with reasons out.

A filter is a pure function of plain numbers and the generator it is given. The order of groups and members does not
matter. Any trainer can call a filter in one line, without torch or numpy. A constant group has a spread of exactly 0.

    verdicts = TopP(p=0.9)([[1, 0, 1, 0], [1, 1, 1, 1]], random.Random(0))

Verdict reasons:

- `kept`
- `unscored`: fewer than two scored members (`None` and NaN left out)
- `constant`
- `below_mass`, `below_rank`, `below_threshold`: by filter
- `not_drawn`: by the random control
- `surplus`, added by the training loop: dynamic sampling already had enough groups
- `readmitted`, added by the training loop: the guard against starved tasks

A group that ties with the last group kept is kept too, so a filter may keep more groups than requested. Binary
outcomes make such ties frequent. The rules, and how ties are decided, are in `heedful.filters.ranking`.

A custom filter is a frozen dataclass with the members of `heedful.protocols.Filter`. `Ranked` is a base for a filter
that needs only one variance per group. What is not in `__all__` is private.
"""

from heedful.diagnostics.statistics.group_statistics import is_constant, values_on
from heedful.filters.ranked import (
    DropConstant,
    KeepAll,
    MinP,
    Ranked,
    Ranking,
    Softmax,
    SoftWeight,
    TopK,
    TopP,
    TopPStd,
)
from heedful.filters.shrinkage import Visit
from heedful.filters.wrappers import FILTERS, RandomSubset, Remembering, Shrunken

__all__ = [
    "FILTERS",
    "DropConstant",
    "KeepAll",
    "MinP",
    "RandomSubset",
    "Ranked",
    "Ranking",
    "Remembering",
    "Shrunken",
    "SoftWeight",
    "Softmax",
    "TopK",
    "TopP",
    "TopPStd",
    "Visit",
    "is_constant",
    "values_on",
]
