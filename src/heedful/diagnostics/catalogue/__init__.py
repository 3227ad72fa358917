"""The catalogue of metrics: what every name that heedful writes means, stated once.

Promise: every name that a run, an audit, a gradient measurement, an evaluation or a study writes has an entry, and
every entry is written by one of them. Reports, studies, alarms, live tables and the page `docs/metrics.md` read it.
To add a metric, write the code that computes it and one entry; `make metrics` brings the page up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from heedful.diagnostics.catalogue import episodes, thoughts, training
from heedful.diagnostics.catalogue.entry import OVER_SEEDS, Cadence, Doubt, Entry, Trend
from heedful.types import Metric

__all__ = [
    "CATALOGUE",
    "CONFUSED",
    "LIVE_COLUMNS",
    "OVER_SEEDS",
    "TABLES",
    "Cadence",
    "Column",
    "Doubt",
    "Entry",
    "Trend",
    "covers_of",
    "direction_of",
    "doubt_of",
    "entry_of",
    "is_doubtful",
    "legend_of",
    "mark_of",
    "unit_of",
]

CONFUSED = "Foreign prompts confuse the model"
"""How the reason of a reading begins whose exchanged thoughts leave the model without an action too often."""

TABLES: dict[str, tuple[Entry, ...]] = {
    "evaluation": episodes.EVALUATION,
    "episodes": episodes.EPISODES,
    "information": thoughts.INFORMATION,
    "retrieval": thoughts.RETRIEVAL,
    "image": thoughts.IMAGE,
    "counted": thoughts.COUNTED,
    "asked": thoughts.ASKED,
    "text": thoughts.TEXT,
    "regime": thoughts.REGIME,
    "alarm": training.ALARMS,
    "logged": training.LOGGED_ALARMS,
    "trainer": training.TRAINER,
    "signal": episodes.SIGNAL,
    "filter": episodes.FILTER,
    "treat": episodes.TREAT,
    "ranking": episodes.RANKING,
    "entropy": episodes.ENTROPY,
    "update": training.UPDATE,
    "cost": training.COST,
    "gradient": training.GRADIENT,
    "attribution": training.ATTRIBUTION,
}
"""Table of the page -> its entries, in their order."""

CATALOGUE = tuple(entry for entries in TABLES.values() for entry in entries)


@dataclass(frozen=True, slots=True)
class Column:
    """One metric in the live table of a run."""

    heading: str
    metric: str
    ceiling: str = ""
    """A second metric, shown after a slash."""
    digits: int = 3
    of_many: bool = False
    """Also shown in the table of several runs."""


LIVE_COLUMNS = (
    Column("success", "success/rate", of_many=True),
    Column("kept", "filter/kept_ratio", of_many=True),
    Column("H(Z|X)/tok", "information/first_turn/entropy_conditional_per_token"),
    Column("MI / ceiling", "information/first_turn/mi", "information/first_turn/mi_ceiling"),
    Column("by thought", "grounding/right_by_thought", of_many=True),
    Column("retrieval", "retrieval/first_turn/accuracy"),
    Column("tokens", "tokens/collect", digits=0),
)
"""In the order of the table. A new column is one row here."""


@cache
def entry_of(name: str) -> Entry | None:
    """The entry of a metric by its full name, such as `information/first_turn/mi`; `None` for an unknown name."""
    return next((entry for entry in CATALOGUE if entry.stands_for(name)), None)


def covers_of(name: str) -> str:
    """What simulations say of a metric's 95% interval where it covers less than 90%; else empty."""
    entry = entry_of(name)
    return entry.doubt.covers if entry and entry.doubt else ""


def is_doubtful(metric: Metric) -> bool:
    """Whether a reading has an interval, and is in the situation in which such an interval covers less than 90%. Or
    whether it is of exchanged thoughts that confuse the model (`is_confused`).

    The only decision on marks: reports, verdicts, live tables and studies ask it. The rule of each metric is in its
    entry. A reading of an earlier version, which does not say its effective clusters, counts as doubtful.
    """
    entry = entry_of(metric.name)
    return is_confused(metric) or (entry is not None and entry.doubt is not None and entry.doubt.holds(metric))


def is_confused(metric: Metric) -> bool:
    """Whether a part of rightness was read of a model that foreign prompts confuse."""
    return metric.value is not None and metric.why.startswith(CONFUSED)


def mark_of(metric: Metric, doubt: Doubt | None = None) -> str:
    """` †` behind the interval of a doubtful reading; else empty. `doubt`: the rule in place of the metric's own, for
    an interval of another kind, as over seeds."""
    return " †" if (doubt.holds(metric) if doubt else is_doubtful(metric)) else ""


def doubt_of(metric: Metric) -> str:
    """What simulations say of the interval of a doubtful reading, and why it is one; else empty."""
    if is_confused(metric):
        return metric.why
    entry = entry_of(metric.name)
    if entry is None or entry.doubt is None or not entry.doubt.holds(metric):
        return ""
    return f"{entry.doubt.covers} (marked: {entry.doubt})"


def legend_of(metrics: Iterable[Metric]) -> str:
    """A sentence that explains the marks behind the intervals of these readings; empty where none has a mark."""
    marked = [metric for metric in metrics if mark_of(metric)]
    leads = {False: "In simulations such an interval held the truth in less than 90% of cases", True: CONFUSED}
    sentences = []
    for confused, lead in leads.items():
        its = [each for each in marked if is_confused(each) is confused]
        told = dict.fromkeys(f"{each.name}: {doubt_of(each).removeprefix(f'{CONFUSED}: ')}" for each in its)
        sentences += [f"{lead}. {'; '.join(told)}."] if told else []
    return f"† {' '.join(sentences)}" if sentences else ""


def unit_of(name: str) -> str:
    """The unit of a metric; empty where it has none, and for an unknown name."""
    entry = entry_of(name)
    return entry.unit if entry else ""


def direction_of(name: str) -> Trend | None:
    """Where a collapse of the reasoning should move a metric; `None` where no direction was declared."""
    entry = entry_of(name)
    return entry.collapse if entry else None
