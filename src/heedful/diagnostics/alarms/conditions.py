"""What an alarm is made of: conditions on metrics, and rules that join them."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.diagnostics.statistics.change_point import Design


@dataclass(frozen=True, slots=True)
class Change:
    """A metric has shifted against its own past."""

    metric: str
    """Stands for several metrics in a mixed batch: `<family>/<scope>/<environment>/<metric>`."""
    design: Design
    other_unit: str = ""
    """The last part of the name of the same quantity in another unit. Its change is said too, and decides nothing."""
    beside: tuple[str, ...] = ()
    """The last parts of the names of metrics whose levels before and since are said."""

    @property
    def siblings(self) -> tuple[str, ...]:
        """The metrics that are said and do not decide."""
        return tuple(sibling(self.metric, last) for last in (self.other_unit, *self.beside) if last)


@dataclass(frozen=True, slots=True)
class Beyond:
    """The last `count` values of a metric are all above (or at or below) a limit: a definition, not a test.

    It ends when `count` values in a row are on the other side."""

    metric: str
    limit: float
    above: bool
    count: int
    once_within: bool = False
    """It counts only after `count` values in a row were on the other side: there was something to lose."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of counted things exceeds a limit: the pooled count of the last values, in standard errors."""

    metric: str
    limit: float
    threshold: float
    count: int


Condition = Change | Beyond | Share


@dataclass(frozen=True, slots=True)
class Rule:
    """One alarm: raised while one condition of each group holds and none of `unless` does."""

    name: str
    all_of: tuple[tuple[Condition, ...], ...]
    advice: str
    unless: tuple[Condition, ...] = ()
    collapse: bool = False
    """With `--on-collapse stop` the run ends here."""
    of_update: bool = False
    """It watches metrics of the update, so it is judged after it."""
    optional: bool = False
    """Not written where its metrics were never recorded, and before there are enough of them."""


def sibling(name: str, last: str) -> str:
    """The metric of the same measurement whose name ends in `last`."""
    return f"{name.rsplit('/', 1)[0]}/{last}"
