"""Choosing prompts by how their members' values spread: rewards in, verdicts with reasons out.

Promise: a filter is a pure function of plain numbers and the generator it is given, independent of the order of groups
and members, so any trainer can call it in one line; no torch, no numpy. A constant group has a spread of exactly 0.

    verdicts = TopP(p=0.9)([[1, 0, 1, 0], [1, 1, 1, 1]], random.Random(0))

Verdict reasons: `kept`; `unscored` (fewer than two scored members, `None` and NaN left out); `constant`;
`below_mass`, `below_rank`, `below_threshold` by filter; `not_drawn` by the random control. The training loop adds
`surplus` (dynamic sampling had enough before) and `readmitted` (the guard against starved tasks).

Groups whose spread equals that of the last group kept are kept too, so a filter may keep more than it was asked for;
binary outcomes make such ties frequent.
"""

from heedful.filters.ranked import DropConstant, KeepAll, MinP, Softmax, TopK, TopP, TopPStd
from heedful.filters.ranking import check_filter
from heedful.filters.shrinkage import Visit
from heedful.filters.weighted import SoftWeight
from heedful.filters.wrappers import FILTERS, RandomSubset, Remembering, Shrunken
from heedful.statistics.group_statistics import is_constant, values_on

__all__ = [
    "FILTERS",
    "DropConstant",
    "KeepAll",
    "MinP",
    "RandomSubset",
    "Remembering",
    "Shrunken",
    "SoftWeight",
    "Softmax",
    "TopK",
    "TopP",
    "TopPStd",
    "Visit",
    "check_filter",
    "is_constant",
    "values_on",
]
